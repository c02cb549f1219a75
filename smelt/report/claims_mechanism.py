"""Claims C16 to C22: what happens in the second pass, by separately trained models."""

from __future__ import annotations

from smelt.report.claims_evidence import Evidence, Row, difference_component, value_component
from smelt.report.claims_models import Family, judge_every_model, judge_models
from smelt.report.claims_rules import INCONCLUSIVE, Finding, Unmeasured, partial

NORM_RATIOS = ("update_ratio", "attention_ratio", "moe_ratio", "norm_ratio")
# How far cos(Q) and cos(K) may fall short of cos(X) and still be "at" it, on a scale that ends at 1.
COSINE_MARGIN = 0.02


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
    evidence: Evidence, name: str, runs: list[Row], label: str, sign: int = 1, threshold: float = 0.0
) -> Family:
    """Return the differences from the reference of the models that have one."""
    parts = {
        run["run"]: difference_component(label, row, sign, threshold)
        for run, row in evidence.diagnostic(name, runs)
        if row["difference"] is not None
    }
    if runs and not parts:
        raise Unmeasured(f"no run has a reference for {name}")
    return Family(label, parts)


def _missing(runs: list[Row], families: list[Family]) -> str:
    """Say how many of the models the claim is about lack one of its quantities; empty where none does."""
    least = min(len(family.parts) for family in families)
    return f"only {least} of {len(runs)} models have what it is about" if least < len(runs) else ""


def experts_reused(evidence: Evidence) -> Finding:
    """C16: both visits share more experts than chance, in every cell with a choice of experts."""
    runs = [row for row in evidence.grid("smelt") if row["experts"] > row["top_k"]]
    families = [_differences(evidence, "expert_overlap", runs, "expert overlap above chance")]
    return partial(judge_every_model(families), _missing(runs, families), every=True)


def writes_grow(evidence: Evidence) -> Finding:
    """C17: all four norm ratios of the second visit to the first exceed 1 in every cell."""
    runs = evidence.grid("smelt")
    families = [
        _differences(evidence, name, runs, f"the {name.replace('_', ' ')} above 1") for name in NORM_RATIOS
    ]
    return partial(judge_every_model(families), _missing(runs, families), every=True)


def updates_align(evidence: Evidence) -> Finding:
    """C18: the same layer's updates in both visits have a positive cosine, above that of other pairs."""
    runs, label = evidence.grid("smelt"), "the cross-visit update cosine"
    found = evidence.diagnostic("update_cosine", runs)
    parts = {run["run"]: value_component(label, row) for run, row in found}
    others = _differences(evidence, "update_cosine", runs, f"{label} minus that of other pairs")
    families = [Family(label, parts), others]
    return partial(judge_models(families), _missing(runs, families))


def keys_stay(evidence: Evidence) -> Finding:
    """C19: cos(Q) and cos(K) are at or above cos(X) (no more than 0.02 below), cos(V) is below; lowest S."""
    runs = _at_sparse_level(evidence, "smelt")
    families = [
        _differences(evidence, f"cosine_{stage}", runs, f"cos({stage}) minus cos(X)", sign, threshold)
        for stage, sign, threshold in (("Q", 1, -COSINE_MARGIN), ("K", 1, -COSINE_MARGIN), ("V", -1, 0.0))
    ]
    return partial(judge_models(families), _missing(runs, families))


def tokens_shared(evidence: Evidence) -> Finding:
    """C20: the top-8 attended tokens of both visits overlap more than those of another head."""
    runs = evidence.grid("smelt")
    families = [_differences(evidence, "top8_overlap", runs, "top-8 overlap above the control")]
    return partial(judge_models(families), _missing(runs, families))


def sink_recedes(evidence: Evidence) -> Finding:
    """C21: the sink is lower on the second visit, the Baseline's grows with depth; lowest sparse level."""
    looped, baseline = (_at_sparse_level(evidence, arch) for arch in ("smelt", "baseline"))
    families = [
        _differences(evidence, "sink", looped, "sink mass, second visit minus first", sign=-1),
        _differences(evidence, "sink_depth", baseline, "sink growth with depth in the Baseline"),
    ]
    missing = _missing(looped, families[:1]) or _missing(baseline, families[1:])
    return partial(judge_models(families), missing)


def dyck_head_moves(evidence: Evidence) -> Finding:
    """C22: the Dyck head's mass moves from BOS to the answers, at the lowest sparse level.

    A model in which ablating no head clearly raises the Dyck perplexity has no Dyck head; it counts as one of
    the models, so that the claim is not decided by those that have one.
    """
    runs = _at_sparse_level(evidence, "smelt")
    having = []
    for run in runs:
        chosen = [row for row in evidence.mechanism("dyck_heads", run["run"]) if row["selected"]]
        if not chosen:
            raise Unmeasured(f"run {run['run']} has no selected Dyck head")
        if chosen[0]["low"] is not None and chosen[0]["low"] > 0:
            having.append(run)
    if runs and not having:
        reason = "In no model does the ablation of a single head of the span clearly raise Dyck perplexity."
        return Finding(INCONCLUSIVE, reason, None)
    families = [
        _differences(evidence, "dyck_bos", having, "BOS mass, second visit minus first", sign=-1),
        _differences(evidence, "dyck_answers", having, "answer mass, second visit minus first"),
    ]
    missing = ""
    if len(having) < len(runs):
        missing = f"only {len(having)} of {len(runs)} models have a Dyck head"
    return partial(judge_models(families), missing)
