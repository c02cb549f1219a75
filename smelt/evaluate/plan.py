"""Which task is evaluated with how many demonstrations, under which seeds, on which items."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from smelt.evaluate.items import item_groups
from smelt.evaluate.sequences import Encoder, Scored, build
from smelt.evaluate.shots import ORIGINAL_SEED, shot_seeds, shot_table
from smelt.evaluate.suite import Suite
from smelt.study.study import EvaluationSpec


@dataclass(frozen=True)
class Setting:
    """One evaluation of a task: number of demonstrations and seed of their choice."""

    task: str
    shots: int
    seed: int


@dataclass(frozen=True)
class Case:
    """One item under one setting: its index in the file, its part (category) and its sequences."""

    setting: Setting
    item: int
    part: str
    gold: int
    sequences: list[Scored]


# How much is evaluated at an endpoint: validation only, tasks in their standard setting, or also the sweep
# over numbers of demonstrations.
VALIDATION, STANDARD, SWEEP = "validation", "standard", "sweep"


def extents(grid: bool, horizons: int, spec: EvaluationSpec) -> list[str]:
    """Return how much is evaluated at each of a run's `horizons` endpoints.

    Figures 5 to 9, 11 and 24 compare grid runs; tables 3 to 5 compare ablations at their last endpoint only.
    """
    if not grid:
        return [VALIDATION] * (horizons - 1) + [STANDARD]
    if spec.shot_horizons == "all":
        return [SWEEP] * horizons
    return [STANDARD] * (horizons - 1) + [SWEEP]


def settings(suite: Suite, spec: EvaluationSpec, extent: str) -> list[Setting]:
    """Return the evaluations of one endpoint in order.

    Every task in its standard setting: few-shot tasks under each of the study's seeds, zero-shot tasks
    once. In the sweep few-shot tasks also with every number of demonstrations of the study.
    """
    if extent == VALIDATION:
        return []
    result = []
    for name, task in suite.tasks.items():
        counts = {task.shots}
        if extent == SWEEP and task.shots:
            counts |= {*spec.shots, *(spec.long_shots if name in suite.long else ())}
        for shots in sorted(counts):
            seeds = shot_seeds(spec.seeds) if shots else [ORIGINAL_SEED]
            result += [Setting(name, shots, seed) for seed in seeds]
    return result


def chosen_items(suite: Suite, name: str, limit: int) -> list[tuple[str, list[int]]]:
    """Return the parts of a task and which of their items are evaluated: the first ones, `limit` in all."""
    groups = item_groups(suite.items[name], suite.tasks[name])
    share = max(1, limit // len(groups))
    return [(part, indices[:share]) for part, indices in groups.items()]


def count_cases(suite: Suite, spec: EvaluationSpec, plan: list[Setting]) -> int:
    """Return how many cases `cases` yields."""
    sizes = {
        name: sum(len(chosen) for _, chosen in chosen_items(suite, name, spec.items)) for name in suite.tasks
    }
    return sum(sizes[setting.task] for setting in plan)


def cases(
    suite: Suite,
    spec: EvaluationSpec,
    plan: list[Setting],
    encoder: Encoder,
    max_length: int,
    keep_bos: bool = True,
) -> Iterator[Case]:
    """Yield the cases of a plan. Demonstrations come from an item's own part, from the whole of it."""
    for setting in plan:
        task, items = suite.tasks[setting.task], suite.items[setting.task]
        groups = item_groups(items, task)
        for part, chosen in chosen_items(suite, setting.task, spec.items):
            pool = groups[part]
            table = shot_table(len(pool), setting.shots, setting.seed)
            for place, index in enumerate(chosen):
                item = items[index]
                shots = [items[pool[shot]] for shot in table[place]]
                sequences = build(task, item, shots, encoder, max_length, keep_bos)
                yield Case(setting, index, part, item.get("gold", 0), sequences)
