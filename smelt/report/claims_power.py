"""What a study of this size could have seen: its window, and the power of its loss comparisons."""

from __future__ import annotations

from statistics import NormalDist

import numpy as np

from smelt.laws.quantities import PAPER_WINDOW
from smelt.report.claims_evidence import Evidence, Row
from smelt.report.claims_rules import Unmeasured
from smelt.report.tables.formats import counted


def _window(low: float, high: float) -> str:
    return f"{low:.1e} to {high:.1e}".replace("e+", "e")


WINDOW_TEXT = _window(*PAPER_WINDOW)
# In standard errors: found at 95% with a power of 80%.
DETECTABLE = 1.96 + 0.84


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
        f"Study {evidence.study.name}: {counted(cells, 'cell')}, {counted(seeds, 'training seed')}, "
        f"{_window(min(flops), max(flops))} training FLOPs (the paper: {WINDOW_TEXT})."
    )


def power_sentence(evidence: Evidence, claim: str) -> str:
    """Return for C1 what the paper's law predicts at these sizes against our spread, else an empty string.

    A gap counts as found when its 95% interval ends above zero; errors are normal with the median standard
    error of the cells.
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
    widths = [(part.high - part.low) / (2 * 1.96) for part in gaps if part.low is not None]
    if not widths:
        return _predicted(rows) + " Our spread is unknown."
    error = float(np.median(widths))
    text = (
        f"{_predicted(rows)} The standard error of one gap is {error:.4f} nats: a gap of "
        f"{DETECTABLE * error:.4f} nats would be found four times in five."
    )
    inside = _inside(rows)
    if inside:
        chance = NormalDist().cdf(float(np.median(inside)) / error - 1.96)
        text += f" The chance to find the predicted one is {chance:.0%}."
    return text


def _predicted(rows: list[Row]) -> str:
    """Say what the paper's law expects inside its window; outside it says nothing."""
    inside = _inside(rows)
    if inside:
        return f"The paper's law predicts gaps of {min(inside):.4f} to {max(inside):.4f} nats here."
    return f"The paper's law was fitted at {WINDOW_TEXT} FLOPs and predicts nothing for this study."


def _inside(rows: list[Row]) -> list[float]:
    """Return the gaps that the law predicts inside its window.

    The table holds SMELT minus Baseline; here, as in the ledger, a positive gap is in favour of SMELT. Where
    the law is worse than a uniform guess (a small vocabulary) it predicts nothing.
    """
    return [-row["gap_predicted"] for row in rows if row["in_window"] and row["gap_predicted"] is not None]
