"""Pairwise comparisons at equal budgets: loss gaps by cell (C1) and wins on benchmarks (C8 to C10)."""

from __future__ import annotations

from typing import Any

import numpy as np
from scipy.stats import beta

from smelt.laws.calibration import DIRECTIONS
from smelt.laws.inputs import Results, listing
from smelt.laws.noise import contrast, difference_spread, mean
from smelt.laws.surfaces import SurfaceAnalysis

# MMLU counts only where the Baseline is this far above guessing among four (claim C10).
MMLU_CHANCE, MMLU_MARGIN = 0.25, 0.10
BINOMIAL_BASIS = "exact binomial interval with the cell as the unit, since a run's horizons share a trunk"

Key = tuple[str, int]


def paired_values(results: Results, metric: str) -> dict[Key, dict[int, tuple[float, float]]]:
    """Return (Baseline, SMELT) of an `endpoints` column by (cell, horizon) and training seed.

    Pairs with a missing member or value are left out.
    """
    pairs: dict[Key, dict[int, tuple[float, float]]] = {}
    for row in results.grid_runs("smelt"):
        for horizon in results.horizons(row["run"]):
            partner = results.endpoints.get((row["baseline"], horizon))
            mine = results.endpoints[row["run"], horizon]
            if partner is not None and None not in (partner[metric], mine[metric]):
                values = (partner[metric], mine[metric])
                pairs.setdefault((row["cell"], horizon), {})[row["seed"]] = values
    return pairs


def loss_gaps(results: Results, horizon: int) -> dict[str, dict[int, float]]:
    """Return Baseline minus SMELT in nats at one horizon by cell and training seed."""
    return {
        cell: {seed: baseline - smelt for seed, (baseline, smelt) in values.items()}
        for (cell, at), values in paired_values(results, "val_loss").items()
        if at == horizon
    }


def gap_tables(results: Results, analysis: SurfaceAnalysis) -> dict[str, list[dict[str, Any]]]:
    """Return the contrasts `loss_gap:<cell>`: Baseline minus SMELT in nats at each cell's last horizon."""
    gaps = loss_gaps(results, results.study.training.horizons[-1])
    spread = difference_spread(gaps, analysis)
    rows = []
    for cell, values in gaps.items():
        value = mean(values)
        ends = spread.ends(value, len(values))
        rows.append(contrast(f"loss_gap:{cell}", value, ends, "nats", len(values), spread.basis))
    expected = {row["cell"] for row in results.grid_runs("smelt")}
    missing = sorted(expected - gaps.keys())
    reason = f"no pair at the last horizon in {listing(missing)}" if missing else ""
    return {"law_contrasts": rows, "law_notes": [_note("loss_gap", reason)]}


def win_tables(results: Results) -> dict[str, list[dict[str, Any]]]:
    """Return the contrasts `wins:<metric>`: the share of endpoints that SMELT wins; a tie counts half."""
    rows, notes = [], []
    for metric, direction in DIRECTIONS.items():
        pairs = paired_values(results, metric)
        means = {key: np.mean(list(values.values()), axis=0) for key, values in pairs.items()}
        reason = "" if means else f"the suite has no {metric} score"
        if metric == "mmlu" and means:
            floor = MMLU_CHANCE + MMLU_MARGIN
            means = {key: value for key, value in means.items() if value[0] >= floor}
            reason = "" if means else "no Baseline endpoint is 10 points above chance on MMLU"
        notes.append(_note(f"wins:{metric}", reason))
        if means:
            rows.append(_win_row(metric, direction, means))
    return {"law_contrasts": rows, "law_notes": notes}


def _win_row(metric: str, direction: int, means: dict[Key, np.ndarray]) -> dict[str, Any]:
    # +1 where lower is better: then SMELT wins when the Baseline's value minus its own is positive.
    signs = [np.sign(direction * (baseline - smelt)) for baseline, smelt in means.values()]
    share = float(np.mean([(1 + sign) / 2 for sign in signs]))
    cells = len({cell for cell, _ in means})
    ends = binomial_interval(share, cells)
    return contrast(f"wins:{metric}", share, ends, "share of endpoints", len(means), BINOMIAL_BASIS)


def binomial_interval(share: float, units: int, level: float = 0.95) -> tuple[float, float]:
    """Return the Clopper-Pearson interval of a share observed over `units` independent units."""
    wins, tail = share * units, (1 - level) / 2
    low = float(beta.ppf(tail, wins, units - wins + 1)) if wins > 0 else 0.0
    high = float(beta.ppf(1 - tail, wins + 1, units - wins)) if wins < units else 1.0
    return low, high


def _note(analysis: str, reason: str) -> dict[str, Any]:
    return {"analysis": analysis, "ok": not reason, "reason": reason}
