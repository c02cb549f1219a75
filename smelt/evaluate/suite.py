"""A folder of tasks: `tasks.json` with one entry a task, and their items as JSON lines."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from smelt.errors import SmeltError
from smelt.evaluate.items import Item, read_items
from smelt.evaluate.registry import Task
from smelt.files import ROOT, sha256_file, write_json
from smelt.study import Study
from smelt.study.records import make_anew, read_record

SCHEMA = ROOT / "workflow" / "schemas" / "tasks.schema.yaml"
LOCAL = "local"
DCLM = "dclm"


@dataclass(frozen=True)
class Suite:
    """Tasks with their items.

    Attributes:
        name: `local` or `dclm`.
        baseline_version: which random baselines centre the scores: `v1` or `v2` of DCLM, or `local`.
        mmlu: name of the task reported as MMLU, if the suite has one.
        long: tasks that are also evaluated with the study's long lists of demonstrations.
        complete: whether all of the suite's tasks are here; only then there is a Core score.
        file: where `tasks.json` is.
        corpus: SHA-256 of the manifest of the corpus that the tasks were made of or checked against.
    """

    file: Path
    name: str
    baseline_version: str
    mmlu: str | None
    long: tuple[str, ...]
    complete: bool
    corpus: str
    tasks: dict[str, Task]
    items: dict[str, list[Item]]


def select(study: Study, known: dict[str, Any]) -> dict[str, Any]:
    """Return the tasks that the study names, or all.

    Raises:
        SmeltError: the study names a task that is not in the suite.
    """
    names = study.evaluation.tasks or tuple(known)
    for name in names:
        if name not in known:
            raise SmeltError(
                f"study {study.name}: evaluation.tasks contains {name!r}; suite {study.evaluation.suite} has "
                f"{', '.join(known)}"
            )
    return {name: task for name, task in known.items() if name in names}


def write_manifest(
    folder: Path,
    suite: str,
    baseline_version: str,
    mmlu: str | None,
    long: tuple[str, ...],
    complete: bool,
    corpus: str,
    tasks: Mapping[str, Task],
    facts: Mapping[str, Mapping[str, Any]],
) -> None:
    """Write `tasks.json` for the files that are in `folder`; `facts` are further entries of each task."""
    entries = {
        name: {**task.to_dict(), **facts[name], "sha256": sha256_file(folder / task.file)}
        for name, task in tasks.items()
    }
    write_json(
        folder / "tasks.json",
        {
            "suite": suite,
            "baseline_version": baseline_version,
            "mmlu": mmlu,
            "long": list(long),
            "complete": complete,
            "corpus": corpus,
            "tasks": entries,
        },
        sealed=True,
    )


def open_suite(folder: Path | str) -> Suite:
    """Read a folder of tasks and check every file against its recorded hash.

    Raises:
        SmeltError: a file is missing, changed or malformed.
    """
    folder = Path(folder)
    file = folder / "tasks.json"
    raw = read_record(file, SCHEMA)
    tasks = {
        name: Task(**{key: entry[key] for key in Task.__dataclass_fields__})
        for name, entry in raw["tasks"].items()
    }
    try:
        items = {name: _items(folder, task, raw["tasks"][name]["sha256"]) for name, task in tasks.items()}
    except SmeltError as error:
        raise SmeltError(f"{error}; {make_anew(file)}") from None
    return Suite(
        file=file,
        name=raw["suite"],
        baseline_version=raw["baseline_version"],
        mmlu=raw["mmlu"],
        long=tuple(raw["long"]),
        complete=raw["complete"],
        corpus=raw["corpus"],
        tasks=tasks,
        items=items,
    )


def _items(folder: Path, task: Task, sha256: str) -> list[Item]:
    path = folder / task.file
    if not path.is_file():
        raise SmeltError(f"{path} does not exist")
    if sha256_file(path) != sha256:
        raise SmeltError(f"{path} has changed since tasks.json was written")
    return read_items(path, task, unique=False)
