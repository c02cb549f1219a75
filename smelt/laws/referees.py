"""SMELT against stronger unlooped models than the Baseline of its cell: two controls beside claim C1."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from smelt.laws.ablations import seed_losses
from smelt.laws.inputs import Results, listing
from smelt.laws.noise import SEEDS_BASIS, common_seeds, contrast, difference_spread, mean, paired
from smelt.laws.pairs import loss_gaps
from smelt.laws.surfaces import SurfaceAnalysis, joined

CONTROL, BEST_DEPTH = "loss_gap_control", "loss_gap_best_depth"
Rows = list[dict[str, Any]]


def referee_tables(results: Results, analysis: SurfaceAnalysis) -> dict[str, Rows]:
    """Return the contrasts `loss_gap_control:<cell>` and `loss_gap_best_depth:<cell>` and their notes.

    Both are the unlooped model's loss minus SMELT's in nats at the last horizon, paired by training seed:
    positive is in favour of SMELT.
    """
    rows, notes = [], []
    for name, compare in ((CONTROL, _against_control), (BEST_DEPTH, _against_best_depth)):
        found, missing = compare(results, analysis)
        rows.extend(found)
        reason = listing(missing) or ("" if found else "the study has no such control")
        notes.append({"analysis": name, "ok": not reason, "reason": reason})
    return {"law_contrasts": rows, "law_notes": notes}


def _against_control(results: Results, analysis: SurfaceAnalysis) -> tuple[Rows, list[str]]:
    """Compare with the unlooped runs that have the expert geometry of the cell's SMELT run."""
    gaps, missing = {}, []
    for row in results.runs.values():
        if row["arch"] == "control" and row["seed"] == 0:
            gap = paired(seed_losses(results, row["run"]), seed_losses(results, f"{row['cell']}-smelt"))
            if gap:
                gaps[row["cell"]] = gap
            else:
                missing.append(f"{row['cell']} lacks its control or its SMELT run at the last horizon")
    return _gap_rows(CONTROL, gaps, results, analysis), missing


def _against_best_depth(results: Results, analysis: SurfaceAnalysis) -> tuple[Rows, list[str]]:
    """Compare with the Baseline of the depth that has the lowest mean loss in the depth sweep."""
    points = [
        row for row in results.ablation_points if (row["ablation"], row["arch"]) == ("depth", "baseline")
    ]
    sweep = {row["value"]: seed_losses(results, row["run"]) for row in points}
    missing = [
        f"{row['run']} has no endpoint at the last horizon" for row in points if not sweep[row["value"]]
    ]
    sweep = {depth: losses for depth, losses in sorted(sweep.items()) if losses}
    if not sweep:
        return [], missing
    cell = results.runs[points[0]["run"]]["cell"]
    seeds = common_seeds(sweep)
    if not seeds:
        return [], [*missing, "no training seed reached the last horizon at every depth"]
    best = min(sweep, key=lambda depth: np.mean([sweep[depth][seed] for seed in seeds]))
    gap = paired(sweep[best], seed_losses(results, f"{cell}-smelt"))
    if not gap:
        return [], [*missing, f"{cell} lacks its SMELT run at the last horizon"]
    layers = f"{best} layers, the best of {', '.join(map(str, sweep))}"
    # The lowest of several noisy losses lies below its own expectation: the gap is rather too small.
    basis = f"; Baseline of {layers}, chosen by the same losses"
    note = f"Baseline of {layers}, is at the edge of its sweep" if best in (min(sweep), max(sweep)) else ""
    return _gap_rows(BEST_DEPTH, {cell: gap}, results, analysis, basis, joined(note, *missing)), missing


def _gap_rows(
    name: str,
    gaps: Mapping[str, Mapping[int, float]],
    results: Results,
    analysis: SurfaceAnalysis,
    basis: str = "",
    note: str = "",
) -> Rows:
    """Return the rows of a comparison of few cells; the grid's pairs lend it their spread over seeds."""
    grid = loss_gaps(results, results.study.training.horizons[-1])
    spread = difference_spread(grid or gaps, analysis)
    if grid and spread.basis == SEEDS_BASIS:
        basis = f" of the grid's pairs{basis}"
    rows = []
    for cell, values in gaps.items():
        value, count = mean(values), len(values)
        ends = spread.ends(value, count)
        rows.append(contrast(f"{name}:{cell}", value, ends, "nats", count, spread.basis + basis, note))
    return rows
