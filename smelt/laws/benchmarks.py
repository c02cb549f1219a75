"""Calibration of benchmarks against validation loss and the residuals from it (figures 8 and 9)."""

from __future__ import annotations

from collections import defaultdict
from typing import Any

import numpy as np

from smelt.errors import SmeltError
from smelt.laws.bootstrap import label_weights
from smelt.laws.calibration import DIRECTIONS, Sigmoid, fit_sigmoid, refit_sigmoid
from smelt.laws.inputs import ARCHS, Results
from smelt.laws.noise import Ends, contrast, t_ends

# (run, horizon, validation loss, value)
Point = tuple[str, int, float, float]
BASIS = "t interval over the cells of the scale, with the curve's own error by refits on resampled cells"
DRAWS = 200
SEED = 0


def calibration_tables(results: Results) -> dict[str, list[dict[str, Any]]]:
    """Return `calibration`, `residuals`, the contrasts of C11 and notes.

    One sigmoid for each of Completion, Core and MMLU and one a task (`task:<name>`, accuracy), fitted on the
    Baseline endpoints of the grid.
    """
    tables: dict[str, list[dict[str, Any]]] = defaultdict(list)
    for metric, direction in DIRECTIONS.items():
        points = {arch: _suite_points(results, arch, metric) for arch in ARCHS}
        curve = _one_metric(tables, metric, direction, points, f"calibration:{metric}")
        if curve is not None:
            tables["law_contrasts"].extend(_scale_means(results, metric, curve, points))
    for task in sorted(results.tasks):
        points = {arch: _task_points(results, arch, task) for arch in ARCHS}
        _one_metric(tables, f"task:{task}", -1, points, f"calibration:task:{task}")
    measured = bool(tables["law_contrasts"])
    reason = "" if measured else "no benchmark could be calibrated"
    tables["law_notes"].append({"analysis": "residual", "ok": measured, "reason": reason})
    return dict(tables)


def _one_metric(
    tables: dict[str, list[dict[str, Any]]],
    metric: str,
    direction: int,
    points: dict[str, list[Point]],
    analysis: str,
) -> Sigmoid | None:
    """Fit one curve into `tables` with its residuals; return it, or None where it cannot be fitted."""
    try:
        if not points["baseline"]:
            raise SmeltError("no Baseline endpoint has this score")
        curve = fit_sigmoid(*_columns(points["baseline"]), direction)
    except SmeltError as error:
        tables["law_notes"].append({"analysis": analysis, "ok": False, "reason": str(error)})
        return None
    tables["law_notes"].append({"analysis": analysis, "ok": not curve.note, "reason": curve.note})
    tables["calibration"].append({"metric": metric} | curve.__dict__)
    tables["residuals"].extend(_residual_rows(metric, curve, points["baseline"] + points["smelt"]))
    return curve


def _columns(points: list[Point]) -> tuple[np.ndarray, np.ndarray]:
    """Return loss [n] and value [n] of the points."""
    return np.array([point[2] for point in points]), np.array([point[3] for point in points])


def _residual_rows(metric: str, curve: Sigmoid, points: list[Point]) -> list[dict[str, Any]]:
    return [
        {"run": run, "horizon": horizon, "metric": metric, "residual": float(curve.residual(loss, value))}
        for run, horizon, loss, value in points
    ]


def _suite_points(results: Results, arch: str, metric: str) -> list[Point]:
    points = []
    for row in results.grid_runs(arch):
        for horizon in results.horizons(row["run"]):
            end = results.endpoints[row["run"], horizon]
            if end[metric] is not None:
                points.append((row["run"], horizon, end["val_loss"], end[metric]))
    return points


def _task_points(results: Results, arch: str, task: str) -> list[Point]:
    """Return the accuracy in the task's standard setting, averaged over evaluation seeds."""
    points = []
    standard = results.tasks[task]["shots"]
    for row in results.grid_runs(arch):
        for horizon in results.horizons(row["run"]):
            scores = results.scores(row["run"], horizon, "accuracy")
            values = [s["value"] for s in scores if s["task"] == task and s["shots"] == standard]
            if values:
                loss = results.endpoints[row["run"], horizon]["val_loss"]
                points.append((row["run"], horizon, loss, float(np.mean(values))))
    return points


def _scale_means(
    results: Results, metric: str, curve: Sigmoid, points: dict[str, list[Point]]
) -> list[dict[str, Any]]:
    """Return `residual:<metric>:<scale>`: the mean residual of SMELT's endpoints, cells of equal weight."""
    baseline_cells = np.array([results.runs[point[0]]["cell"] for point in points["baseline"]])
    weights = label_weights(baseline_cells, DRAWS, SEED)
    refits = refit_sigmoid(curve, *_columns(points["baseline"]), weights)
    scales: dict[str, dict[str, list[Point]]] = defaultdict(lambda: defaultdict(list))
    for point in points["smelt"]:
        run = results.runs[point[0]]
        scales[run["scale"]][run["cell"]].append(point)
    contrasts = []
    for scale, cells in scales.items():
        means = np.array([curve.residual(*_columns(cell)).mean() for cell in cells.values()])
        drawn = np.mean([refits.residual(*_columns(cell)).mean(axis=1) for cell in cells.values()], axis=0)
        value, ends = float(means.mean()), Ends()
        if len(means) > 1:
            # Half the 95% range over 1.96: a draw in which the curve runs away weighs no more than others.
            own = np.subtract(*np.percentile(drawn, (97.5, 2.5))) / (2 * 1.96)
            error = float(np.hypot(means.std(ddof=1) / np.sqrt(len(means)), own))
            ends = t_ends(value, error, len(means) - 1)
        name = f"residual:{metric}:{scale}"
        contrasts.append(contrast(name, value, ends, metric, len(means), BASIS, curve.note))
    return contrasts
