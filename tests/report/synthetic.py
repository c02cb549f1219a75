"""Invented stage tables in the declared schema, for tests of the database, the figures and the site only.

Losses follow the paper's law (table 6) with the study's FLOPs and tokens moved into its window; everything
else is drawn from a seeded generator around plausible values. Nothing here is ever shown to a user.
"""

from __future__ import annotations

import functools
from pathlib import Path

import numpy as np

from smelt.files import write_json
from smelt.results.parquet import write_table
from smelt.results.schemas import TABLES
from smelt.study import Study, ablation_points, run_points
from smelt.study.geometry import centred_start

LAW = {
    "baseline": (1.4439, 1366.0, 1975000.0, 0.3703, 0.153, 0.6594),
    "smelt": (1.4493, 1963.0, 5264000.0, 0.3892, 0.146, 0.7011),
}
CATEGORIES = ("Code", "Math/STEM", "Knowledge", "Finance", "Web")
TASKS = {
    "boolq": "Reading Comprehension",
    "squad": "Reading Comprehension",
    "jeopardy": "World Knowledge",
    "arc_easy": "World Knowledge",
    "copa": "Commonsense Reasoning",
    "hellaswag": "Language Understanding",
    "bigbench_dyck_languages": "Symbolic Problem Solving",
    "bigbench_operators": "Symbolic Problem Solving",
}
COMPLETION = ("squad", "jeopardy", "bigbench_dyck_languages", "bigbench_operators")
BUDGETS = (1e20, 1e21, 1e22)
STAGES = ("X", "Q", "K", "V", "PV", "O")


_DEFAULTS = {"s": "", "i": 0, "f": 0.0, "b": False}


def _complete(name: str, row: dict) -> dict:
    """Fill columns that no figure reads with NULL or a neutral value."""
    for column in TABLES[name].columns:
        if column.name not in row:
            row[column.name] = None if column.nullable else _DEFAULTS[column.kind]
    return row


