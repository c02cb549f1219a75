"""Calibration of benchmarks against validation loss and the residuals from it (figures 8 and 9)."""

from __future__ import annotations

from typing import Any

import numpy as np

from smelt.errors import SmeltError
from smelt.laws.calibration import DIRECTIONS, Sigmoid, fit_sigmoid
from smelt.laws.inputs import ARCHS, Results

Point = tuple[str, int, float, float]


def calibration_tables(results: Results) -> dict[str, list[dict[str, Any]]]:
    """Return `calibration`, `residuals` and notes: one sigmoid per benchmark, fitted on Baseline endpoints."""
    curves, residuals, notes = [], [], []
    for metric, direction in DIRECTIONS.items():
        points = {arch: _aggregate_points(results, arch, metric) for arch in ARCHS}
        _one_metric(metric, direction, points, curves, residuals, notes)
    return {"calibration": curves, "residuals": residuals, "law_notes": notes}


def _one_metric(
    metric: str,
    direction: int,
    points: dict[str, list[Point]],
    curves: list[dict[str, Any]],
    residuals: list[dict[str, Any]],
    notes: list[dict[str, Any]],
) -> None:
    name = f"calibration:{metric}"
    try:
        if not points["baseline"]:
            raise SmeltError("no Baseline endpoint has this score")
        loss, value = (np.array(column) for column in list(zip(*points["baseline"], strict=True))[2:])
        curve = fit_sigmoid(loss, value, direction)
    except SmeltError as error:
        notes.append({"analysis": name, "ok": False, "reason": str(error)})
        return
    notes.append({"analysis": name, "ok": True, "reason": ""})
    curves.append({"metric": metric} | curve.__dict__)
    residuals.extend(_residual_rows(metric, curve, points["baseline"] + points["smelt"]))


def _residual_rows(metric: str, curve: Sigmoid, points: list[Point]) -> list[dict[str, Any]]:
    return [
        {"run": run, "horizon": horizon, "metric": metric, "residual": float(curve.residual(loss, value))}
        for run, horizon, loss, value in points
    ]


def _aggregate_points(results: Results, arch: str, metric: str) -> list[Point]:
    """Return (run, horizon, validation loss, value) of every grid endpoint with this score."""
    points = []
    for row in results.grid_runs(arch):
        for horizon in results.horizons(row["run"]):
            end = results.endpoints[row["run"], horizon]
            if end[metric] is not None:
                points.append((row["run"], horizon, end["val_loss"], end[metric]))
    return points
