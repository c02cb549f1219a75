"""Claims C1 to C7: loss, recipe and scaling law."""

from __future__ import annotations

from dataclasses import replace

from smelt.report.claims_evidence import Evidence, component
from smelt.report.claims_referees import crossover_sentence, referee_sentence
from smelt.report.claims_rules import Component, Finding, Unmeasured, judge, judge_band, partial

TPP_TOLERANCE = 0.06


def lower_loss(evidence: Evidence) -> Finding:
    """C1: the gap at the last horizon is positive in every cell."""
    parts = evidence.contrast_components("loss_gap", "the loss gap of cell {}")
    finding = partial(judge(parts), evidence.incomplete("loss_gap"), every=True)
    beside = f"{crossover_sentence(evidence)} {referee_sentence(evidence)}"
    return replace(finding, reason=f"{finding.reason} {beside}")


def best_span(evidence: Evidence) -> Finding:
    """C2: every other span is worse than the half span, at each sparsity of the ablation."""
    label = "the excess loss at S={}% of looping {} layers over looping half of them"
    return judge(evidence.contrast_components("span_margin", label))


def deeper_optimum(evidence: Evidence) -> Finding:
    """C3: the looped model's best effective depth exceeds the Baseline's best depth."""
    return judge(evidence.contrast_components("depth_shift", "the shift of the best effective depth"))


def two_visits(evidence: Evidence) -> Finding:
    """C4: every other number of visits is worse than two."""
    label = "the excess loss at S={}% of a visit count of {} over two"
    return judge(evidence.contrast_components("loops_margin", label))


def larger_exponents(evidence: Evidence) -> Finding:
    """C5: both a and c are larger for SMELT."""
    return judge([_exponent(evidence, name) for name in ("a", "c")])


def _exponent(evidence: Evidence, name: str) -> Component:
    contrast = evidence.contrasts.get(f"exponent:{name}")
    if contrast is None:
        raise Unmeasured(evidence.reason("surface"))
    return component(f"the difference in {name}", contrast, "value")


def compute_gain(evidence: Evidence) -> Finding:
    """C6: the CE gain is positive at both budgets inside the window and grows between them, at every S."""
    rows = [row for row in evidence.laws("ce_gain") if row["subset"] == "all"]
    budgets = sorted({row["budget"] for row in rows})[:2]
    parts = [
        component(f"the CE gain at {row['budget']:.2g} FLOPs, S={row['sparsity']}%", row, "gain")
        for row in rows
        if row["budget"] in budgets
    ]
    if not parts:
        raise Unmeasured(evidence.reason("surface"))
    growth = evidence.contrast_components("gain_growth", "the growth of the CE gain at S={}%")
    return judge(parts + growth)


def equal_tpp(evidence: Evidence) -> Finding:
    """C7: the optimal tokens per parameter of both differ by at most 6%."""
    if not any(name.startswith("tpp_ratio:") for name in evidence.contrasts):
        raise Unmeasured(evidence.reason("surface"))
    parts = evidence.contrast_components("tpp_ratio", "the ratio of optimal TPP at S={}%")
    return judge_band(parts, 1 - TPP_TOLERANCE, 1 + TPP_TOLERANCE)
