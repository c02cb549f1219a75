"""Result folders written from known surfaces, so that every analysis has a right answer."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from smelt.files import write_json
from smelt.laws import published_surface
from smelt.results.parquet import write_table
from smelt.results.schemas import TABLES
from smelt.study import ablation_points, load_study, run_points

STUDIES = Path(__file__).parent / "studies"
CATEGORIES = ("Code", "Finance", "Knowledge", "Math/STEM", "Web")
BUCKETS = (32, 64, 128, 256, 512, 1024, 2048, 4096)
# Compute of the four scales of the paper (section 3), S as measured there, D of its six horizons.
FLOPS = {"A": 6.3e8, "B": 1.33e9, "C": 4.4e9, "D": 1.03e10}
SPARSITY = {0: 0.0, 85: 0.85, 95: 0.95, 97: 0.97}
TOKENS = {60: 2.05e10, 120: 3.1e10, 200: 6.2e10, 300: 1.15e11, 400: 1.67e11, 500: 2.16e11}
SOURCES = 6
# name: (kind, demonstrations, category, chance)
TASKS = {
    "dyck": ("language_modeling", 4, "symbolic problem solving", 0.0),
    "copy": ("language_modeling", 4, "symbolic problem solving", 0.0),
    "facts": ("multiple_choice", 4, "world knowledge", 0.25),
    "which": ("multiple_choice", 0, "language understanding", 0.25),
}
_EMPTY = {"s": "", "i": 1, "f": 1.0, "b": False}


def row_of(table: str, **values):
    """Return a full row of a table: the given values, neutral ones elsewhere."""
    row = {column.name: None if column.nullable else _EMPTY[column.kind] for column in TABLES[table].columns}
    unknown = values.keys() - row.keys()
    assert not unknown, unknown
    return row | values


class Lab:
    """Writes R/budget, R/tasks and R/evaluate of a study whose losses follow the surfaces of table 6."""

    evaluation_seeds = 2

    def __init__(self, folder, study="grid", noise=0.0, seeds=1, law=None):
        self.folder, self.study, self.seeds = folder, load_study(str(STUDIES / f"{study}.yaml")), seeds
        self.rng, self.noise = np.random.default_rng(7), noise
        self.law = law or {arch: published_surface(arch)[0] for arch in ("baseline", "smelt")}
        self.points = run_points(self.study, seeds=seeds)
        scales = list(self.study.scales)
        self.flops = {scale: list(FLOPS.values())[i] for i, scale in enumerate(scales)}
        horizons = self.study.training.horizons
        self.tokens = {h: list(TOKENS.values())[i] for i, h in enumerate(horizons)}

    def loss(self, run, horizon):
        point = self.points[run]
        law = self.law["smelt" if point.loop_count > 1 else "baseline"]
        return float(law.loss(self.flops[point.scale], SPARSITY[point.sparsity], self.tokens[horizon]))

    def write(self, skip=(), losses=None, scores=None):
        """Write all tables but those of the runs in `skip`; `losses` overrides (run, horizon)."""
        rows = []
        for run, point in self.points.items():
            row = row_of("runs", run=run, cell=point.cell, scale=point.scale, sparsity=point.sparsity)
            row |= {"arch": point.arch, "grouping": point.group, "seed": point.seed}
            row |= {"baseline": point.baseline, "flops_per_token": self.flops[point.scale]}
            row |= {"sparsity_measured": SPARSITY[point.sparsity], "layers": point.layers}
            row |= {"loop_length": point.loop_length, "loop_count": point.loop_count}
            row["effective_layers"] = point.layers + (point.loop_count - 1) * point.loop_length
            rows.append(row)
        write_table(self.folder / "budget", "runs", rows)
        points = [row.__dict__ for row in ablation_points(self.study)]
        write_table(self.folder / "budget", "ablation_points", points)
        tasks = {
            name: {"kind": kind, "shots": shots, "category": category, "chance": chance, "core": True}
            for name, (kind, shots, category, chance) in TASKS.items()
        }
        write_json(self.folder / "tasks" / "tasks.json", {"tasks": tasks, "mmlu": None, "long": ["dyck"]})
        for run in self.points:
            if run not in skip:
                self.write_run(run, losses or {}, scores or self.scores)
        return self

    def bucket_loss(self, run, loss, bucket):
        """Loss of one length bucket; subclasses bend it."""
        return loss

    def accuracy(self, run, task, shots, seed, loss):
        """Accuracy of one setting."""
        return float(np.clip(0.9 - 0.3 * loss + 0.02 * np.log2(1 + shots) + 0.002 * seed, 0, 1))

    def scores(self, run, horizon, loss):
        """Rows of task_scores: standard settings everywhere, the sweep at the last horizon."""
        rows = []
        last = self.study.training.horizons[-1]
        for task, (_, standard, category, chance) in TASKS.items():
            counts = {standard} | (
                set(self.study.evaluation.shots) if horizon == last and standard else set()
            )
            for shots in sorted(counts):
                for seed in range(self.evaluation_seeds if shots else 1):
                    row = row_of("task_scores", run=run, horizon=horizon, task=task, shots=shots, seed=seed)
                    value = self.accuracy(run, task, shots, seed, loss)
                    row |= {"metric": "accuracy", "category": category, "value": value, "chance": chance}
                    rows.append(row)
        return rows

    def write_run(self, run, losses, scores):
        endpoints, validation, tasks = [], [], []
        for horizon, tokens in self.tokens.items():
            loss = losses.get((run, horizon), self.loss(run, horizon) + self.noise * self.rng.normal())
            core = 0.6 / (1 + np.exp(6 * (loss - 1.8)))
            row = row_of("endpoints", run=run, horizon=horizon, tokens=int(tokens), val_loss=loss)
            row |= {"flops": self.flops[self.points[run].scale] * tokens, "suite": "local"}
            endpoints.append(row | {"core": core, "completion": 1.2 + 0.5 * loss})
            # Lengths matter at the last horizon only; fewer rows keep the tests fast.
            buckets = BUCKETS if horizon == self.study.training.horizons[-1] else BUCKETS[-1:]
            for i in range(SOURCES):
                for bucket in buckets:
                    row = row_of("validation", run=run, horizon=horizon, source=f"s{i}")
                    total = 1000 * (self.bucket_loss(run, loss, bucket) + 0.05 * i)
                    row |= {"category": CATEGORIES[i % 5], "length_bucket": bucket, "tokens": 1000}
                    validation.append(row | {"loss_sum": total, "documents": 5})
            tasks.extend(scores(run, horizon, loss))
        folder = self.folder / "evaluate" / run
        write_table(folder, "endpoints", endpoints)
        write_table(folder, "validation", validation)
        write_table(folder, "task_scores", tasks)


@pytest.fixture
def lab(tmp_path):
    return lambda *args, **kwargs: Lab(tmp_path, *args, **kwargs)
