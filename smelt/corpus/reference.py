"""Committed hashes of the shipped source sets: the same texts on every machine and Python version."""

from __future__ import annotations

from pathlib import Path

from smelt.errors import SmeltError
from smelt.files import ROOT, read_json, write_json

REFERENCE = ROOT / "data" / "corpus.hashes.json"


def differing_sources(name: str, hashes: dict[str, str], path: Path = REFERENCE) -> list[str] | None:
    """Return the sources of set `name` whose hash is not the committed one, or that only one side has.

    Args:
        hashes: hash of each source of a built corpus (`sources` of its manifest).

    Returns:
        Names, sorted; None if no hashes are committed for this set.
    """
    committed = read_json(path).get(name)
    if committed is None:
        return None
    names = committed.keys() | hashes.keys()
    return sorted(source for source in names if committed.get(source) != hashes.get(source))


def commit_hashes(name: str, hashes: dict[str, str], path: Path = REFERENCE) -> None:
    """Write the hashes of set `name` into the committed file, keeping the other sets."""
    if not hashes:
        raise SmeltError(f"set {name} has no source")
    known = read_json(path) if path.exists() else {}
    write_json(path, {**known, name: hashes})
