"""The stage tables that the analyses read, joined and checked."""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

from smelt.errors import SmeltError
from smelt.files import read_json
from smelt.laws.fit import Design
from smelt.results.parquet import read_rows
from smelt.results.stages import require
from smelt.study import Study, run_points
from smelt.study.records import make_anew

ARCHS = ("baseline", "smelt")
# A sentence names this many and counts the rest.
NAMED = 6


@dataclass
class Results:
    """What the analyses need of one study.

    Attributes:
        runs: rows of `runs` by run, of the seeds that the budget stage planned.
        endpoints: rows of `endpoints` by (run, horizon), only those with a usable loss.
        validation: rows of `validation` by run.
        task_scores: rows of `task_scores` by run.
        tasks: entries of `tasks.json` by task (category, shots, kind, core); `mmlu` its task of that name.
        problems: one sentence for each row or file that could not be used.
    """

    study: Study
    runs: dict[str, dict[str, Any]]
    ablation_points: list[dict[str, Any]]
    endpoints: dict[tuple[str, int], dict[str, Any]]
    validation: dict[str, list[dict[str, Any]]]
    task_scores: dict[str, list[dict[str, Any]]]
    tasks: dict[str, dict[str, Any]] = field(default_factory=dict)
    mmlu: str | None = None
    problems: list[str] = field(default_factory=list)

    @property
    def seeds(self) -> list[int]:
        """Training seeds present."""
        return sorted({row["seed"] for row in self.runs.values()})

    def grid_runs(self, arch: str, sparse: bool = False) -> list[dict[str, Any]]:
        """Return the grid's runs of one architecture, by cell and seed; `sparse` leaves out S = 0."""
        rows = [
            row
            for row in self.runs.values()
            if row["grouping"] == "grid" and row["arch"] == arch and (row["sparsity"] > 0 or not sparse)
        ]
        order = list(self.study.scales)
        return sorted(rows, key=lambda row: (order.index(row["scale"]), row["sparsity"], row["seed"]))

    def scores(self, run: str, horizon: int, metric: str) -> list[dict[str, Any]]:
        """Return a run's rows of `task_scores` at one horizon for the tasks of the registry."""
        return [
            row
            for row in self.task_scores.get(run, ())
            if row["horizon"] == horizon and row["metric"] == metric and row["task"] in self.tasks
        ]

    def horizons(self, run: str) -> list[int]:
        """Return the horizons at which `run` has a usable endpoint."""
        return sorted(horizon for name, horizon in self.endpoints if name == run)


def load_results(study: Study, results: Path | str, partial: bool = False) -> Results:
    """Read `budget/`, `evaluate/*/` and `tasks/tasks.json` under `results`.

    An endpoint without a finite positive loss is left out and named in `problems`, and so is, with `partial`,
    what has not been evaluated in a study under way.

    Raises:
        SmeltError: a file is missing or damaged, or names a run that the study does not have.
    """
    results = Path(results)
    require(results / "budget" / f"{name}.parquet" for name in ("runs", "ablation_points"))
    budget_runs = read_rows(results / "budget" / "runs.parquet")
    seeds = 1 + max((row["seed"] for row in budget_runs), default=0)
    known = run_points(study, seeds=seeds)
    runs = {row["run"]: row for row in budget_runs if row["run"] in known}
    if not runs:
        raise SmeltError(f"{results / 'budget' / 'runs.parquet'} has no run of study {study.name}")
    points = read_rows(results / "budget" / "ablation_points.parquet")
    loaded = Results(study, runs, points, {}, {}, {})
    registry = results / "tasks" / "tasks.json"
    if not partial or registry.exists():
        loaded.tasks, loaded.mmlu = _registry(registry)
    else:
        loaded.problems.append("there is no tasks.json; task by task analyses are left out")
    for run in sorted(runs):
        folder = results / "evaluate" / run
        if not partial or (folder / "endpoints.parquet").exists():
            _load_run(loaded, run, folder)
        else:
            loaded.problems.append(f"run {run} has no evaluation")
    return loaded


