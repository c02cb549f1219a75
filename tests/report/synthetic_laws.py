"""Invented rows of the tables of laws and claims; see `synthetic`."""

from __future__ import annotations

from smelt.study import ablation_points

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
_FAMILIES = ("smelt", "experts", "parameters")


class LawRows:
    """Mixed into `Synthetic`."""

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
        subsets = [f"category:{category}" for category in CATEGORIES]
        subsets += [f"quartile:{i}" for i in range(1, 5)] + [f"source:{name}" for name, _ in self.sources]
        gains += [
            {"budget": 1e21, "sparsity": sparse[len(sparse) // 2], "subset": subset, "extrapolated": False}
            | {"gain": 0.1 + 0.01 * i, "low": 0.05, "high": 0.25}
            for i, subset in enumerate(subsets)
        ]
        self._write("laws", "ce_gain", gains)
        self._write("laws", "ablation_results", self._ablation_rows())
        self._write("laws", "law_contrasts", self._contrast_rows())
        self._crossover_rows()
        self._write("laws", "law_coverage", self._coverage_rows())
        self._write("laws", "law_signs", self._sign_rows())
        self._write("laws", "length_profile", self._length_rows())
        self._shot_rows()
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
            for metric in ("core", "completion", "mmlu", *(f"task:{task}" for task in TASKS))
        ]
        self._write("laws", "residuals", residuals)

    def _ablation_rows(self) -> list[dict]:
        return [
            vars(point)
            | {"effective_layers": self.runs[point.run]["effective_layers"], "seeds": 1}
            | {"val_loss": 2.0 + 0.01 * i, "core": 0.2, "core_se_evaluation": 0.01, "completion": 2.3}
            for i, point in enumerate(ablation_points(self.study))
        ]

    def _contrast_rows(self) -> list[dict]:
        values = {
            f"length_ratio:{name}": value for name, value in zip(_FAMILIES, (1.5, 0.9, 1.0), strict=True)
        }
        rows = [{"contrast": name, "value": value, "unit": "ratio", "n": 8} for name, value in values.items()]
        cells = sorted({point.cell for point in self.points.values() if point.group == "control"})
        gaps = {f"loss_gap:{point.cell}": 0.02 for point in self.grid}
        gaps |= {f"loss_gap_control:{cell}": 0.01 for cell in cells}
        gaps |= {f"loss_gap_best_depth:{cell}": -0.03 for cell in cells[:1]}
        ends = {"low": -0.05, "high": 0.05, "unit": "nats", "n": 1}
        return rows + [{"contrast": name, "value": value, **ends} for name, value in gaps.items()]

    def _crossover_rows(self) -> None:
        curves, places = [], []
        horizons = self.study.training.horizons
        tokens = [1000.0 * 2**i for i in range(len(horizons))]
        for subset in (*(f"scale:{scale}" for scale in self.study.scales), "all"):
            common = {"subset": subset, "cells": 2, "seeds": 1, "basis": "t interval over cells"}
            ends = {"low": -0.05, "high": 0.03} if subset == "all" else {}
            common |= {} if ends else {"basis": ""}
            for i, horizon in enumerate(horizons):
                row = {"horizon": horizon, "tokens": tokens[i], "gap": 0.02 * (i - 0.25)}
                curves.append(common | row | ends)
            row = {"tokens": 1200.0, "window_low": tokens[0], "window_high": tokens[-1], "changes": 1}
            row |= {"ahead_first": False, "ahead_last": True}
            places.append(common | row | ({"low": tokens[0], "high": 1500.0} if ends else {}))
        self._write("laws", "gap_curves", curves)
        self._write("laws", "crossovers", places)

    def _coverage_rows(self) -> list[dict]:
        row = {"truth": 0.15, "median": 0.15, "bias": 0.0, "spread": 0.03, "coverage": 0.85, "factor": 1.4}
        row |= {"positive": 0.99, "repeats": 100, "draws": 200}
        return [
            {"design": "study", "noise": noise, "quantity": quantity} | row
            for noise in ("independent", "cell")
            for quantity in ("exponent:a", "exponent:c")
        ]

    def _sign_rows(self) -> list[dict]:
        row = {"printed": 0.02, "spread": 0.03, "right": 0.7, "p_value": 0.4, "repeats": 200}
        return [{"exponent": name, "noise": "cell"} | row for name in "abc"]

    def _length_rows(self) -> list[dict]:
        buckets = [2**i for i in range(5, 13) if 2**i <= self.study.corpus.context] or [32]
        return [
            {"family": family, "bucket": bucket, "improvement": 0.01, "contrasts": 8, "excluded": 0}
            | {"normalised": 1 + tilt * (i - len(buckets) / 2), "low": 0.8, "high": 1.2}
            for family, tilt in zip(_FAMILIES, (0.1, -0.05, 0.0), strict=True)
            for i, bucket in enumerate(buckets)
        ]

    def _shot_rows(self) -> None:
        curves = []
        for task in (*TASKS, "mean"):
            for arch, base in (("baseline", 0.3), ("smelt", 0.31)):
                for shots in self.study.evaluation.shots:
                    value = base + 0.02 * shots**0.5
                    row = {
                        "arch": arch,
                        "task": task,
                        "shots": shots,
                        "accuracy": value,
                        "seeds": 2,
                        "cells": 8,
                    }
                    curves.append(row | {"low": value - 0.01, "high": value + 0.01})
        self._write("laws", "shot_curves", curves)
        tests = [
            {"task": task, "shots": 8, "gain": 0.01, "p_value": 0.03, "p_holm": 0.2, "smallest_p": 0.002}
            | {"seeds": 10, "significant": i % 2 == 0}
            for i, task in enumerate(TASKS)
        ]
        self._write("laws", "shot_tests", tests)

    def _claims(self) -> None:
        verdicts = ("reproduced", "contradicted", "inconclusive", "not measured")
        rows = []
        for i in range(1, 23):
            verdict = verdicts[i % 4]
            measured = verdict != "not measured"
            rows.append(
                {
                    "claim": f"C{i}",
                    "statement": f"Synthetic statement {i} <b>with markup</b>",
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
                    "scope": "An invented study of 2e9 to 4e12 FLOPs.",
                    "power": "",
                }
            )
        self._write("claims", "claims", rows)
