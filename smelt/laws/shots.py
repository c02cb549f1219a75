"""Accuracy against the number of demonstrations (figures 11b, 11c and 24), with paired permutation tests."""

from __future__ import annotations

import itertools
from collections import defaultdict
from typing import Any

import numpy as np
from scipy.stats import t as student

from smelt.laws.inputs import Results
from smelt.laws.noise import Ends, contrast, t_ends

# Fewer cells or tasks than this give no interval worth printing.
MIN_UNITS = 3
# Up to this many evaluation seeds all sign patterns are enumerated, beyond it as many are drawn.
EXACT_SEEDS = 12
LEVEL = 0.05
MEAN = "mean"
GAP_BASIS = "t interval, variances over cells and over tasks added; evaluation seeds averaged"
DYCK_BASIS = "t interval over cells; evaluation seeds averaged"

# accuracy by arch, cell, evaluation seed for one (task, shots)
Scores = dict[tuple[str, int], dict[str, dict[str, dict[int, float]]]]


def shot_tables(results: Results) -> dict[str, list[dict[str, Any]]]:
    """Return `shot_curves`, `shot_tests` and the contrasts of C14 and C15, all at the last horizon."""
    scores = _paired_scores(results)
    tasks = sorted({task for task, _ in scores if results.tasks[task]["shots"] > 0})
    if not tasks:
        reason = "no few-shot task was scored with both members of a pair"
        notes = [
            {"analysis": name, "ok": False, "reason": reason}
            for name in ("icl_gap", "icl_growth", "dyck_gap")
        ]
        return {"law_notes": notes}
    curves = []
    counts = [k for k in results.study.evaluation.shots if all((task, k) in scores for task in tasks)]
    for task in tasks:
        shots = sorted(k for name, k in scores if name == task)
        curves.extend(_curve(task, k, [scores[task, k]]) for k in shots)
    curves.extend(_curve(MEAN, k, [scores[task, k] for task in tasks]) for k in counts)
    gap_rows, gap_notes = _gaps(scores, tasks, counts)
    dyck_rows, dyck_notes = _dyck(scores, tasks)
    return {
        "shot_curves": list(itertools.chain.from_iterable(curves)),
        "shot_tests": _tests(scores, tasks),
        "law_contrasts": gap_rows + dyck_rows,
        "law_notes": gap_notes + dyck_notes,
    }


def _paired_scores(results: Results) -> Scores:
    """Return accuracies of pairs that are complete, averaged over training seeds."""
    last = results.study.training.horizons[-1]
    sums: dict = defaultdict(lambda: defaultdict(lambda: defaultdict(lambda: defaultdict(list))))
    for row in results.grid_runs("smelt"):
        sides = {"smelt": row["run"], "baseline": row["baseline"]}
        values = {
            arch: {
                (r["task"], r["shots"], r["seed"]): r["value"] for r in results.scores(run, last, "accuracy")
            }
            for arch, run in sides.items()
        }
        for key in sorted(values["smelt"].keys() & values["baseline"].keys()):
            task, shots, seed = key
            for arch, mine in values.items():
                sums[task, shots][arch][row["cell"]][seed].append(mine[key])
    return {
        key: {
            arch: {cell: {s: float(np.mean(v)) for s, v in seeds.items()} for cell, seeds in cells.items()}
            for arch, cells in archs.items()
        }
        for key, archs in sums.items()
    }


def _by_seed(parts: list[dict], arch: str) -> np.ndarray:
    """Return the mean over tasks and cells for each evaluation seed that all of them have."""
    seeds = set.intersection(*({*s} for part in parts for s in part[arch].values()))
    return np.array(
        [np.mean([cell[seed] for part in parts for cell in part[arch].values()]) for seed in sorted(seeds)]
    )


def _curve(task: str, shots: int, parts: list[dict]) -> list[dict[str, Any]]:
    rows = []
    for arch in ("baseline", "smelt"):
        values = _by_seed(parts, arch)
        row = {"arch": arch, "task": task, "shots": shots, "low": None, "high": None, "seeds": len(values)}
        cells = [seeds for part in parts for seeds in part[arch].values()]
        row["accuracy"] = float(np.mean([np.mean(list(seeds.values())) for seeds in cells]))
        row["cells"] = len(parts[0][arch])
        if len(values) > 1:
            arm = student.ppf(0.975, len(values) - 1) * values.std(ddof=1) / np.sqrt(len(values))
            row |= {"low": row["accuracy"] - float(arm), "high": row["accuracy"] + float(arm)}
        rows.append(row)
    return rows


