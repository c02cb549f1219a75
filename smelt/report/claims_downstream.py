"""Claims C8 to C15: benchmarks, domains, length and in-context learning."""

from __future__ import annotations

from smelt.report.claims_evidence import Evidence
from smelt.report.claims_rules import (
    Finding,
    Unmeasured,
    judge,
    judge_share,
    partial,
)

# Wins over endpoints in the paper.
PAPER_SHARES = {"completion": 96 / 96, "core": 83 / 96, "mmlu": 29 / 30}


def _wins(evidence: Evidence, metric: str) -> Finding:
    name = f"wins:{metric}"
    if name not in evidence.contrasts:
        raise Unmeasured(evidence.reason(name))
    (part,) = evidence.contrast_components(
        name, f"the share of endpoints that SMELT wins on {metric}", threshold=0.5
    )
    return judge_share(part, PAPER_SHARES[metric], evidence.contrasts[name]["n"], "endpoints")


def completion_wins(evidence: Evidence) -> Finding:
    """C8: SMELT has the lower Completion loss."""
    return _wins(evidence, "completion")


def core_wins(evidence: Evidence) -> Finding:
    """C9: SMELT has the higher Core score."""
    return _wins(evidence, "core")


def mmlu_wins(evidence: Evidence) -> Finding:
    """C10: SMELT has the higher MMLU score where the Baseline is at least 10 points above chance."""
    return _wins(evidence, "mmlu")


def better_at_equal_loss(evidence: Evidence) -> Finding:
    """C11: the mean residual is positive for every scale and each of the three benchmarks."""
    parts = evidence.contrast_components("residual", "the mean residual of {} at scale {}")
    absent = [m for m in PAPER_SHARES if not any(n.startswith(f"residual:{m}:") for n in evidence.contrasts)]
    missing = f"{' and '.join(absent)} is not measured" if absent else ""
    return partial(judge(parts), missing, every=True)


def code_gains_most(evidence: Evidence) -> Finding:
    """C12: the CE gain of Code exceeds that of every other category."""
    parts = evidence.contrast_components("code_margin", "the CE gain of Code minus that of {}")
    return partial(judge(parts), evidence.incomplete("code_margin"), every=True)


def longer_gains_more(evidence: Evidence) -> Finding:
    """C13: the long/short ratio exceeds 1 and that of the other two families of contrasts."""
    ratio = evidence.contrast_components("length_ratio:smelt", "SMELT's long/short ratio", threshold=1.0)
    parts = [*ratio]
    for family in ("experts", "parameters"):
        label = f"SMELT's long/short ratio minus that of more {family}"
        parts += evidence.contrast_components(f"length_margin:{family}", label)
    return judge(parts)


def in_context_gap(evidence: Evidence) -> Finding:
    """C14: the accuracy gap is positive with demonstrations and larger than without."""
    with_shots = evidence.contrast_components("icl_gap:shots", "the accuracy gap with demonstrations")
    growth = evidence.contrast_components("icl_growth", "the growth of the gap from no demonstration to some")
    return judge(with_shots + growth)


def dyck_gap(evidence: Evidence) -> Finding:
    """C15: SMELT is more accurate on Dyck languages at the largest number of demonstrations."""
    return judge(evidence.contrast_components("dyck_gap", "the Dyck accuracy gap at k={}"))
