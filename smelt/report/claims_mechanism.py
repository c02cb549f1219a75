"""Claims C16 to C22: what happens in the second pass. Intervals are over documents of one trained model."""

from __future__ import annotations

from smelt.report.claims_evidence import Evidence, Row, difference_component
from smelt.report.claims_rules import INCONCLUSIVE, Component, Finding, Unmeasured, judge

NORM_RATIOS = ("update_ratio", "attention_ratio", "moe_ratio", "norm_ratio")


def _sparse_level(evidence: Evidence) -> int:
    """Return the lowest sparse level, at which the paper shows figures 13, 16, 17, 19 and 25 (S = 85%)."""
    levels = [percent for percent in evidence.study.sparsities if percent > 0]
    if not levels:
        raise Unmeasured("the study has no sparse cell")
    return min(levels)


def _at_sparse_level(evidence: Evidence, arch: str) -> list[Row]:
    level = _sparse_level(evidence)
    return [row for row in evidence.grid(arch) if row["sparsity"] == level]


def _differences(
    evidence: Evidence, name: str, runs: list[Row], label: str, sign: int = 1
) -> list[Component]:
    return [
        difference_component(label.format(run["run"]), row, sign)
        for run, row in evidence.diagnostic(name, runs)
    ]


def experts_reused(evidence: Evidence) -> Finding:
    """C16: both visits share more experts than chance, in every cell with a choice of experts."""
    runs = [row for row in evidence.grid("smelt") if row["experts"] > row["top_k"]]
    return judge(_differences(evidence, "expert_overlap", runs, "expert overlap above chance in {}"))


def writes_grow(evidence: Evidence) -> Finding:
    """C17: all four norm ratios of the second visit to the first exceed 1 in every cell."""
    parts = []
    for name in NORM_RATIOS:
        label = f"the {name.replace('_', ' ')} above 1 in {{}}"
        parts += _differences(evidence, name, evidence.grid("smelt"), label)
    return judge(parts)


def updates_align(evidence: Evidence) -> Finding:
    """C18: the same layer's updates in both visits have a positive cosine, above that of other pairs."""
    found = evidence.diagnostic("update_cosine", evidence.grid("smelt"))
    parts = []
    for run, row in found:
        label = f"the cross-visit update cosine of {run['run']}"
        parts.append(Component(label, row["value"], row["low"], row["high"]))
        parts.append(difference_component(f"{label} minus that of other pairs", row))
    return judge(parts)


def keys_stay(evidence: Evidence) -> Finding:
    """C19: cos(Q) and cos(K) are at or above cos(X), cos(V) is below; at the lowest sparse level."""
    runs = _at_sparse_level(evidence, "smelt")
    parts = []
    for stage, sign in (("Q", 1), ("K", 1), ("V", -1)):
        label = f"cos({stage}) minus cos(X) in {{}}"
        parts += _differences(evidence, f"cosine_{stage}", runs, label, sign)
    return judge(parts)


def tokens_shared(evidence: Evidence) -> Finding:
    """C20: the top-8 attended tokens of both visits overlap more than those of another head."""
    runs = evidence.grid("smelt")
    return judge(_differences(evidence, "top8_overlap", runs, "top-8 overlap above the control in {}"))


def sink_recedes(evidence: Evidence) -> Finding:
    """C21: the sink is lower on the second visit, the Baseline's grows with depth; lowest sparse level."""
    looped = _at_sparse_level(evidence, "smelt")
    parts = _differences(evidence, "sink", looped, "sink mass, second visit minus first, in {}", sign=-1)
    baseline = _at_sparse_level(evidence, "baseline")
    return judge(parts + _differences(evidence, "sink_depth", baseline, "sink growth with depth in {}"))


def dyck_head_moves(evidence: Evidence) -> Finding:
    """C22: the Dyck head's mass moves from BOS to the answers; largest scale, lowest sparse level.

    Where ablating no head raises the Dyck perplexity there is no Dyck head to speak of: inconclusive.
    """
    scale = list(evidence.study.scales)[-1]
    runs = [row for row in _at_sparse_level(evidence, "smelt") if row["scale"] == scale]
    parts = []
    for run in runs:
        chosen = [row for row in evidence.mechanism("dyck_heads", run["run"]) if row["selected"]]
        if not chosen:
            raise Unmeasured(f"run {run['run']} has no selected Dyck head")
        label = f"the rise of Dyck perplexity without the head of {run['run']}"
        parts.append(Component(label, chosen[0]["delta"], chosen[0]["low"], chosen[0]["high"]))
        if chosen[0]["low"] is not None and chosen[0]["low"] <= 0:
            return Finding(
                INCONCLUSIVE,
                f"No head of the span of {run['run']} matters for Dyck languages: the rise of perplexity "
                f"without the best one is {parts[-1].value:.3g} [{parts[-1].low:.3g}, {parts[-1].high:.3g}].",
                parts[-1],
            )
    parts += _differences(evidence, "dyck_bos", runs, "BOS mass, second visit minus first, in {}", sign=-1)
    parts += _differences(evidence, "dyck_answers", runs, "answer mass, second visit minus first, in {}")
    return judge(parts)
