"""Invented stage tables in the declared schema, for tests of the database, the figures and the site only.

Losses follow the paper's law (table 6) with the study's FLOPs and tokens moved into its window; everything
else is drawn from a seeded generator around plausible values. Nothing here is ever shown to a user.
"""

from __future__ import annotations

import functools
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from smelt.budget import resolve_run
from smelt.files import sha256_file, write_json
from smelt.results.parquet import write_table
from smelt.results.schemas import TABLES
from smelt.results.stages import stage_files
from smelt.study import Study, ablation_points, run_points
from smelt.study.geometry import centred_start
from tests.report.synthetic_laws import CATEGORIES, COMPLETION, LAW, TASKS, LawRows
from tests.report.synthetic_mechanism import MechanismRows

_DEFAULTS = {"s": "", "i": 0, "f": 0.0, "b": False}


def _complete(name: str, row: dict) -> dict:
    """Fill columns that no figure reads with NULL or a neutral value."""
    for column in TABLES[name].columns:
        if column.name not in row:
            row[column.name] = None if column.nullable else _DEFAULTS[column.kind]
    return row


class Synthetic(MechanismRows, LawRows):
    """All stage files of `study` under `folder`; `skip` names tables that are left out."""

    def __init__(
        self,
        study: Study,
        folder: Path,
        seeds: int = 1,
        sources: int = 10,
        skip: tuple[str, ...] = (),
        log_points: int = 120,
    ) -> None:
        self.study, self.folder, self.skip, self.log_points = study, Path(folder), skip, log_points
        self.random = np.random.default_rng(0)
        self.points = run_points(study, seeds)
        self.grid = [point for point in self.points.values() if point.group == "grid"]
        self.sources = [(f"source{i:02d}", CATEGORIES[i % len(CATEGORIES)]) for i in range(sources)]
        self.specs = {run: resolve_run(study, run) for run in self.points}
        self.runs = {point.run: self._run(point) for point in self.points.values()}

    @functools.cached_property
    def window(self) -> tuple[float, float]:
        """Factors that move the study's FLOPs per token and tokens to the middle of the paper's."""
        grid = [run["flops_per_token"] for run in self.runs.values() if run["grouping"] == "grid"]
        horizons = self.study.training.horizons
        middle = self._tokens(horizons[len(horizons) // 2])
        return 1.3e9 / float(np.exp(np.mean(np.log(grid)))), 6e10 / middle

    def write(self) -> Path:
        """Write every table and return the results folder."""
        self._budget()
        self._corpus()
        for run in self.runs.values():
            self._train(run)
            self._evaluate(run)
            if run["grouping"] == "grid":
                self._mechanism(run)
        self._laws()
        self._claims()
        self._benchmarks()
        # What no figure reads is there, but empty.
        for path in stage_files(self.folder, self.runs, [point.run for point in self.grid]):
            if path.stem not in self.skip and not path.exists():
                write_table(path.parent, path.stem, [])
        return self.folder

    def _write(self, folder: str, name: str, rows: list[dict]) -> None:
        if name not in self.skip:
            write_table(self.folder / folder, name, [_complete(name, row) for row in rows])

    def _run(self, point) -> dict:
        scale = self.study.scales[point.scale]
        looped = point.loop_count > 1
        experts = self.study.sparsities[point.sparsity]
        hidden = scale.hidden
        effective = point.layers + (point.loop_count - 1) * point.loop_length
        width = scale.heads * scale.head_dim + scale.kv_heads * scale.head_dim
        parts = {
            "attention": point.layers * 2 * hidden * width,
            "experts": point.layers * experts * 3 * hidden * scale.expert_dim,
            "router": point.layers * hidden * experts,
            "norms": point.layers * 2 * hidden,
        }
        active = parts["attention"] + self.study.model.top_k * parts["experts"] // experts
        return {
            "run": point.run,
            "cell": point.cell,
            "scale": point.scale,
            "sparsity": point.sparsity,
            "arch": point.arch,
            "grouping": point.group,
            "seed": point.seed,
            "baseline": point.baseline,
            "spec_hash": self.specs[point.run].spec_hash,
            "hidden": hidden,
            "layers": point.layers,
            "effective_layers": effective,
            "loop_start": centred_start(point.layers, point.loop_length) if looped else 0,
            "loop_length": point.loop_length,
            "loop_count": point.loop_count,
            "loop_order": "block",
            "heads": scale.heads,
            "kv_heads": scale.kv_heads,
            "head_dim": scale.head_dim,
            "experts": experts * 3 // 2 if looped else experts,
            "top_k": self.study.model.top_k,
            "expert_dim": scale.expert_dim,
            "params_total": sum(parts.values()),
            "params_active": active,
            **{f"params_{name}": value for name, value in parts.items()},
            "flops_per_token": 6.0 * active * (1.02 if looped else 1.0),
            "kv_bytes_per_token": 2 * 2 * effective * scale.kv_heads * scale.head_dim,
            "sparsity_measured": max(0.0, 1 - active / sum(parts.values())),
            "sparsity_own_control": None,
            "lr": self.study.training.lr,
            "tokens_planned": self._tokens(self.study.training.horizons[-1]),
        }

    def _tokens(self, horizon: int) -> int:
        training = self.study.training
        return (horizon + training.decay_steps) * training.batch * self.study.corpus.context

    def _budget(self) -> None:
        runs = list(self.runs.values())
        self._write("budget", "runs", runs)
        pairs = [
            {
                "run": run["run"],
                "cell": run["cell"],
                "baseline": run["baseline"],
                "flops_ratio": 1.02,
                "params_ratio": 1.003,
                "kv_ratio": 0.98,
                "source": "solver",
            }
            for run in runs
            if run["baseline"]
        ]
        self._write("budget", "pairs", pairs)
        self._write("budget", "ablation_points", [vars(point) for point in ablation_points(self.study)])
        power = [
            {
                "cell": f"{scale}-s{sparsity}",
                "horizon": horizon,
                "flops": 1e19 * (i + 1),
                "tokens": 1e10 * (i + 1),
                "gap_predicted": -0.002 * (i + 1),
                "in_window": i > 0,
            }
            for scale in self.study.scales
            for sparsity in self.study.sparsities
            for i, horizon in enumerate(self.study.training.horizons)
        ]
        self._write("budget", "power", power)
        published = [
            {
                "scale": "200M",
                "sparsity": sparsity,
                "arch": arch,
                "quantity": column,
                "printed": printed,
                "ours": printed * 1.001 if (sparsity, arch) != (0, "smelt") else None,
                "difference": printed * 0.001 if (sparsity, arch) != (0, "smelt") else None,
            }
            for sparsity in (0, 95)
            for arch in ("baseline", "smelt")
            for column, printed in (("active_params_b", 0.209), ("total_params_b", 3.87), ("kv_ratio", 1.031))
        ]
        self._write("budget", "published_configs", published)

    def _corpus(self) -> None:
        self._documents()
        rows = [
            {
                "source": source,
                "category": category,
                "licence": "CC0 <test>",
                "documents": 100,
                "train_tokens": 1_000_000,
                "validation_tokens": 20_000,
                "bytes": 4_000_000,
                "bytes_per_token": 4.0,
                "repeated_8grams": 0.01,
                "sha256": "0" * 64,
            }
            for source, category in self.sources
        ]
        self._write("corpus", "corpus_sources", rows)

    def _documents(self) -> None:
        """The corpus's index with 80 documents a source, a quarter of them held out, and its manifest."""
        columns = {name: [] for name in ("source", "category", "split", "tokens")}
        for source, category in self.sources:
            tokens = np.exp(self.random.normal(5.5, 1.5, 80)).astype(int) + 2
            columns["source"] += 80 * [source]
            columns["category"] += 80 * [category]
            columns["split"] += 20 * ["validation"] + 45 * ["trunk"] + 15 * ["decay"]
            columns["tokens"] += tokens.tolist()
        folder = self.folder / "corpus"
        folder.mkdir(parents=True, exist_ok=True)
        pq.write_table(pa.table(columns), folder / "documents.parquet")
        files = {"documents.parquet": sha256_file(folder / "documents.parquet"), "tokenizer.json": "0" * 64}
        sizes = {"vocab": 256, "bos": 0, "pad": 1, "context": 128, "attended_context": 64.0}
        splits = {"validation": 1, "trunk": 1, "decay": 1}
        rest = {"format": 1, "set": "synthetic", "shards": [], "splits": splits, "files": files}
        write_json(folder / "manifest.json", sizes | rest)

    def _benchmarks(self) -> None:
        """Snakemake's records: a job of evaluation takes a second, the corpus two on four cores."""
        folder = self.folder / "benchmarks"
        single = {"budget_tables": 1, "corpus_build": 2, "tasks": 1, "laws_fit": 3, "claims": 1}
        for stage, seconds in single.items():
            write_json(folder / f"{stage}.jsonl", {"s": seconds, "threads": 4 if seconds == 2 else 1})
        for run in self.runs.values():
            stages = ["train_run", "evaluate_run"] + ["mechanism_run"] * (run["grouping"] == "grid")
            for stage in stages:
                write_json(folder / stage / f"{run['run']}.jsonl", {"s": 1.0, "threads": 1})

    def _loss(self, run: dict, tokens: float) -> float:
        """The paper's law at the study's place in the paper's window."""
        flops_factor, tokens_factor = self.window
        flops, data = run["flops_per_token"] * flops_factor, tokens * tokens_factor
        e, a_, k, a, b, c = LAW["baseline" if run["arch"] in ("baseline", "control") else "smelt"]
        sparsity = 1 - run["top_k"] / self.study.sparsities[run["sparsity"]]
        shift = 0.002 * abs(run["layers"] - self.study.scales[run["scale"]].layers)
        return e + a_ * (1 - sparsity) ** b / flops**a + k / data**c + shift

    def _train(self, run: dict) -> None:
        folder, training = f"runs/{run['run']}", self.study.training
        write_json(self.folder / folder / "spec.json", self.specs[run["run"]].to_dict())
        endpoints = [
            {
                "horizon": horizon,
                "step": horizon + training.decay_steps,
                "tokens": self._tokens(horizon),
                "flops": self._tokens(horizon) * run["flops_per_token"],
                "weights": f"endpoints/h{horizon}.safetensors",
                "sha256": "0" * 64,
            }
            for horizon in training.horizons
        ]
        manifest = {"run": run["run"], "spec_hash": run["spec_hash"], "corpus": "0" * 64}
        write_json(self.folder / folder / "manifest.json", {**manifest, "endpoints": endpoints})
        per_step = training.batch * self.study.corpus.context
        rows = []
        phases = [("trunk", 0, np.geomspace(1, training.horizons[-1], self.log_points))]
        phases += [
            ("decay", horizon, np.linspace(horizon + 1, horizon + training.decay_steps, 8))
            for horizon in training.horizons
        ]
        for phase, horizon, steps in phases:
            for step in sorted({int(step) for step in steps}):
                tokens = step * per_step
                lift = 0.15 if phase == "trunk" else 0.15 * (1 - (step - horizon) / training.decay_steps)
                loss = self._loss(run, tokens + per_step) + lift + self.random.normal(0, 0.01)
                rows.append(
                    {
                        "run": run["run"],
                        "phase": phase,
                        "horizon": horizon,
                        "step": step,
                        "tokens": tokens,
                        "flops": tokens * run["flops_per_token"],
                        "loss": loss,
                        "lr": training.lr,
                        "grad_norm": 1.0,
                        "balance_loss": 1.0,
                        "load_min": 0.5,
                        "load_max": 2.0,
                        "tokens_per_s": 1000.0,
                    }
                )
        self._write(folder, "train_log", rows)
        speed = [
            {
                "run": run["run"],
                "phase": phase,
                "tokens_per_s": 1000.0 / run["effective_layers"],
                "mfu": None,
                "device": "cpu (synthetic)",
                "seconds": 10.0,
            }
            for phase in ("trunk", "decay")
        ]
        self._write(folder, "throughput", speed)

    def _evaluate(self, run: dict) -> None:
        folder, evaluation = f"evaluate/{run['run']}", self.study.evaluation
        endpoints, validation, scores = [], [], []
        buckets = [2**i for i in range(5, 13) if 2**i <= self.study.corpus.context] or [32]
        for i, horizon in enumerate(self.study.training.horizons):
            tokens = self._tokens(horizon)
            loss = self._loss(run, tokens) + self.random.normal(0, 0.004)
            core = 30 / (1 + np.exp(4 * (loss - 2.1))) + self.random.normal(0, 0.5)
            endpoints.append(
                {
                    "run": run["run"],
                    "horizon": horizon,
                    "tokens": tokens,
                    "flops": tokens * run["flops_per_token"],
                    "val_loss": loss,
                    "suite": evaluation.suite,
                    "core": core / 100,
                    "completion": loss * 1.15,
                    "mmlu": 0.25 + 0.2 / (1 + np.exp(8 * (loss - 1.9))),
                    "baseline_version": "v2",
                }
            )
            for j, (source, category) in enumerate(self.sources):
                for k, bucket in enumerate(buckets):
                    mean = loss + 0.1 * (j - len(self.sources) / 2) / len(self.sources) - 0.05 * k
                    validation.append(
                        {
                            "run": run["run"],
                            "horizon": horizon,
                            "source": source,
                            "category": category,
                            "length_bucket": bucket,
                            "tokens": 1000,
                            "loss_sum": 1000 * mean,
                            "documents": 1000 // bucket + 1,
                        }
                    )
            last = i == len(self.study.training.horizons) - 1
            scores += self._scores(run, horizon, loss, evaluation.shots if last else evaluation.shots[-1:])
        self._write(folder, "endpoints", endpoints)
        self._write(folder, "validation", validation)
        self._write(folder, "task_scores", scores)

    def _scores(self, run: dict, horizon: int, loss: float, shots: tuple[int, ...]) -> list[dict]:
        rows = []
        for task, category in TASKS.items():
            for shot in shots:
                for seed in range(self.study.evaluation.seeds):
                    chance = 0.0 if task in COMPLETION else 0.25
                    score = chance + 0.05 * np.log1p(shot) / loss + self.random.normal(0.1, 0.01)
                    metrics = {"accuracy": score}
                    if task in COMPLETION:
                        metrics["loss"] = loss * 1.2
                    rows += [
                        {
                            "run": run["run"],
                            "horizon": horizon,
                            "task": task,
                            "shots": shot,
                            "seed": seed,
                            "metric": metric,
                            "category": category,
                            "value": value,
                            "n": 100,
                            "chance": chance if metric == "accuracy" else None,
                        }
                        for metric, value in metrics.items()
                    ]
        return rows
