"""Use the original DCLM files: the user's copies are checked, compared with the training text and copied."""

from __future__ import annotations

import shutil
import sys
from collections.abc import Mapping
from pathlib import Path

from smelt.corpus import Corpus
from smelt.errors import SmeltError
from smelt.evaluate.items import Item, item_content, read_items
from smelt.evaluate.leaks import LeakFinder, item_tail
from smelt.evaluate.local.texts import training_bytes, training_texts
from smelt.evaluate.registry import LONG_SHOTS, MMLU, Task, dclm_tasks
from smelt.evaluate.suite import DCLM, select, write_manifest
from smelt.files import ROOT, atomic_path
from smelt.study import Study

BASELINES = "v2"
# Training text beyond this is not searched for items: it would take hours.
_SEARCHED_BYTES = 4_000_000_000


def make_dclm(study: Study, corpus: Corpus, out: Path) -> None:
    """Copy the files of the study's DCLM tasks to `out` and write `tasks.json`.

    The files are used as they are: an item that occurs twice, or that the training text holds, is counted
    in `tasks.json` and stays.

    Raises:
        SmeltError: `evaluation.folder` is not set, files are missing (all are named) or malformed.
    """
    known = dclm_tasks(BASELINES)
    tasks = select(study, known)
    sources = find_files(study, tasks)
    items = {name: read_items(sources[task.file], task, unique=False) for name, task in tasks.items()}
    leaked = _leaks(tasks, items, corpus)
    facts = {
        name: {
            "items": len(items[name]),
            "repeated": len(items[name]) - len({item_content(item, task) for item in items[name]}),
            "leaked": leaked[name],
        }
        for name, task in tasks.items()
    }
    for name, fact in facts.items():
        if fact["repeated"] or fact["leaked"]:
            print(
                f"{name}: {fact['repeated']} items occur twice, {fact['leaked']} in the training text",
                file=sys.stderr,
            )
    for file in sorted({task.file for task in tasks.values()}):
        with atomic_path(out / file) as temporary:
            shutil.copyfile(sources[file], temporary)
    write_manifest(
        out,
        suite=DCLM,
        baseline_version=BASELINES,
        mmlu=MMLU if MMLU in tasks else None,
        long=tuple(name for name in LONG_SHOTS if name in tasks),
        complete=tasks.keys() == known.keys(),
        corpus=corpus.sha256,
        tasks=tasks,
        facts=facts,
    )
    print(f"{out}: {len(tasks)} DCLM tasks, random baselines {BASELINES}")


def find_files(study: Study, tasks: Mapping[str, Task]) -> dict[str, Path]:
    """Return where each task's file lies, anywhere below `evaluation.folder`.

    Raises:
        SmeltError: the folder is not set or absent, or files are missing or there twice.
    """
    if study.evaluation.folder is None:
        raise SmeltError(
            f"study {study.name}: evaluation.folder is not set; suite dclm needs a folder with the original "
            "JSON lines files, as in scripts/eval/local_data of llm-foundry"
        )
    folder = ROOT / study.evaluation.folder
    found = {file: sorted(folder.rglob(file)) for file in sorted({task.file for task in tasks.values()})}
    missing = [file for file, paths in found.items() if not paths]
    if missing:
        users = {file: [n for n, task in tasks.items() if task.file == file] for file in missing}
        listed = ", ".join(f"{file} ({' and '.join(users[file])})" for file in missing)
        raise SmeltError(f"study {study.name}: evaluation.folder {folder} lacks {listed}")
    for file, paths in found.items():
        if len(paths) > 1:
            raise SmeltError(f"{file} is there twice, as {paths[0]} and {paths[1]}; keep one of them")
    return {file: paths[0] for file, paths in found.items()}


def _leaks(
    tasks: Mapping[str, Task], items: Mapping[str, list[Item]], corpus: Corpus
) -> dict[str, int | None]:
    """Return how many items of each task occur in the training text; None where that was not looked at."""
    if training_bytes(corpus) > _SEARCHED_BYTES:
        return dict.fromkeys(tasks)
    tails = {name: [item_tail(task, item) for item in items[name]] for name, task in tasks.items()}
    finder = LeakFinder([tail for mine in tails.values() for tail in mine])
    finder.read(training_texts(corpus))
    return {name: sum(tail in finder.found for tail in mine) for name, mine in tails.items()}
