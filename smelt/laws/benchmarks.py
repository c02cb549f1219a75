"""Calibration of benchmarks against validation loss and the residuals from it (figures 8 and 9)."""

from __future__ import annotations

from collections import defaultdict
from typing import Any

import numpy as np
from scipy.stats import t as student

from smelt.errors import SmeltError
from smelt.laws.calibration import DIRECTIONS, Sigmoid, fit_sigmoid
from smelt.laws.inputs import ARCHS, Results
from smelt.laws.noise import contrast

# (run, horizon, validation loss, value)
Point = tuple[str, int, float, float]
BASIS = "t interval over the cells of the scale; the curve's own error is not in it"


def calibration_tables(results: Results) -> dict[str, list[dict[str, Any]]]:
    """Return `calibration`, `residuals`, the contrasts of C11 and notes.

    One sigmoid for each of Completion, Core and MMLU and one a task (`task:<name>`, accuracy), fitted on the
    Baseline endpoints of the grid.
    """
    tables: dict[str, list[dict[str, Any]]] = defaultdict(list)
    for metric, direction in DIRECTIONS.items():
        points = {arch: _suite_points(results, arch, metric) for arch in ARCHS}
        rows = _one_metric(tables, metric, direction, points, f"calibration:{metric}")
        tables["law_contrasts"].extend(_scale_means(results, metric, rows))
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
) -> list[dict[str, Any]]:
    """Fit one curve into `tables`; return its residual rows, none where it cannot be fitted."""
    try:
        if not points["baseline"]:
            raise SmeltError("no Baseline endpoint has this score")
        loss, value = (np.array(column) for column in list(zip(*points["baseline"], strict=True))[2:])
        curve = fit_sigmoid(loss, value, direction)
    except SmeltError as error:
        tables["law_notes"].append({"analysis": analysis, "ok": False, "reason": str(error)})
        return []
    rows = _residual_rows(metric, curve, points["baseline"] + points["smelt"])
    tables["law_notes"].append({"analysis": analysis, "ok": True, "reason": ""})
    tables["calibration"].append({"metric": metric} | curve.__dict__)
    tables["residuals"].extend(rows)
    return rows


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


def _scale_means(results: Results, metric: str, rows: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """Return `residual:<metric>:<scale>`: the mean residual of SMELT's endpoints."""
    cells: dict[str, dict[str, list[float]]] = defaultdict(lambda: defaultdict(list))
    for row in rows:
        run = results.runs[row["run"]]
        if run["arch"] == "smelt":
            cells[run["scale"]][run["cell"]].append(row["residual"])
    contrasts = []
    for scale, by_cell in cells.items():
        means = np.array([np.mean(values) for values in by_cell.values()])
        value, ends = float(means.mean()), (None, None)
        if len(means) > 1:
            arm = float(student.ppf(0.975, len(means) - 1) * means.std(ddof=1) / np.sqrt(len(means)))
            ends = (value - arm, value + arm)
        contrasts.append(contrast(f"residual:{metric}:{scale}", value, ends, metric, len(means), BASIS))
    return contrasts
