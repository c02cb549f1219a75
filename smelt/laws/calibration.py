"""From validation loss to a benchmark: a monotone sigmoid fitted on Baseline endpoints (section 6)."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from scipy.special import expit

from smelt.errors import SmeltError
from smelt.laws.optimise import minimise

# +1 where a higher validation loss means a higher value (a cross entropy), -1 for an accuracy.
DIRECTIONS = {"completion": 1, "core": -1, "mmlu": -1}
PARAMETERS = 4


@dataclass(frozen=True)
class Sigmoid:
    """`b + a / (1 + exp(-direction alpha (loss - tau)))` with a, alpha > 0; `r2` on the fitted endpoints."""

    b: float
    a: float
    alpha: float
    tau: float
    direction: int
    r2: float
    n: int

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
    width, height = np.ptp(loss), np.ptp(value)
    u_n, v_n = (loss - loss.mean()) / width, (value - value.min()) / height
    starts = np.array(
        [
            (low, np.log(size), np.log(slope), middle)
            for low, size in ((0.0, 1.0), (-0.5, 2.0), (0.0, 3.0))
            for slope in (1.0, 4.0, 12.0)
            for middle in (-1.0, -0.3, 0.3, 1.0)
        ]
    )

    def model(x_pd: np.ndarray, which: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        low, log_size, log_slope, middle = (column[:, None] for column in x_pd.T)
        size, slope = np.exp(log_size), np.exp(log_slope)
        z = direction * slope * (u_n - middle)
        share = expit(z)
        rise = size * share * (1.0 - share)
        parts = (np.ones_like(z), size * share, rise * z, -rise * direction * slope)
        return low + size * share - v_n, np.stack(parts, axis=-1)

    # The curve may flatten or turn within three ranges of the data; further out is a straight line anyway.
    lower = np.array([-10.0, np.log(1e-3), np.log(0.05), -3.0])
    upper = np.array([10.0, np.log(50.0), np.log(200.0), 3.0])
    solution = minimise(model, starts, np.ones((len(starts), len(loss))), lower, upper)
    low, log_size, log_slope, middle = solution.x_pd[solution.objective_p.argmin()]
    fitted = Sigmoid(
        b=float(value.min() + height * low),
        a=float(height * np.exp(log_size)),
        alpha=float(np.exp(log_slope) / width),
        tau=float(loss.mean() + width * middle),
        direction=direction,
        r2=0.0,
        n=len(loss),
    )
    errors = value - fitted(loss)
    r2 = 1.0 - float((errors**2).sum() / ((value - value.mean()) ** 2).sum())
    return Sigmoid(**{**fitted.__dict__, "r2": r2})