class Synthetic:
    """All stage files of `study` under `folder`; `skip` names tables that are left out."""

    def __init__(
        self, study: Study, folder: Path, seeds: int = 1, sources: int = 10, skip: tuple[str, ...] = ()
    ) -> None:
        self.study, self.folder, self.skip = study, Path(folder), skip
        self.random = np.random.default_rng(0)
        self.points = run_points(study, seeds)
        self.grid = [point for point in self.points.values() if point.group == "grid"]
        self.sources = [(f"source{i:02d}", CATEGORIES[i % len(CATEGORIES)]) for i in range(sources)]
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
            "spec_hash": f"hash of {point.run}",
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
                "column": column,
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
        write_json(self.folder / "corpus" / "manifest.json", {"synthetic": True})
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
        write_json(self.folder / folder / "manifest.json", {"run": run["run"], "spec_hash": run["spec_hash"]})
        per_step = training.batch * self.study.corpus.context
        rows = []
        phases = [("trunk", 0, np.linspace(1, training.horizons[-1], 40))]
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

    def _interval(self, value: float, width: float = 0.02) -> dict:
        return {"low": value - width, "high": value + width}

    def _mechanism(self, run: dict) -> None:
        folder = f"mechanism/{run['run']}"
        layers, span = run["layers"], range(run["loop_start"], run["loop_start"] + run["loop_length"])
        visits = [
            (layer, visit)
            for layer in range(layers)
            for visit in range(run["loop_count"] if layer in span else 1)
        ]
        sink = []
        for layer, visit in visits:
            for head in range(run["heads"]):
                mass = float(np.clip(0.6 * (layer + 1) / layers - 0.3 * visit + 0.05 * head, 0, 1))
                row = {"run": run["run"], "layer": layer, "visit": visit, "head": head, "mass": mass}
                sink.append(row | self._interval(mass))
        self._write(folder, "sink", sink)
        self._write(folder, "residual_flow", self._flow(run, visits))
        order = [(layer, 0) for layer in range(span.start)]
        order += [(layer, visit) for visit in range(run["loop_count"]) for layer in span]
        order += [(layer, 0) for layer in range(span.stop, layers)]
        cosine = [
            {
                "run": run["run"],
                "i": i,
                "j": j,
                "layer_i": a[0],
                "visit_i": a[1],
                "layer_j": b[0],
                "visit_j": b[1],
                "cosine": 1.0 if i == j else 0.55 if a[0] == b[0] else 0.15,
                "low": None,
                "high": None,
            }
            for i, a in enumerate(order)
            for j, b in enumerate(order)
        ]
        self._write(folder, "update_cosine", cosine)
        if not span:
            return
        self._visits(run, folder, span)
        self._dyck(run, folder, span)

    def _flow(self, run: dict, visits: list[tuple[int, int]]) -> list[dict]:
        rows = []
        for layer, visit in visits:
            for component in ("stream", "update", "attention", "moe", "norm", "moe_norm"):
                rms = (1 + layer) * (1 if component == "stream" else 0.3) * (1 + 0.5 * visit)
                relative = rms / (1 + layer)
                rows.append(
                    {
                        "run": run["run"],
                        "layer": layer,
                        "visit": visit,
                        "component": component,
                        "rms": rms,
                        **self._interval(rms),
                        "relative": relative,
                        "relative_low": relative - 0.02,
                        "relative_high": relative + 0.02,
                    }
                )
        return rows

    def _visits(self, run: dict, folder: str, span: range) -> None:
        routing, ratios, cosines, overlaps = [], [], [], []
        top_k = run["top_k"]
        for layer in span:
            base = {"run": run["run"], "layer": layer, "visit": 1}
            mean = top_k * (0.9 - 0.6 * run["sparsity"] / 100)
            weight = np.exp(-0.5 * (np.arange(top_k + 1) - mean) ** 2)
            for shared, fraction in enumerate(weight / weight.sum()):
                routing.append(
                    base
                    | {
                        "shared": shared,
                        "fraction": float(fraction),
                        **self._interval(float(fraction)),
                        "chance": 1 / (top_k + 1),
                        "chance_mean": top_k**2 / run["experts"],
                        "chance_low": 0,
                        "chance_high": 2,
                    }
                )
            for component, ratio in (("update", 1.6), ("attention", 1.4), ("moe", 1.9), ("norm", 1.2)):
                ratios.append(base | {"component": component, "ratio": ratio, **self._interval(ratio)})
            for stage, value in zip(STAGES, (0.88, 0.91, 0.92, 0.7, 0.62, 0.57), strict=True):
                cosines.append(base | {"stage": stage, "cosine": value, **self._interval(value)})
            for head in range(run["heads"]):
                for kind, value in (("top1", 0.6), ("top8", 0.62), ("mass", 0.7)):
                    value += 0.02 * head
                    overlaps.append(
                        base
                        | {
                            "head": head,
                            "kind": kind,
                            "value": value,
                            **self._interval(value),
                            "control": 0.3,
                            "control_low": 0.28,
                            "control_high": 0.32,
                            "chance": 0.05,
                        }
                    )
        self._write(folder, "routing_overlap", routing)
        self._write(folder, "norm_ratios", ratios)
        self._write(folder, "visit_cosine", cosines)
        self._write(folder, "token_overlap", overlaps)

    def _dyck(self, run: dict, folder: str, span: range) -> None:
        heads = [
            {
                "run": run["run"],
                "layer": layer,
                "head": head,
                "delta": 0.1 * (layer + head),
                **self._interval(0.1 * (layer + head)),
                "perplexity": 4.0,
                "selected": (layer, head) == (span[-1], run["heads"] - 1),
            }
            for layer in span
            for head in range(run["heads"])
        ]
        self._write(folder, "dyck_heads", heads)
        text = ["<bos>", *"([])", "\n", *"[()]", "\n", *"(("]
        roles = {0: "bos", 3: "demonstration_answer", 4: "demonstration_answer", 8: "demonstration_answer"}
        rows, mass = [], []
        for visit in range(run["loop_count"]):
            for role, first, later in (
                ("bos", 0.6, 0.02),
                ("demonstration_answer", 0.24, 0.85),
                ("query", 0.16, 0.13),
            ):
                value = later if visit else first
                row = {"run": run["run"], "visit": visit, "role": role, "mass": value}
                mass.append(row | self._interval(value))
            for target in range(3):
                for position, token in enumerate(text):
                    role = roles.get(position, "demonstration" if position < 11 else "query")
                    rows.append(
                        {
                            "run": run["run"],
                            "visit": visit,
                            "target": target,
                            "position": position,
                            "mass": {"bos": 0.6, "demonstration_answer": 0.12}.get(role, 0.01) / (1 + visit),
                            "token": token,
                            "role": role,
                            "layer": span[-1],
                            "head": run["heads"] - 1,
                        }
                    )
        self._write(folder, "dyck_map", rows)
        self._write(folder, "dyck_mass", mass)

    def _laws(self) -> None:
        names = ("E", "A", "K", "exp_a", "exp_b", "exp_c")
        fits, draws = [], []
        for arch, values in LAW.items():
            law = dict(zip(names, values, strict=True))
            # The law of the moved losses in the study's own FLOPs and tokens.
            law["A"] /= self.window[0] ** law["exp_a"]
            law["K"] /= self.window[1] ** law["exp_c"]
            rest = {"rmse": 0.006, "n": 72, "converged": True, "note": ""}
            fits.append({"arch": arch, "subset": "all", **law, **rest})
            for draw in range(20):
                row = {name: value * self.random.normal(1, 0.02) for name, value in law.items()}
                draws.append({"arch": arch, "draw": draw, **row, "degenerate": False})
        self._write("laws", "law_fits", fits)
        self._write("laws", "law_draws", draws)
        sparse = [sparsity for sparsity in self.study.sparsities if sparsity]
        gains = [
            {"budget": budget, "sparsity": sparsity, "subset": "all", "gain": 0.15, "low": 0.08, "high": 0.25}
            | {"extrapolated": budget > 1e21}
            for budget in BUDGETS
            for sparsity in sparse
        ]
        self._write("laws", "ce_gain", gains)
        tpp = [
            {"sparsity": sparsity, "arch": arch, "budget": 1e21, "tpp": 70.0, "low": 60.0, "high": 80.0}
            for sparsity in sparse
            for arch in LAW
        ]
        self._write("laws", "tpp", tpp)
        calibration = [
            {"metric": metric, "b": b, "a": a, "alpha": alpha, "tau": 2.0, "direction": direction}
            | {"r2": 0.97, "n": 96}
            for metric, b, a, alpha, direction in (
                ("core", 0.0, 0.3, 4.0, -1),
                ("completion", 0.5, 4.0, 1.2, 1),
                ("mmlu", 0.25, 0.2, 8.0, -1),
            )
        ]
        self._write("laws", "calibration", calibration)
        residuals = [
            {"run": point.run, "horizon": horizon, "metric": metric}
            | {"residual": float(self.random.normal(0.002, 0.004))}
            for point in self.grid
            if point.arch == "smelt"
            for horizon in self.study.training.horizons
            for metric in ("core", "completion", "mmlu")
        ]
        self._write("laws", "residuals", residuals)

    def _claims(self) -> None:
        verdicts = ("reproduced", "contradicted", "inconclusive", "not measured")
        rows = []
        for i in range(1, 23):
            verdict = verdicts[i % 4]
            measured = verdict != "not measured"
            rows.append(
                {
                    "claim": f"C{i}",
                    "statement": f"Synthetic statement {i} <b>with markup</b>.",
                    "paper_value": "16/16",
                    "value": 0.5 if measured else None,
                    "low": 0.4 if measured else None,
                    "high": 0.6 if measured else None,
                    "verdict": verdict,
                    "reason": "Invented for a test.",
                    "number": i,
                    "unit": "share",
                    "component": "all cells",
                    "rule": "Invented for a test.",
                    "scope": "2e9 to 4e12 FLOPs",
                    "power": "",
                }
            )
        self._write("claims", "claims", rows)
