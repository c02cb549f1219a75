"""After how many tokens the gap between SMELT and its Baseline changes sign (figure P4)."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from smelt.laws.inputs import Results, listing
from smelt.laws.noise import SEEDS_BASIS, Ends, common_seeds, seeds_spread, t_ends
from smelt.laws.pairs import paired_values

ALL = "all"
CELLS_BASIS = "t interval over cells"
# Fewer cells than this give no interval worth printing.
MIN_CELLS = 3
# Places between two horizons at which a gap is tested against zero.
PLACES = 20

# Baseline minus SMELT in nats at every horizon, by cell and training seed.
Gaps = dict[str, dict[int, np.ndarray]]


@dataclass(frozen=True)
class Curve:
    """The mean gap of some cells [x] at some places, with its 95% interval at each or none at all."""

    gap_x: np.ndarray
    ends: tuple[Ends, ...]
    basis: str

    def undecided(self) -> np.ndarray:
        """Return where [x] there is an interval that holds zero."""
        return np.array([end.low is not None and end.low <= 0 <= end.high for end in self.ends])


def crossover_tables(results: Results) -> dict[str, list[dict[str, Any]]]:
    """Return `gap_curves` and `crossovers`, by scale and over all cells of the grid.

    Between horizons gaps are linear in the logarithm of the tokens. The crossover is the last change of sign
    of the mean gap. Its interval are the places at which the gap's own 95% interval holds zero: the true
    place is missed only if the interval there is wrong, which happens in 5% of studies, whatever a run's
    horizons have in common (Fieller's argument).
    """
    horizons = results.study.training.horizons
    gaps, left_out = _complete(results)
    if not gaps or len(horizons) < 2:
        reason = listing(left_out) or "a crossover needs pairs at two horizons or more"
        return {"law_notes": [{"analysis": "crossover", "ok": False, "reason": reason}]}
    tokens_h = _tokens(results, gaps)
    # Every PLACES-th place is a horizon.
    places_x = np.linspace(0, len(horizons) - 1, PLACES * (len(horizons) - 1) + 1)
    weights_xh = np.stack(
        [np.interp(places_x, np.arange(len(horizons)), row) for row in np.eye(len(horizons))], axis=1
    )
    tokens_x = np.exp(weights_xh @ np.log(tokens_h))
    curves, crossovers = [], []
    for subset, curve in _curves(results, gaps, weights_xh).items():
        count = _counts(results, gaps, subset)
        at_horizons = curve.gap_x[::PLACES], curve.ends[::PLACES]
        for horizon, tokens, gap, end in zip(horizons, tokens_h, *at_horizons, strict=True):
            row = {"subset": subset, "horizon": horizon, "tokens": float(tokens), "gap": float(gap)}
            curves.append(row | end._asdict() | count | {"basis": curve.basis})
        crossovers.append({"subset": subset} | _crossover(curve, tokens_x) | count)
    note = {"analysis": "crossover", "ok": not left_out, "reason": listing(left_out)}
    return {"gap_curves": curves, "crossovers": crossovers, "law_notes": [note]}


def _complete(results: Results) -> tuple[Gaps, list[str]]:
    """Return the gaps of the cells and seeds that have every horizon, and which cells have none."""
    pairs = paired_values(results, "val_loss")
    cells = dict.fromkeys(row["cell"] for row in results.grid_runs("smelt"))
    gaps: Gaps = {}
    for cell in cells:
        known = {horizon: pairs.get((cell, horizon), {}) for horizon in results.study.training.horizons}
        for seed in common_seeds(known):
            baseline_h, smelt_h = np.array([values[seed] for values in known.values()]).T
            gaps.setdefault(cell, {})[seed] = baseline_h - smelt_h
    return gaps, [f"{cell} has no pair at every horizon" for cell in sorted(cells.keys() - gaps.keys())]


def _tokens(results: Results, gaps: Gaps) -> np.ndarray:
    """Return the tokens at each horizon, which all runs of a study share."""
    run = next(row["run"] for row in results.grid_runs("smelt") if row["cell"] in gaps)
    return np.array(
        [results.endpoints[run, horizon]["tokens"] for horizon in results.study.training.horizons],
        dtype=float,
    )


def _scales(results: Results, gaps: Gaps) -> dict[str, list[str]]:
    """Return the cells of each scale that has any, in the study's order."""
    scale_of = {row["cell"]: row["scale"] for row in results.grid_runs("smelt")}
    cells = {scale: [cell for cell in gaps if scale_of[cell] == scale] for scale in results.study.scales}
    return {scale: own for scale, own in cells.items() if own}


def _counts(results: Results, gaps: Gaps, subset: str) -> dict[str, int]:
    own = list(gaps) if subset == ALL else _scales(results, gaps)[subset.removeprefix("scale:")]
    return {"cells": len(own), "seeds": max(len(gaps[cell]) for cell in own)}


def _curves(results: Results, gaps: Gaps, weights_xh: np.ndarray) -> dict[str, Curve]:
    """Return the curve of each scale and that over all cells at places that are mixtures of horizons.

    With several training seeds the interval of a scale is over them, spread pooled over scales; with one, and
    over all cells, cells are the units.
    """
    scales = _scales(results, gaps)
    means_cx = {cell: weights_xh @ np.mean(list(seeds.values()), axis=0) for cell, seeds in gaps.items()}
    curves = {
        f"scale:{scale}": _over_cells([means_cx[cell] for cell in own]) for scale, own in scales.items()
    }
    by_seed = {
        scale: {
            seed: weights_xh @ np.mean([gaps[cell][seed] for cell in own], axis=0)
            for seed in common_seeds(dict(enumerate(gaps[cell] for cell in own)))
        }
        for scale, own in scales.items()
    }
    if any(len(seeds) > 1 for seeds in by_seed.values()):
        curves |= {f"scale:{scale}": curve for scale, curve in _over_seeds(by_seed).items()}
    return curves | {ALL: _over_cells(list(means_cx.values()))}


def _over_cells(gaps_cx: list[np.ndarray]) -> Curve:
    count, mean_x = len(gaps_cx), np.mean(gaps_cx, axis=0)
    if count < MIN_CELLS:
        return Curve(mean_x, (Ends(),) * len(mean_x), "")
    error_x = np.std(gaps_cx, axis=0, ddof=1) / np.sqrt(count)
    ends = (t_ends(float(m), float(e), count - 1) for m, e in zip(mean_x, error_x, strict=True))
    return Curve(mean_x, tuple(ends), CELLS_BASIS)


def _over_seeds(by_seed: Mapping[str, Mapping[int, np.ndarray]]) -> dict[str, Curve]:
    """Return the curves of the scales, each a mean over seeds; scales without a common seed are left out."""
    known = {scale: seeds for scale, seeds in by_seed.items() if seeds}
    mean_sx = {scale: np.mean(list(seeds.values()), axis=0) for scale, seeds in known.items()}
    ends: dict[str, list[Ends]] = {scale: [] for scale in known}
    for x in range(len(next(iter(mean_sx.values())))):
        groups = {
            scale: {seed: float(gap_x[x]) for seed, gap_x in seeds.items()} for scale, seeds in known.items()
        }
        spread = seeds_spread(groups)
        for scale, seeds in known.items():
            ends[scale].append(spread.ends(float(mean_sx[scale][x]), len(seeds)))
    return {scale: Curve(mean_sx[scale], tuple(ends[scale]), SEEDS_BASIS) for scale in known}


def _crossover(curve: Curve, tokens_x: np.ndarray) -> dict[str, Any]:
    """Return the last change of sign, where zero cannot be excluded, and who is ahead at the ends."""
    ahead_x = curve.gap_x > 0
    changes = np.flatnonzero(ahead_x[1:] != ahead_x[:-1])
    place = None
    if len(changes):
        low, high = curve.gap_x[changes[-1] : changes[-1] + 2]
        share = low / (low - high)
        place = float(np.exp(np.interp(share, (0, 1), np.log(tokens_x[changes[-1] : changes[-1] + 2]))))
    open_x = curve.undecided()
    # A change of sign between two places is undecided, however narrow the interval.
    open_x[np.union1d(changes, changes + 1)] = True
    undecided = tokens_x[open_x] if curve.basis else tokens_x[:0]
    return {
        "tokens": place,
        "low": float(undecided[0]) if len(undecided) else None,
        "high": float(undecided[-1]) if len(undecided) else None,
        "window_low": float(tokens_x[0]),
        "window_high": float(tokens_x[-1]),
        "changes": len(changes),
        "ahead_first": bool(ahead_x[0]),
        "ahead_last": bool(ahead_x[-1]),
        "basis": curve.basis,
    }
