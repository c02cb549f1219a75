"""Write a study's tasks: the local suite, or the user's copies of the DCLM files, checked for leaks."""

from __future__ import annotations

import json
import random
import sys
from collections import Counter
from pathlib import Path
from typing import Any

from smelt.corpus import Corpus
from smelt.errors import SmeltError
from smelt.evaluate.dclm import make_dclm
from smelt.evaluate.items import Item, check_item
from smelt.evaluate.leaks import LeakFinder, item_tail
from smelt.evaluate.local.tasks import LOCAL_TASKS, LocalTask
from smelt.evaluate.local.texts import Texts, training_texts
from smelt.evaluate.registry import Task
from smelt.evaluate.sequences import Encoder, questions_and_answers
from smelt.evaluate.suite import LOCAL, select, write_manifest
from smelt.files import write_text
from smelt.study import Study

# Items beside the evaluated ones, to draw demonstrations from.
_POOL = 64
# Fewer items than this are no task.
_FEWEST = 8
# Draws per wanted item before a generator is taken to be exhausted.
_PATIENCE = 20


def make_tasks(study: Study, corpus_folder: Path, out: Path) -> None:
    """Write the task files and `tasks.json` of a study to `out`."""
    corpus = Corpus.open(corpus_folder)
    if study.evaluation.suite == LOCAL:
        make_local(study, corpus, out)
    else:
        make_dclm(study, corpus, out)


def make_local(study: Study, corpus: Corpus, out: Path) -> None:
    """Write the local suite: `evaluation.items` items a task and a pool for demonstrations.

    Items that occur in the training text are left out. A task of which too few items can be made from this
    corpus is left out, and `tasks.json` says so.

    Raises:
        SmeltError: `evaluation.tasks` names a task that does not exist, or this corpus makes none of them.
    """
    wanted = study.evaluation.items + _POOL
    texts, encoder = Texts(corpus), Encoder.of_corpus(corpus.tokenizer, corpus.bos)
    room = (study.evaluation.max_length or study.corpus.context) // 2
    chosen = select(study, {local.name: local for local in LOCAL_TASKS})
    drawn = {name: _draw(local, texts, wanted + wanted // 4, encoder, room) for name, local in chosen.items()}
    finder = LeakFinder(
        [item_tail(chosen[name].task(0), item) for name, items in drawn.items() for item in items]
    )
    finder.read(training_texts(corpus))
    tasks: dict[str, Task] = {}
    facts: dict[str, dict[str, Any]] = {}
    for name, local in chosen.items():
        clean = [item for item in drawn[name] if item_tail(local.task(0), item) not in finder.found]
        items = clean[:wanted]
        if len(items) < _FEWEST:
            print(f"{name}: only {len(items)} items can be made of this corpus; left out", file=sys.stderr)
            continue
        tasks[name] = local.task(_chance(local, items))
        write_items(out / tasks[name].file, items)
        facts[name] = {
            "items": len(items),
            "drawn": len(drawn[name]),
            "leaked": len(drawn[name]) - len(clean),
        }
    if not tasks:
        raise SmeltError(
            f"study {study.name}: of this corpus none of the tasks {', '.join(chosen)} can be made (at least "
            f"{_FEWEST} items of {room} tokens); name others in evaluation.tasks, or other corpus.sources"
        )
    write_manifest(
        out,
        suite=LOCAL,
        baseline_version=LOCAL,
        mmlu=None,
        long=tuple(local.name for local in LOCAL_TASKS if local.long and local.name in tasks),
        complete=len(chosen) == len(LOCAL_TASKS),
        corpus=corpus.sha256,
        tasks=tasks,
        facts=facts,
    )
    leaked = sum(fact["leaked"] for fact in facts.values())
    print(f"{out}: {len(tasks)} local tasks, {leaked} items left out because they occur in the training text")


def _draw(local: LocalTask, texts: Texts, count: int, encoder: Encoder, room: int) -> list[Item]:
    """Return up to `count` different items of a task, always the same for the same corpus.

    An item fits into `room` tokens with each of its answers: half a prompt, the rest is for demonstrations.
    """
    rng = random.Random(f"smelt {local.name}")
    items: dict[str, Item] = {}
    for _ in range(_PATIENCE * count):
        item = local.make(rng, texts)
        if item is not None and _tokens(local.task(0), item, encoder) <= room:
            # The options' order does not make another item.
            question = item.get("query") or item.get("context") or " ".join(sorted(item["context_options"]))
            items.setdefault(question, item)
        if len(items) == count:
            break
    for item in items.values():
        check_item(item, local.task(0), local.name)
    return list(items.values())


def _tokens(task: Task, item: Item, encoder: Encoder) -> int:
    pairs = questions_and_answers(task, item, few_shot=False)
    return max(len(encoder.text(question)) + len(encoder.answer(answer)) for question, answer in pairs)


def _chance(local: LocalTask, items: list[Item]) -> float:
    """Return the accuracy of guessing: among the options, or always the most frequent answer."""
    if local.options > 1:
        return 1 / local.options
    return Counter(item["continuation"] for item in items).most_common(1)[0][1] / len(items)


def write_items(path: Path, items: list[Item]) -> None:
    """Write items as JSON lines."""
    write_text(path, "".join(json.dumps(item, ensure_ascii=False) + "\n" for item in items))
