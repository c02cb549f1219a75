"""Rooms import only from rooms to their left, and torch stays where it belongs (docs/architecture.md)."""

import ast

import pytest

from smelt.files import ROOT

ROOMS = ["study", "budget", "corpus", "model", "train", "evaluate", "mechanism", "laws", "results", "report"]
# Leaves: they import no room, and every room may use them.
SHARED = {
    "errors",
    "files",
    "cli",
    "schema",
    "devices",
    "results.schemas",
    "results.parquet",
    "results.stages",
}
WITHOUT_TORCH = {"study", "budget", "laws", "results", "report"}


def imported(path):
    """Yield the dotted names that a module imports, wherever in it."""
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            yield from (f"{node.module}.{alias.name}" for alias in node.names)


def modules(room):
    return sorted((ROOT / "smelt" / room).rglob("*.py"))


def rooms_of(name):
    """Return the room that a name belongs to, as a list; empty for a shared module or a library."""
    if not name.startswith("smelt."):
        return []
    inner = name.removeprefix("smelt.")
    if any(inner == leaf or inner.startswith(f"{leaf}.") for leaf in SHARED):
        return []
    return [inner.partition(".")[0]] if inner.partition(".")[0] in ROOMS else []


@pytest.mark.parametrize("room", ROOMS)
def test_a_room_imports_only_from_its_left(room):
    left = set(ROOMS[: ROOMS.index(room) + 1]) - ({"evaluate"} if room == "mechanism" else set())
    for path in modules(room):
        for name in imported(path):
            assert left.issuperset(rooms_of(name)), f"{path.relative_to(ROOT)} imports {name}"


@pytest.mark.parametrize("room", sorted(WITHOUT_TORCH))
def test_no_torch_where_parsing_and_reporting_happen(room):
    for path in modules(room):
        heavy = {"torch", "lightning"} & {name.partition(".")[0] for name in imported(path)}
        assert not heavy, f"{path.relative_to(ROOT)} imports {heavy}"


@pytest.mark.parametrize("leaf", sorted(SHARED))
def test_shared_modules_import_no_room(leaf):
    path = ROOT / "smelt" / (leaf.replace(".", "/") + ".py")
    assert not [name for name in imported(path) if rooms_of(name)]


def test_no_module_is_too_long():
    files = [path for folder in ("smelt", "workflow", "bench") for path in (ROOT / folder).rglob("*.*")]
    long = [
        path for path in files if path.suffix in {".py", ".smk"} and len(path.read_text().splitlines()) > 500
    ]
    assert not long
    assert len((ROOT / "Snakefile").read_text().splitlines()) < 60
