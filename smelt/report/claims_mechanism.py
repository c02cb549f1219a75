"""Claims C16 to C22: what happens in the second pass. Intervals are over documents of one trained model."""

from __future__ import annotations

from smelt.report.claims_evidence import (
    MODEL_BASIS,
    Evidence,
    Row,
    difference_component,
    value_component,
)
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
    """Return the differences from the reference; a model that has no reference (one head) is left out."""
    found = evidence.diagnostic(name, runs)
    parts = [
        difference_component(label.format(run["run"]), row, sign)
        for run, row in found
        if row["difference"] is not None
    ]
    if found and not parts:
        raise Unmeasured(f"no run has a reference for {name}")
    return parts


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
    runs, label = evidence.grid("smelt"), "the cross-visit update cosine of {}"
    found = evidence.diagnostic("update_cosine", runs)
    parts = [value_component(label.format(run["run"]), row) for run, row in found]
    others = _differences(evidence, "update_cosine", runs, f"{label} minus that of other pairs")
    return judge(parts + others)


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
    """C22: the Dyck head's mass moves from BOS to the answers, at the lowest sparse level.

    Models in which ablating no head raises the Dyck perplexity have no Dyck head and are left out; where none
    has one the claim is inconclusive.
    """
    runs, without = [], []
    for run in _at_sparse_level(evidence, "smelt"):
        chosen = [row for row in evidence.mechanism("dyck_heads", run["run"]) if row["selected"]]
        if not chosen:
            raise Unmeasured(f"run {run['run']} has no selected Dyck head")
        ends = (chosen[0]["low"], chosen[0]["high"])
        label = f"the rise of Dyck perplexity without the head of {run['run']}"
        if ends[0] is not None and ends[0] > 0:
            runs.append(run)
        else:
            without.append(Component(label, chosen[0]["delta"], *ends, basis=MODEL_BASIS))
    if without and not runs:
        reason = "In no model does the ablation of a single head of the span clearly raise Dyck perplexity."
        return Finding(INCONCLUSIVE, reason, without[-1])
    parts = _differences(evidence, "dyck_bos", runs, "BOS mass, second visit minus first, in {}", sign=-1)
    parts += _differences(evidence, "dyck_answers", runs, "answer mass, second visit minus first, in {}")
    return judge(parts)