def permutation_p(differences: np.ndarray) -> float:
    """Return the two-sided p-value of paired differences under exchange of the pair's members.

    With n seeds all 2^n sign patterns are enumerated up to n = 12, so no p-value is below 2^(1-n).
    """
    n = len(differences)
    if n <= EXACT_SEEDS:
        signs = np.array(list(itertools.product((1.0, -1.0), repeat=n)))
    else:
        signs = np.random.default_rng(0).choice((1.0, -1.0), size=(1 << EXACT_SEEDS, n))
        signs[0] = 1.0
    sums = np.abs(signs @ differences)
    return float(np.mean(sums >= sums[0] * (1 - 1e-12)))


def holm(p_values: list[float]) -> list[float]:
    """Return the p-values adjusted for multiple tests by Holm's step-down method."""
    order = np.argsort(p_values, kind="stable")
    adjusted, running = [0.0] * len(p_values), 0.0
    for rank, index in enumerate(order):
        running = max(running, min(1.0, (len(p_values) - rank) * p_values[index]))
        adjusted[index] = running
    return adjusted


def _tests(scores: Scores, tasks: list[str]) -> list[dict[str, Any]]:
    """Return one row a task at its largest number of demonstrations (figure 24)."""
    rows = []
    for task in tasks:
        shots = max(k for name, k in scores if name == task)
        part = scores[task, shots]
        differences = _by_seed([part], "smelt") - _by_seed([part], "baseline")
        if not len(differences):
            continue
        row = {"task": task, "shots": shots, "gain": float(differences.mean()), "seeds": len(differences)}
        rows.append(
            row | {"p_value": permutation_p(differences), "smallest_p": 2.0 ** (1 - len(differences))}
        )
    for row, adjusted in zip(rows, holm([row["p_value"] for row in rows]), strict=True):
        row |= {"p_holm": adjusted, "significant": row["p_value"] < LEVEL and row["gain"] > 0}
    return rows


def _gap_matrix(scores: Scores, tasks: list[str], shots: int) -> np.ndarray:
    """Return SMELT minus Baseline by task and cell [t, c], evaluation seeds averaged."""
    cells = sorted(set.intersection(*(set(scores[task, shots]["smelt"]) for task in tasks)))

    def mean(task: str, arch: str, cell: str) -> float:
        return float(np.mean(list(scores[task, shots][arch][cell].values())))

    return np.array([[mean(t, "smelt", c) - mean(t, "baseline", c) for c in cells] for t in tasks])


def _gaps(scores: Scores, tasks: list[str], counts: list[int]) -> tuple[list[dict], list[dict]]:
    some = [k for k in counts if k > 0]
    if 0 not in counts or not some:
        reason = "the study does not score its few-shot tasks both with and without demonstrations"
        return [], [{"analysis": name, "ok": False, "reason": reason} for name in ("icl_gap", "icl_growth")]
    none_tc = _gap_matrix(scores, tasks, 0)
    some_tc = np.mean([_gap_matrix(scores, tasks, k) for k in some], axis=0)
    rows = []
    for name, gap_tc in (
        ("icl_gap:0", none_tc),
        ("icl_gap:shots", some_tc),
        ("icl_growth", some_tc - none_tc),
    ):
        ends = _mean_ends([gap_tc.mean(axis=0), gap_tc.mean(axis=1)])
        rows.append(contrast(name, float(gap_tc.mean()), ends, "accuracy", gap_tc.size, GAP_BASIS))
    return rows, [{"analysis": name, "ok": True, "reason": ""} for name in ("icl_gap", "icl_growth")]


def _mean_ends(ways: list[np.ndarray]) -> Ends:
    """Return the t interval of a mean that was taken over units in one or two ways.

    The variances of the mean over both kinds of unit add up (what is special to a cell and a task is counted
    twice: rather too wide), with the fewer degrees of freedom. A percentile bootstrap of three or four units
    would miss the truth two to five times as often as it says.
    """
    if min(len(units) for units in ways) < MIN_UNITS:
        return Ends()
    error = np.sqrt(sum(units.var(ddof=1) / len(units) for units in ways))
    return t_ends(float(ways[0].mean()), float(error), min(len(units) for units in ways) - 1)


def _dyck(scores: Scores, tasks: list[str]) -> tuple[list[dict], list[dict]]:
    names = [task for task in tasks if "dyck" in task]
    if not names:
        return [], [{"analysis": "dyck_gap", "ok": False, "reason": "the suite has no few-shot Dyck task"}]
    shots = max(k for name, k in scores if name == names[0])
    gap_c = _gap_matrix(scores, names[:1], shots)[0]
    ends = _mean_ends([gap_c])
    row = contrast(f"dyck_gap:{shots}", float(gap_c.mean()), ends, "accuracy", len(gap_c), DYCK_BASIS)
    return [row], [{"analysis": "dyck_gap", "ok": True, "reason": ""}]
