"""From the name of a run to everything that determines it."""

from __future__ import annotations

from smelt.budget.accounting import budget
from smelt.budget.search import Recipe
from smelt.budget.solver import GOALS, REFUSED, Match, match
from smelt.errors import SmeltError
from smelt.study import Geometry, RunPoint, RunSpec, Study
from smelt.study.geometry import centred_start
from smelt.study.runs import find_point, learning_rate


def resolve_run(study: Study, run_id: str) -> RunSpec:
    """Return the full specification of a run, sizes included.

    Raises:
        SmeltError: the study has no such run, or no sizes hold its Baseline's budgets.
    """
    return resolve_point(study, find_point(study, run_id))


def resolve_point(study: Study, point: RunPoint) -> RunSpec:
    """Return the full specification of a run of `run_points`."""
    try:
        geometry = run_geometry(study, point)
    except SmeltError as error:
        raise SmeltError(f"study {study.name}, run {point.run}: {error}") from None
    return RunSpec(
        point=point,
        geometry=geometry,
        corpus=study.corpus,
        model=study.model,
        training=study.training,
        lr=learning_rate(study, point.scale),
    )


def baseline_geometry(study: Study, scale: str, experts: int) -> Geometry:
    """Return a scale's Baseline with `experts` experts a layer."""
    sizes = study.scales[scale]
    return Geometry(
        hidden=sizes.hidden,
        layers=sizes.layers,
        heads=sizes.heads,
        kv_heads=sizes.kv_heads,
        head_dim=sizes.head_dim,
        experts=experts,
        top_k=study.model.top_k,
        expert_dim=sizes.expert_dim,
    )


def run_geometry(study: Study, point: RunPoint) -> Geometry:
    """Return the sizes of a run: the Baseline's, the study's own for the cell, or matched ones."""
    if point.baseline is None:
        return baseline_geometry(study, point.scale, study.sparsities[point.sparsity])
    explicit = explicit_geometry(study, point)
    return explicit or matched(study, point).geometry


def explicit_geometry(study: Study, point: RunPoint) -> Geometry | None:
    """Return the sizes that the study prescribes for a grid run, or None."""
    sizes = study.loop.configs.get(point.cell)
    if sizes is None or point.arch != "smelt" or study.loop.solve:
        return None
    geometry = Geometry(
        **sizes,
        layers=point.layers,
        top_k=study.model.top_k,
        loop_start=centred_start(point.layers, point.loop_length),
        loop_length=point.loop_length,
        loop_count=point.loop_count,
        loop_order=study.loop.order,
    )
    attended = study.corpus.attended_context
    baseline = baseline_geometry(study, point.scale, study.sparsities[point.sparsity])
    ratios = budget(geometry, attended).ratios(budget(baseline, attended))
    for name, ratio in zip(GOALS, ratios, strict=True):
        if abs(ratio - 1) > REFUSED:
            raise SmeltError(
                f"loop.configs.{point.cell} has {ratio:.3f} times the Baseline's {name}; it must be within "
                f"{REFUSED:.0%}; without the entry the solver finds sizes"
            )
    return geometry


def matched(study: Study, point: RunPoint) -> Match:
    """Return the solver's sizes for a run that has a Baseline."""
    baseline = baseline_geometry(study, point.scale, study.sparsities[point.sparsity])
    return match(baseline, recipe(study, point), study.corpus.attended_context)


def recipe(study: Study, point: RunPoint) -> Recipe:
    """Return the shape that the solver is asked for."""
    experts = None
    if point.arch == "control":
        looped = run_geometry(study, find_point(study, f"{point.cell}-smelt"))
        experts = (looped.experts, looped.expert_dim)
    return Recipe(
        layers=point.layers,
        start=centred_start(point.layers, point.loop_length) if point.loop_length else 0,
        length=point.loop_length,
        count=point.loop_count,
        order=study.loop.order if point.loop_length else "block",
        align=study.loop.align,
        narrow=study.loop.narrow,
        expert_geometry=experts,
    )
