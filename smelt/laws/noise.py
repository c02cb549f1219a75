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


def difference_spread(groups: Mapping[object, Mapping[int, float]], analysis: SurfaceAnalysis) -> Spread:
    """Return the spread of one difference between two runs on the same tokens.

    Args:
        groups: for each comparison, its difference in nats by training seed.
        analysis: the fitted surfaces, whose scatter stands in where there is one seed only. It contains the
            misfit of the surface too, and ignores that a pair sees the same tokens: rather too wide.
    """
    return seeds_spread(groups) or _scatter(analysis)


def seeds_spread(groups: Mapping[object, Mapping[int, float]]) -> Spread | None:
    """Return the spread of one difference over training seeds, or None where no group has two.

    Deviations within the groups are pooled. A seed is the same tokens in all groups and may move their
    differences together; they then tell less than their number says, and Satterthwaite's degrees of freedom
    are fewer.
    """
    (squares, freedom), (rest, rest_freedom) = _deviations(groups)
    if freedom == 0:
        return None
    deviation = float(np.sqrt(squares / freedom))
    if squares > 0:
        parts = ((squares - rest, freedom - rest_freedom), (rest, rest_freedom))
        freedom = max(1, round(squares**2 / sum(part**2 / count for part, count in parts if count)))
    return Spread(deviation, freedom, SEEDS_BASIS)


def run_spread(sweeps: Sequence[Mapping[int, Mapping[int, float]]], analysis: SurfaceAnalysis) -> Spread:
    """Return the spread of one run's loss about its point and its seed.

    Args:
        sweeps: for each sweep, the losses in nats by point and training seed. What a seed does to all points
            of its sweep alike moves no optimum and is taken off; of P points under the same n seeds remain
            (P - 1)(n - 1) degrees of freedom.
        analysis: the fitted surfaces, whose scatter stands in where there is one seed only.
    """
    parts = [_deviations(sweep)[1] for sweep in sweeps]
    squares, freedom = (sum(column) for column in zip(*parts, strict=True)) if parts else (0.0, 0)
    if freedom > 0:
        return Spread(float(np.sqrt(squares / freedom)), freedom, SEEDS_BASIS)
    both = _scatter(analysis)
    if both.deviation is None:
        return both
    # The scatter is that of a difference of two runs; one run's share of its variance is a half.
    return Spread(both.deviation / np.sqrt(2), both.freedom, both.basis)


def margin_spread(sweeps: Sequence[Mapping[int, Mapping[int, float]]], analysis: SurfaceAnalysis) -> Spread:
    """Return the spread of one difference between two points of a sweep under the same seed.

    The differences from one point share its run, so they are no sample of their own: the spread is that of
    two single runs (`run_spread`).
    """
    one = run_spread(sweeps, analysis)
    if one.deviation is None:
        return one
    return Spread(one.deviation * np.sqrt(2), one.freedom, one.basis)


# Sums of squares below this share of the largest value squared are rounding.
_ROUNDING = 1e-24


def _deviations(table: Mapping[object, Mapping[int, float]]) -> tuple[tuple[float, int], tuple[float, int]]:
    """Return the squares and degrees of freedom of a table of values by row and seed.

    First about the mean of each row, then about the sum of an effect of the row and one of the seed, by least
    squares, since not every row has every seed.
    """
    rows = list(table.values())
    row_n = np.repeat(np.arange(len(rows)), [len(row) for row in rows])
    seed_n = np.array([seed for row in rows for seed in row], dtype=int)
    value_n = np.array([value for row in rows for value in row.values()], dtype=float)
    rows_nk = (row_n[:, None] == np.unique(row_n)).astype(float)
    seeds_nk = (seed_n[:, None] == np.unique(seed_n)).astype(float)
    parts = []
    for effects_nk in (rows_nk, np.hstack([rows_nk, seeds_nk])):
        solution_k, _, rank, _ = np.linalg.lstsq(effects_nk, value_n, rcond=None)
        squares = float(((value_n - effects_nk @ solution_k) ** 2).sum())
        floor = _ROUNDING * float((value_n**2).max(initial=0.0)) * len(value_n)
        parts.append((squares if squares > floor else 0.0, len(value_n) - int(rank)))
    return parts[0], parts[1]


def common_seeds(sweep: Mapping[int, Mapping[int, float]]) -> list[int]:
    """Return the training seeds that every point of a sweep has, ascending."""
    return sorted(set.intersection(*(set(losses) for losses in sweep.values())))


def paired(first: Mapping[int, float], second: Mapping[int, float]) -> dict[int, float]:
    """Return first minus second by training seed, of the seeds that both have."""
    return {seed: first[seed] - second[seed] for seed in sorted(first.keys() & second.keys())}


def mean(values: Mapping[int, float]) -> float:
    """Return the mean over training seeds."""
    return float(np.mean(list(values.values())))


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