def _registry(path: Path) -> tuple[dict[str, dict[str, Any]], str | None]:
    """Return the tasks of `tasks.json` and the name of the one that is MMLU."""
    require([path])
    try:
        raw = read_json(path)
    except SmeltError as error:
        raise SmeltError(f"{error}; {make_anew(path)}") from None
    tasks = raw.get("tasks") if isinstance(raw, dict) else None
    if not isinstance(tasks, dict) or not tasks or "mmlu" not in raw:
        raise SmeltError(f"{path} lacks tasks or mmlu; {make_anew(path)}")
    for name, task in tasks.items():
        if not isinstance(task, dict) or {"kind", "shots", "category", "core"} - task.keys():
            raise SmeltError(f"{path}: tasks.{name} lacks kind, shots, category or core; {make_anew(path)}")
    return tasks, raw["mmlu"]


def _load_run(loaded: Results, run: str, folder: Path) -> None:
    require(folder / f"{name}.parquet" for name in ("endpoints", "validation", "task_scores"))
    for row in read_rows(folder / "endpoints.parquet"):
        if row["run"] != run:
            raise SmeltError(f"{folder / 'endpoints.parquet'} holds run {row['run']!r}; it must be {run!r}")
        if math.isfinite(row["val_loss"]) and row["val_loss"] > 0:
            loaded.endpoints[run, row["horizon"]] = row
        else:
            loaded.problems.append(
                f"run {run} at horizon {row['horizon']} has val_loss {row['val_loss']}; left out"
            )
    loaded.validation[run] = read_rows(folder / "validation.parquet")
    loaded.task_scores[run] = read_rows(folder / "task_scores.parquet")


def listing(items: list[str]) -> str:
    """Return the items as part of a sentence: the first few by name, each once, the rest as a number."""
    items = list(dict.fromkeys(items))
    more = len(items) - NAMED
    return "; ".join(items[:NAMED]) + (f"; and {more} more" if more > 0 else "")


def designs(results: Results) -> tuple[Design, Design, list[str]]:
    """Return the Baseline's and SMELT's sparse endpoints, matched one to one, and what was dropped.

    Losses are means over the training seeds that both members of a pair have. An endpoint whose partner is
    missing is dropped and named.
    """
    table: dict[tuple[str, int], dict[str, list[tuple[float, ...]]]] = {}
    labels: dict[tuple[str, int], tuple[str, str, int]] = {}
    dropped: list[str] = []
    for run, partner, horizon in _candidates(results):
        mine, other = results.runs[run], results.runs[partner]
        key = (mine["cell"], horizon)
        missing = [name for name in (run, partner) if (name, horizon) not in results.endpoints]
        if missing:
            dropped.append(f"{mine['cell']} at horizon {horizon}: no endpoint of {' and '.join(missing)}")
            continue
        labels[key] = (mine["cell"], mine["scale"], mine["sparsity"])
        for arch, row in (("baseline", other), ("smelt", mine)):
            end = results.endpoints[row["run"], horizon]
            values = (row["flops_per_token"], row["sparsity_measured"], end["tokens"], end["val_loss"])
            table.setdefault(key, {}).setdefault(arch, []).append(values)
    return _design(table, labels, "baseline"), _design(table, labels, "smelt"), dropped


def _candidates(results: Results) -> list[tuple[str, str, int]]:
    """Return (looped run, its Baseline, horizon) of every pair of the sparse grid, absent ones included."""
    horizons = results.study.training.horizons
    return [
        (row["run"], row["baseline"], horizon)
        for row in results.grid_runs("smelt", sparse=True)
        for horizon in horizons
        if row["baseline"] in results.runs
    ]


def _design(table: dict, labels: dict, arch: str) -> Design:
    rows = np.array([np.mean(table[key][arch], axis=0) for key in table]).reshape(-1, 4)
    flops, sparsity, tokens, loss = rows.T
    cell = np.array([labels[key][0] for key in table], dtype=str)
    scale = np.array([labels[key][1] for key in table], dtype=str)
    level = np.array([labels[key][2] for key in table], dtype=int)
    return Design(flops, sparsity, tokens, loss, cell, scale, level)
