"""Scores from the table of items: accuracy and loss of each task, Core, Completion, MMLU. No torch.

The table has one row per option of an item (`items` of `smelt.results.schemas`); whatever a score is, it can
be computed from it again.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import numpy as np

from smelt.evaluate.registry import COMPLETION, Task

ACCURACY = "accuracy"
LOSS = "loss"

Columns = Mapping[str, Sequence[Any] | np.ndarray]
_SETTING = ("run", "horizon", "task", "shots", "seed")


def task_scores(items: Columns, tasks: Mapping[str, Task]) -> list[dict[str, Any]]:
    """Return rows of table `task_scores` for rows of `items` in which each setting is one contiguous block.

    `accuracy`: multiple choice and schema items are right when the gold option has the smallest mean loss
    per token (ties go to the first option), completions when every token is the most likely one. Parts of a
    task that is split by category count equally. `n` is the number of items.

    `loss`: cross entropy of the gold answers in nats per token, pooled over tokens. `n` is the number of
    tokens. It has no chance level.
    """
    rows = []
    for setting, block in _settings(items):
        task = tasks[setting["task"]]
        part, right = _right(block, task)
        accuracy = float(np.mean([right[part == name].mean() for name in np.unique(part)]))
        gold = block["gold"]
        tokens = int(block["tokens"][gold].sum())
        loss = float(block["nll"][gold].sum()) / tokens
        common = {**setting, "category": task.category}
        rows.append({**common, "metric": ACCURACY, "value": accuracy, "n": len(right), "chance": task.chance})
        rows.append({**common, "metric": LOSS, "value": loss, "n": tokens, "chance": None})
    return rows


def _settings(items: Columns) -> Iterator[tuple[dict[str, Any], dict[str, np.ndarray]]]:
    columns = {name: np.asarray(values) for name, values in items.items()}
    size = len(columns["nll"])
    if not size:
        return
    changed = np.zeros(size, bool)
    changed[0] = True
    for name in _SETTING:
        changed[1:] |= columns[name][1:] != columns[name][:-1]
    starts = np.flatnonzero(changed)
    for start, stop in zip(starts, [*starts[1:], size], strict=True):
        block = {name: values[start:stop] for name, values in columns.items()}
        yield {name: block[name][:1].tolist()[0] for name in _SETTING}, block


def _right(block: Mapping[str, np.ndarray], task: Task) -> tuple[np.ndarray, np.ndarray]:
    """Return for each item its part and whether it is answered correctly."""
    if task.kind == COMPLETION:
        return block["part"], block["greedy"]
    mean = block["nll"] / block["tokens"]
    order = np.lexsort((block["option"], mean, block["item"]))
    _, first = np.unique(block["item"][order], return_index=True)
    best = order[first]
    return block["part"][best], block["gold"][best]


def centred(accuracy: float, chance: float) -> float:
    """Return the accuracy on a scale where the random baseline is 0 and perfection 1 (DCLM)."""
    return (accuracy - chance) / (1 - chance)


def core(accuracy: Mapping[str, float], tasks: Mapping[str, Task]) -> float | None:
    """Return the mean centred accuracy over the Core tasks among `tasks`; None when one has no accuracy."""
    names = [name for name, task in tasks.items() if task.core]
    if not names or any(name not in accuracy for name in names):
        return None
    return float(np.mean([centred(accuracy[name], tasks[name].chance) for name in names]))


def completion(losses: Mapping[str, tuple[float, int]], tasks: Mapping[str, Task]) -> float | None:
    """Return the token-weighted loss over the completion tasks; None when one has no loss.

    Args:
        losses: by task, mean loss in nats per token and number of answer tokens.
    """
    names = [name for name, task in tasks.items() if task.completion]
    if not names or any(name not in losses for name in names):
        return None
    return sum(losses[n][0] * losses[n][1] for n in names) / sum(losses[n][1] for n in names)


def suite_scores(
    rows: Sequence[Mapping[str, Any]], tasks: Mapping[str, Task], mmlu: str | None, complete: bool
) -> dict[str, float | None]:
    """Return `core`, `completion` and `mmlu` of one endpoint from its rows of `task_scores`.

    Each task counts in its standard setting, averaged over the seeds (section 6). A suite of which tasks
    were left out has neither Core nor Completion.
    """
    accuracy: dict[str, list[float]] = {}
    losses: dict[str, list[tuple[float, int]]] = {}
    for row in rows:
        if row["shots"] != tasks[row["task"]].shots:
            continue
        if row["metric"] == ACCURACY:
            accuracy.setdefault(row["task"], []).append(row["value"])
        else:
            losses.setdefault(row["task"], []).append((row["value"], row["n"]))
    means = {name: float(np.mean(values)) for name, values in accuracy.items()}
    # The answers, so their tokens, are the same under every seed.
    pooled = {name: (float(np.mean([v for v, _ in pairs])), pairs[0][1]) for name, pairs in losses.items()}
    return {
        "core": core(means, tasks) if complete else None,
        "completion": completion(pooled, tasks) if complete else None,
        "mmlu": means.get(mmlu) if mmlu else None,
    }
