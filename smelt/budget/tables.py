"""The budget tables of a study: runs, pairs, ablation_points, power, published_configs."""

from __future__ import annotations

from dataclasses import fields
from pathlib import Path
from typing import Any

from smelt.budget.accounting import ELEMENT_BYTES, Budget, budget, kv_elements, parameters, sparsity
from smelt.budget.comparison import comparison_rows
from smelt.budget.power import power_rows
from smelt.budget.resolve import baseline_geometry, explicit_geometry, recipe, resolve_point
from smelt.budget.solver import match
from smelt.errors import SmeltError
from smelt.results.parquet import write_table
from smelt.study import Geometry, RunPoint, RunSpec, Study, ablation_points, run_points

GEOMETRY = (*(field.name for field in fields(Geometry)), "effective_layers")


def write_tables(study: Study, seeds: int | None, out: Path) -> dict[str, int]:
    """Write every budget table to the folder `out`; return the rows of each.

    Raises:
        SmeltError: a run's budgets cannot be matched.
    """
    points = run_points(study, seeds)
    specs = {run: resolve_point(study, point) for run, point in points.items()}
    tables = {
        "runs": [run_row(study, spec) for spec in specs.values()],
        "pairs": [pair_row(study, spec, specs[spec.point.baseline]) for spec in specs.values()
                  if spec.point.baseline],
        "ablation_points": [
            {"ablation": row.ablation, "sparsity": row.sparsity, "arch": row.arch, "value": row.value,
             "run": row.run}
            for row in ablation_points(study)
        ],
        "power": power_rows(study),
        "published_configs": comparison_rows(),
    }  # fmt: skip
    for name, rows in tables.items():
        write_table(out, name, rows)
    return {name: len(rows) for name, rows in tables.items()}


def run_budget(study: Study, spec: RunSpec) -> Budget:
    """Return a run's three budgets under the study's accounting."""
    return budget(spec.geometry, study.corpus.attended_context)


def tokens_planned(study: Study) -> int:
    """Return the tokens of one run: the trunk to its last horizon and one branch for each horizon."""
    training = study.training
    steps = training.horizons[-1] + len(training.horizons) * training.decay_steps
    return steps * training.batch * study.corpus.context


def run_row(study: Study, spec: RunSpec) -> dict[str, Any]:
    """Return a run's row of the table `runs`."""
    point, geometry = spec.point, spec.geometry
    count = parameters(geometry)
    cost = run_budget(study, spec)
    active = baseline_geometry(study, point.scale, study.model.top_k)
    control = budget(active, study.corpus.attended_context)
    own = own_control(study, point, control)
    return {
        "run": point.run,
        "cell": point.cell,
        "scale": point.scale,
        "sparsity": point.sparsity,
        "arch": point.arch,
        "grouping": point.group,
        "seed": point.seed,
        "baseline": point.baseline,
        "spec_hash": spec.spec_hash,
        **{name: getattr(geometry, name) for name in GEOMETRY},
        "params_total": count.total,
        "params_active": count.active,
        "params_attention": count.attention,
        "params_experts": count.experts,
        "params_router": count.router,
        "params_norms": count.norms,
        "flops_per_token": cost.flops,
        "kv_bytes_per_token": kv_elements(geometry) * ELEMENT_BYTES[study.training.precision],
        "sparsity_measured": sparsity(cost, control),
        "sparsity_own_control": None if own is None else sparsity(cost, own),
        "lr": spec.lr,
        "tokens_planned": tokens_planned(study),
    }


def own_control(study: Study, point: RunPoint, baseline: Budget) -> Budget | None:
    """Return the budgets of the run's own architecture at S=0, matched to the S=0 Baseline (section 3).

    None where no sizes match that Baseline.
    """
    if point.baseline is None or point.arch == "control":
        return baseline
    attended = study.corpus.attended_context
    active = baseline_geometry(study, point.scale, study.model.top_k)
    try:
        looped = match(active, recipe(study, point), attended).geometry
    except SmeltError:
        return None
    return budget(looped, attended)


def pair_row(study: Study, spec: RunSpec, baseline: RunSpec) -> dict[str, Any]:
    """Return a matched run's row of the table `pairs`."""
    flops, params, kv = run_budget(study, spec).ratios(run_budget(study, baseline))
    return {
        "run": spec.point.run,
        "cell": spec.point.cell,
        "baseline": baseline.point.run,
        "flops_ratio": flops,
        "params_ratio": params,
        "kv_ratio": kv,
        "source": "printed" if explicit_geometry(study, spec.point) else "solver",
    }
