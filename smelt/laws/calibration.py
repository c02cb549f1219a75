"""From validation loss to a benchmark: a monotone sigmoid fitted on Baseline endpoints (section 6)."""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np
from scipy.special import expit

from smelt.errors import SmeltError
from smelt.laws.optimise import minimise

# +1 where a higher validation loss means a higher value (a cross entropy), -1 for an accuracy.
DIRECTIONS = {"completion": 1, "core": -1, "mmlu": -1}
PARAMETERS = 4
# Share of variance, adjusted for the parameters, below which a curve is no reference for residuals.
MIN_EXPLAINED = 0.5
# Bounds in units of the data's ranges. The curve may flatten or turn within three ranges of the data; further
# out, and at the least slope, it is a straight line there and as good; at the steepest it is a step.
LOWER = np.array([-10.0, np.log(1e-3), np.log(0.05), -3.0])
UPPER = np.array([10.0, np.log(50.0), np.log(200.0), 3.0])


@dataclass(frozen=True)
class Sigmoid:
    """`b + a / (1 + exp(-direction alpha (loss - tau)))` with a, alpha > 0; `r2` on the fitted endpoints.

    `note` says why it should not be believed, or is empty.
    """

    b: float
    a: float
    alpha: float
    tau: float
    direction: int
    r2: float
    n: int
    note: str = ""

    def __call__(self, loss: np.ndarray) -> np.ndarray:
        """Return the benchmark value that a Baseline of this validation loss has."""
        return self.b + self.a * expit(self.direction * self.alpha * (np.asarray(loss) - self.tau))

    def residual(self, loss: np.ndarray, value: np.ndarray) -> np.ndarray:
        """Return the distance from the curve, positive where `value` is better than a Baseline's."""
        return -self.direction * (np.asarray(value) - self(loss))


def fit_sigmoid(loss: np.ndarray, value: np.ndarray, direction: int) -> Sigmoid:
    """Fit by least squares from a grid of starts.

    Raises:
        SmeltError: fewer than five endpoints, or a loss or a value that never changes.
    """
    loss, value = np.asarray(loss, dtype=float), np.asarray(value, dtype=float)
    if len(loss) <= PARAMETERS:
        raise SmeltError(f"{len(loss)} Baseline endpoints for a sigmoid of {PARAMETERS} parameters")
    if not (np.isfinite(loss).all() and np.isfinite(value).all()):
        raise SmeltError("an endpoint has no finite loss or value")
    if np.ptp(loss) == 0 or np.ptp(value) == 0:
        raise SmeltError("all Baseline endpoints have the same loss or the same value")
    starts = np.array(
        [
            (low, np.log(size), np.log(slope), middle)
            for low, size in ((0.0, 1.0), (-0.5, 2.0), (0.0, 3.0))
            for slope in (1.0, 4.0, 12.0)
            for middle in (-1.0, -0.3, 0.3, 1.0)
        ]
    )
    unit = _Unit(loss, value, direction)
    x_pd, objective_p = unit.minimise(starts, np.ones((len(starts), len(loss))))
    best_d = x_pd[objective_p.argmin()]
    fitted = unit.curve(best_d)
    errors = value - fitted(loss)
    r2 = 1.0 - float((errors**2).sum() / ((value - value.mean()) ** 2).sum())
    explained = 1.0 - (1.0 - r2) * (len(loss) - 1) / (len(loss) - PARAMETERS)
    note = ""
    if explained < MIN_EXPLAINED:
        note = (
            f"the Baseline's curve explains {max(explained, 0.0):.0%} of its endpoints' variance (adjusted "
            f"for its {PARAMETERS} parameters), less than {MIN_EXPLAINED:.0%}"
        )
    elif best_d[2] >= UPPER[2]:
        note = "the Baseline's curve is a step: its slope is on its bound"
    return replace(fitted, r2=r2, note=note)


def refit_sigmoid(curve: Sigmoid, loss: np.ndarray, value: np.ndarray, weights_pn: np.ndarray) -> Sigmoid:
    """Return the curve refitted under each row of weights, from itself; coefficients have shape [p, 1]."""
    unit = _Unit(loss, value, curve.direction)
    starts = np.tile(unit.start(curve), (len(weights_pn), 1))
    x_pd, _ = unit.minimise(starts, weights_pn)
    return unit.curve(x_pd.T[:, :, None])


class _Unit:
    """The curve in units of the data's ranges: low, log size, log slope, middle."""

    def __init__(self, loss: np.ndarray, value: np.ndarray, direction: int) -> None:
        self.direction, self.n = direction, len(loss)
        self.width, self.height = np.ptp(loss), np.ptp(value)
        self.centre, self.floor = loss.mean(), value.min()
        self.u_n, self.v_n = (loss - self.centre) / self.width, (value - self.floor) / self.height

    def minimise(self, starts_pd: np.ndarray, weights_pn: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Return the minimisers [p, 4] and their objectives [p]."""
        solution = minimise(self._model, starts_pd, weights_pn, LOWER, UPPER)
        return solution.x_pd, solution.objective_p

    def _model(self, x_pd: np.ndarray, which: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        low, log_size, log_slope, middle = (column[:, None] for column in x_pd.T)
        size, slope = np.exp(log_size), np.exp(log_slope)
        z = self.direction * slope * (self.u_n - middle)
        share = expit(z)
        rise = size * share * (1.0 - share)
        parts = (np.ones_like(z), size * share, rise * z, -rise * self.direction * slope)
        return low + size * share - self.v_n, np.stack(parts, axis=-1)

    def curve(self, x_d: np.ndarray) -> Sigmoid:
        """Return the curve of parameters [4, ...] in the data's own units, without r2."""
        low, log_size, log_slope, middle = (x if np.ndim(x) else float(x) for x in x_d)
        return Sigmoid(
            b=self.floor + self.height * low,
            a=self.height * np.exp(log_size),
            alpha=np.exp(log_slope) / self.width,
            tau=self.centre + self.width * middle,
            direction=self.direction,
            r2=0.0,
            n=self.n,
        )

    def start(self, curve: Sigmoid) -> np.ndarray:
        """Return the parameters of a curve; the inverse of `curve`."""
        return np.array(
            [
                (curve.b - self.floor) / self.height,
                np.log(curve.a / self.height),
                np.log(curve.alpha * self.width),
                (curve.tau - self.centre) / self.width,
            ]
        )
