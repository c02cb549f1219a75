"""What a study of this size could have seen: its window, and the power of its loss comparisons."""

from __future__ import annotations

from statistics import NormalDist

import numpy as np

from smelt.report.claims_evidence import Evidence
from smelt.report.claims_rules import Unmeasured

PAPER_WINDOW = "1.3e19 to 2.2e21"


def scope_sentence(evidence: Evidence) -> str:
    """Return the compute window, cells and seeds that a verdict holds for, beside the paper's."""
    runs, flops = [], []
    try:
        for run in evidence.grid("smelt") + evidence.grid("baseline"):
            if evidence.evaluated(run["run"]):
                runs.append(run)
                flops.extend(row["flops"] for row in evidence.endpoints(run["run"]))
    except Unmeasured as reason:
        return f"Unknown: {reason}."
    if not flops:
        return "Unknown: no run of the grid has been evaluated."
    cells, seeds = len({row["cell"] for row in runs}), len({row["seed"] for row in runs})
    return (
        f"Study {evidence.study.name}: {cells} cells, {seeds} training seed{'s' if seeds > 1 else ''}, "
        f"{min(flops):.1e} to {max(flops):.1e} training FLOPs (the paper: {PAPER_WINDOW})."
    )


def power_sentence(evidence: Evidence, claim: str) -> str:
    """Return for C1 what the paper's law predicts at these sizes against our spread, else an empty string.

    The chance to detect is that of a normal gap of the predicted size, with the standard error of our
    interval, ending above zero at 95%.
    """
    if claim != "C1":
        return ""
    try:
        rows = evidence.budget("power")
        gaps = evidence.contrast_components("loss_gap", "{}")
    except Unmeasured as reason:
        return f"No power analysis: {reason}."
    if not rows:
        return "No power analysis: the study has no cell that the paper's law covers."
    last = max(row["horizon"] for row in rows)
    # The table holds SMELT minus Baseline; here, as in the ledger, a positive gap is in favour of SMELT.
    predicted = [-row["gap_predicted"] for row in rows if row["horizon"] == last]
    text = f"The paper's law predicts gaps of {min(predicted):.4f} to {max(predicted):.4f} nats here"
    if not all(row["in_window"] for row in rows):
        text += ", far outside the window it was fitted in"
    widths = [(part.high - part.low) / (2 * 1.96) for part in gaps if part.low is not None]
    if not widths:
        return text + "; our spread is unknown."
    error = float(np.median(widths))
    chance = NormalDist().cdf(float(np.median(predicted)) / error - 1.96)
    return (
        f"{text}; the standard error of one gap is {error:.4f} nats: a chance of {chance:.0%} to see the "
        "median one."
    )
