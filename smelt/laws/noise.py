"""How far one training run would fall from another: the yardstick for differences of single losses."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
from scipy.stats import t as student

from smelt.laws.surface import PARAMETERS
from smelt.laws.surfaces import SurfaceAnalysis, noise_level

SEEDS_BASIS = "spread over training seeds"
SCATTER_BASIS = "one training seed: scatter of the endpoints about the fitted surfaces"
NO_BASIS = "one training seed and too few endpoints about a fitted surface: no yardstick"
# Residual degrees of freedom below which the scatter about a surface says little.
MIN_FREEDOM = 12


class Ends(NamedTuple):
    """A 95% interval, or None, None; `freedom` are the degrees of freedom where it is a t interval."""

    low: float | None = None
    high: float | None = None
    freedom: int | None = None


@dataclass(frozen=True)
class Spread:
    """Standard deviation of one loss or one difference in nats, its degrees of freedom and what it covers."""

    deviation: float | None
    freedom: int
    basis: str

    def ends(self, value: float, seeds: int) -> Ends:
        """Return the 95% interval of a mean of `seeds` differences, or an empty one without a yardstick."""
        if self.deviation is None:
            return Ends()
        return t_ends(value, float(self.deviation / np.sqrt(seeds)), self.freedom)


def t_ends(value: float, error: float, freedom: int) -> Ends:
    """Return the 95% t interval of an estimate with a standard error."""
    arm = float(student.ppf(0.975, freedom)) * error
    return Ends(value - arm, value + arm, freedom)


def difference_spread(groups: Mapping[object, Sequence[float]], analysis: SurfaceAnalysis) -> Spread:
    """Return the spread of one difference between two runs on the same tokens.

    Args:
        groups: for each comparison, its difference in nats under each training seed; deviations within the
            groups are pooled.
        analysis: the fitted surfaces, whose scatter stands in where there is one seed only. It contains the
            misfit of the surface too, and ignores that a pair sees the same tokens: rather too wide.
    """
    freedom = sum(len(values) - 1 for values in groups.values())
    if freedom > 0:
        squares = sum(float(np.var(values) * len(values)) for values in groups.values())
        return Spread(float(np.sqrt(squares / freedom)), freedom, SEEDS_BASIS)
    return _scatter(analysis)


def run_spread(sweeps: Sequence[Mapping[int, Mapping[int, float]]], analysis: SurfaceAnalysis) -> Spread:
    """Return the spread of one run's loss about its point and its seed.

    Args:
        sweeps: for each sweep, the losses in nats by point and training seed. What a seed does to all points
            of its sweep alike moves no optimum and is taken off: (points - 1)(seeds - 1) degrees of freedom
            remain of the seeds that all points have.
        analysis: the fitted surfaces, whose scatter stands in where there is one seed only.
    """
    squares, freedom = 0.0, 0
    for sweep in sweeps:
        seeds = common_seeds(sweep)
        losses_ps = np.array([[losses[seed] for seed in seeds] for losses in sweep.values()])
        if len(seeds) > 1:
            rest_ps = losses_ps - losses_ps.mean(0) - losses_ps.mean(1, keepdims=True) + losses_ps.mean()
            squares += float((rest_ps**2).sum())
            freedom += (len(sweep) - 1) * (len(seeds) - 1)
    if freedom > 0:
        return Spread(float(np.sqrt(squares / freedom)), freedom, SEEDS_BASIS)
    both = _scatter(analysis)
    if both.deviation is None:
        return both
    # The scatter is that of a difference of two runs; one run's share of its variance is a half.
    return Spread(both.deviation / np.sqrt(2), both.freedom, both.basis)


def common_seeds(sweep: Mapping[int, Mapping[int, float]]) -> list[int]:
    """Return the training seeds that every point of a sweep has, ascending."""
    return sorted(set.intersection(*(set(losses) for losses in sweep.values())))


def paired(first: Mapping[int, float], second: Mapping[int, float]) -> list[float]:
    """Return first minus second for every training seed that both have."""
    return [first[seed] - second[seed] for seed in sorted(first.keys() & second.keys())]


def _scatter(analysis: SurfaceAnalysis) -> Spread:
    """Return the spread of a difference of two runs by the scatter of the endpoints about the surfaces."""
    freedom = analysis.fits[0].n - len(PARAMETERS) if analysis.fits else 0
    if freedom < MIN_FREEDOM:
        return Spread(None, 0, NO_BASIS)
    variance = sum(noise_level(fit) ** 2 for fit in analysis.fits)
    return Spread(float(np.sqrt(variance)), freedom, SCATTER_BASIS)


def contrast(
    name: str,
    value: float | None,
    ends: Ends | tuple[float | None, float | None],
    unit: str,
    n: int,
    basis: str,
    note: str = "",
) -> dict[str, object]:
    """Return a row of `law_contrasts` without a calibrated interval."""
    ends = Ends(*ends)
    return {
        "contrast": name,
        "value": value,
        "low": ends.low,
        "high": ends.high,
        "low_calibrated": None,
        "high_calibrated": None,
        "freedom": ends.freedom,
        "unit": unit,
        "n": n,
        "basis": basis,
        "note": note,
    }
