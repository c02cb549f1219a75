"""Many small robust least-squares problems at once: a Levenberg-Marquardt iteration for the Huber loss.

Huber's loss is quadratic inside `delta` and linear outside. Its Newton matrix counts only residuals inside,
its majoriser (iteratively reweighted least squares) counts those outside with weight delta/|r|. The damping
of each problem moves between the two: small damping is Newton and converges in a few steps, large damping is
a short step along the majoriser and always descends. Derivatives are exact; finished problems leave the
batch.

Legend of suffixes: p problem, n point, d parameter.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

# Residuals [p, n] and their derivatives [p, n, d] for parameters [p, d] of the problems `which` [p].
Model = Callable[[np.ndarray, np.ndarray], tuple[np.ndarray, np.ndarray]]

CHUNK = 2048
_MIN_DAMPING, _MAX_DAMPING = 1e-10, 1e12


@dataclass(frozen=True)
class Solution:
    """Minimisers `x_pd`, their `objective_p` (weighted mean of Huber's loss) and whether each converged."""

    x_pd: np.ndarray
    objective_p: np.ndarray
    converged_p: np.ndarray


def minimise(
    model: Model,
    start_pd: np.ndarray,
    weights_pn: np.ndarray,
    lower_d: np.ndarray,
    upper_d: np.ndarray,
    delta: float = np.inf,
    max_steps: int = 400,
    tolerance: float = 1e-12,
) -> Solution:
    """Minimise sum_n w_n Huber(r_n) / sum_n w_n of every problem inside the box `lower_d`..`upper_d`.

    A problem has converged when a step with little damping lowers the objective, or is expected to, by less
    than `tolerance` times its value, or when no step at any damping lowers it at all.
    """
    parts = []
    weights_pn = weights_pn / weights_pn.sum(axis=1, keepdims=True)
    for first in range(0, len(start_pd), CHUNK):
        which = np.arange(first, min(first + CHUNK, len(start_pd)))
        state = _State(model, which, start_pd[which], weights_pn[which], lower_d, upper_d, delta)
        parts.append(state.run(max_steps, tolerance))
    return Solution(
        np.concatenate([part.x_pd for part in parts]),
        np.concatenate([part.objective_p for part in parts]),
        np.concatenate([part.converged_p for part in parts]),
    )


def huber(residual: np.ndarray, delta: float) -> np.ndarray:
    """Return r^2/2 inside `delta`, delta (|r| - delta/2) outside."""
    size = np.abs(residual)
    inside = np.minimum(size, delta)
    return inside * (size - 0.5 * inside)


class _State:
    """One chunk of problems during the iteration."""

    def __init__(self, model, which, start_pd, weights_pn, lower_d, upper_d, delta) -> None:
        self.model, self.which, self.weights = model, which, weights_pn
        self.lower, self.upper, self.delta = lower_d, upper_d, delta
        self.x = np.clip(start_pd, lower_d, upper_d)
        self.residual, self.jacobian = model(self.x, which)
        self.objective = self._objective(self.residual, weights_pn)
        self.damping = np.ones(len(which))

    def _objective(self, residual_pn: np.ndarray, weights_pn: np.ndarray) -> np.ndarray:
        value = (weights_pn * huber(residual_pn, self.delta)).sum(axis=1)
        return np.where(np.isfinite(value), value, np.inf)

    def run(self, max_steps: int, tolerance: float) -> Solution:
        done = np.zeros(len(self.which), dtype=bool)
        for _ in range(max_steps):
            active = np.flatnonzero(~done)
            if not len(active):
                break
            step, predicted = self._step(active)
            candidate = np.clip(self.x[active] + step, self.lower, self.upper)
            residual, jacobian = self.model(candidate, self.which[active])
            objective = self._objective(residual, self.weights[active])
            gain = self.objective[active] - objective
            better = gain > 0
            small = tolerance * (self.objective[active] + 1e-300)
            damping = self.damping[active]
            # A step that is short only because it was damped says nothing.
            done[active] = (damping <= 1.0) & ((predicted <= small) | (better & (gain <= small)))
            done[active] |= ~better & (damping >= _MAX_DAMPING)
            keep = active[better]
            self.x[keep], self.residual[keep] = candidate[better], residual[better]
            self.jacobian[keep], self.objective[keep] = jacobian[better], objective[better]
            damping = np.where(better, damping / 5.0, damping * 4.0)
            self.damping[active] = np.clip(damping, _MIN_DAMPING, _MAX_DAMPING)
        return Solution(self.x, self.objective, done)

    def _step(self, active: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Return the damped steps [p, d] and the decrease that each predicts [p]."""
        residual, jacobian = self.residual[active], self.jacobian[active]
        weights, damping = self.weights[active], self.damping[active]
        ratio = self.delta / np.maximum(np.abs(residual), 1e-300)
        outer = weights * np.minimum(ratio, 1.0)
        gradient = np.matmul((outer * residual)[:, None, :], jacobian)[:, 0]
        outside = np.minimum(damping, 1.0)[:, None] * ratio
        curvature = weights * np.where(ratio >= 1.0, 1.0, outside)
        hessian = np.matmul((jacobian * curvature[..., None]).swapaxes(1, 2), jacobian)
        majoriser = np.matmul(outer[:, None, :], jacobian**2)[:, 0]
        x = self.x[active]
        held = ((x <= self.lower) & (gradient > 0)) | ((x >= self.upper) & (gradient < 0))
        gradient = np.where(held, 0.0, gradient)
        free = ~held
        hessian *= free[:, :, None] & free[:, None, :]
        diagonal = np.where(held, 1.0, damping[:, None] * majoriser + 1e-14 * majoriser + 1e-30)
        index = np.arange(hessian.shape[1])
        hessian[:, index, index] += diagonal
        step = self._inside(x, hessian, gradient, -np.linalg.solve(hessian, gradient[..., None])[..., 0])
        predicted = -(gradient * step).sum(axis=1) - 0.5 * (
            step * np.matmul(hessian, step[..., None])[..., 0]
        ).sum(axis=1)
        return step, predicted

    def _inside(
        self, x_pd: np.ndarray, hessian_pdd: np.ndarray, gradient_pd: np.ndarray, step_pd: np.ndarray
    ) -> np.ndarray:
        """Return steps that end in the box: what would cross is put on its bound, the rest solved anew."""
        target = x_pd + step_pd
        cross = (target < self.lower) | (target > self.upper)
        bad = cross.any(axis=1)
        if not bad.any():
            return step_pd
        cross, hessian = cross[bad], hessian_pdd[bad].copy()
        short = np.where(cross, np.clip(target[bad], self.lower, self.upper) - x_pd[bad], 0.0)
        rest = gradient_pd[bad] + np.matmul(hessian, short[..., None])[..., 0]
        rest[cross] = 0.0
        hessian *= ~cross[:, :, None] & ~cross[:, None, :]
        index = np.arange(hessian.shape[1])
        hessian[:, index, index] += cross
        step_pd[bad] = short - np.linalg.solve(hessian, rest[..., None])[..., 0]
        return step_pd
