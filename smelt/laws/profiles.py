"""Profile of each exponent: how much worse the fit gets when it is held away from its optimum."""

from __future__ import annotations

from typing import Any

import numpy as np
from scipy.stats import chi2

from smelt.laws.fit import DELTA, EXPONENT_BOUNDS, Design, Fit, SurfaceModel, fit_many
from smelt.laws.surface import Surface

POINTS = 41
# Half of a grid: this share of the optimum, and no less than the floor where an exponent is near zero.
SPREAD, FLOOR = 0.6, 0.15


def profile_rows(arch: str, design: Design, fit: Fit) -> list[dict[str, Any]]:
    """Return rows of `law_profiles`: every exponent over a grid about its optimum, all else refitted.

    `statistic` is the robust likelihood ratio, twice the rise of the summed Huber loss times
    mean(psi') / mean(psi^2) at the optimum, which is chi-square with one degree of freedom for large samples;
    `inside` marks the 95% region. A region that reaches the end of the grid says that the exponent is hardly
    identified (`open_profiles`).
    """
    rows = []
    for name in EXPONENT_BOUNDS:
        centre = getattr(fit.law, name)
        reach = max(SPREAD * abs(centre), FLOOR)
        grid = np.unique(np.clip(centre + np.linspace(-reach, reach, POINTS), *EXPONENT_BOUNDS[name]))
        objective = _held(design, fit, name, grid)
        statistic = np.maximum(0.0, 2 * len(design) * (objective - fit.objective) * _scale(design, fit))
        for value, height, ratio in zip(grid, objective, statistic, strict=True):
            row = {"arch": arch, "exponent": name, "value": float(value), "objective": float(height)}
            rows.append(row | {"statistic": float(ratio), "inside": bool(ratio <= chi2.ppf(0.95, 1))})
    return rows


def open_profiles(rows: list[dict[str, Any]]) -> str:
    """Say which exponents of profile rows of one architecture have an open 95% region, or nothing."""
    told = []
    for name in EXPONENT_BOUNDS:
        own = [row for row in rows if row["exponent"] == name]
        inside = [row["value"] for row in own if row["inside"]]
        if own and (own[0]["inside"] or own[-1]["inside"]):
            told.append(f"{name} ({inside[0]:.2f} to {inside[-1]:.2f} and beyond)")
    return f"hardly identified by its profile: {', '.join(told)}" if told else ""


def _held(design: Design, fit: Fit, name: str, grid: np.ndarray) -> np.ndarray:
    """Return the objective with one exponent held at each point of the grid."""
    log_loss, rows = np.log(design.loss)[None], np.zeros(len(grid), dtype=int)
    model = SurfaceModel(design, log_loss, rows)
    laws = Surface(**{key: np.full(len(grid), value) for key, value in fit.law.columns().items()})
    start = np.concatenate([model.parameters(laws)[:, None], _blind(model, len(grid))], axis=1)
    weights = np.ones((len(grid), len(design)))
    return fit_many(design, log_loss, weights, rows, start, fixed={name: grid})[1]


def _blind(model: SurfaceModel, count: int) -> np.ndarray:
    start = model.starts(4, seed=3)
    return np.broadcast_to(start, (count, *start.shape))


def _scale(design: Design, fit: Fit) -> float:
    residual = np.log(fit.law.loss(design.flops, design.sparsity, design.tokens)) - np.log(design.loss)
    inside = np.abs(residual) <= DELTA
    squares = np.mean(np.clip(residual, -DELTA, DELTA) ** 2)
    return float(np.mean(inside) / max(squares, 1e-300))
