"""Tables 3 to 5 from our runs, and what claims C2 to C4 read off them."""

from __future__ import annotations

from collections import defaultdict
from typing import Any

import numpy as np

from smelt.laws.inputs import Results, listing
from smelt.laws.noise import Spread, contrast, difference_spread
from smelt.laws.surfaces import SurfaceAnalysis
from smelt.study.runs import span_layers

# Simulated sweeps behind the interval of the best depth.
DRAWS = 4000
Losses = dict[int, list[float]]


def ablation_tables(results: Results, analysis: SurfaceAnalysis) -> dict[str, list[dict[str, Any]]]:
    """Return `ablation_results`, the contrasts of C2 to C4 and notes on what is missing."""
    rows, missing = [], []
    sweeps: dict[tuple[str, int, str], Losses] = defaultdict(dict)
    for point in results.ablation_points:
        runs = _seed_runs(results, point["run"])
        if not runs:
            missing.append(f"{point['run']} has no endpoint at the last horizon")
            continue
        rows.append(_row(results, point, runs))
        losses = [results.endpoints[run, results.study.training.horizons[-1]]["val_loss"] for run in runs]
        sweeps[point["ablation"], point["sparsity"], point["arch"]][point["value"]] = losses
    contrasts = [
        *_margins(results, sweeps, analysis, "span"),
        *_margins(results, sweeps, analysis, "loops"),
        *_depth_shift(results, sweeps, analysis),
    ]
    notes = [{"analysis": "ablations", "ok": not missing, "reason": listing(missing)}]
    for analysis in ("span_margin", "loops_margin", "depth_shift"):
        found = any(row["contrast"].startswith(analysis) for row in contrasts)
        reason = "" if found else listing(missing) or "the study has no such ablation"
        notes.append({"analysis": analysis, "ok": found, "reason": reason})
    return {"ablation_results": rows, "law_contrasts": contrasts, "law_notes": notes}


def _seed_runs(results: Results, first: str) -> list[str]:
    """Return the runs of all seeds of an ablation point that reached the last horizon."""
    last = results.study.training.horizons[-1]
    names = [first if seed == 0 else f"{first}-seed{seed}" for seed in results.seeds]
    return [name for name in names if (name, last) in results.endpoints]


def _row(results: Results, point: dict[str, Any], runs: list[str]) -> dict[str, Any]:
    last = results.study.training.horizons[-1]
    ends = [results.endpoints[run, last] for run in runs]
    row = {name: point[name] for name in ("ablation", "sparsity", "arch", "value", "run")}
    row |= {"effective_layers": results.runs[runs[0]]["effective_layers"], "seeds": len(runs)}
    for column in ("val_loss", "core", "completion"):
        values = [end[column] for end in ends]
        known = None not in values
        row[column] = float(np.mean(values)) if known else None
        several = known and len(values) > 1
        row[f"{column}_se_training"] = (
            float(np.std(values, ddof=1) / np.sqrt(len(values))) if several else None
        )
    row["core_se_evaluation"] = _evaluation_error(results, runs, last) if row["core"] is not None else None
    return row


def _evaluation_error(results: Results, runs: list[str], horizon: int) -> float | None:
    """Return the standard error of Core over the seeds that choose demonstrations; None with one seed.

    Tasks draw their demonstrations independently, so their squared errors add; a task that is evaluated once
    adds nothing.
    """
    variances = []
    for run in runs:
        by_task: dict[str, list[float]] = defaultdict(list)
        for row in results.scores(run, horizon, "accuracy"):
            task = results.tasks[row["task"]]
            if task["core"] and row["shots"] == task["shots"]:
                by_task[row["task"]].append(row["value"] / (1 - row["chance"]))
        repeated = [values for values in by_task.values() if len(values) > 1]
        if not repeated:
            return None
        errors = [np.var(values, ddof=1) / len(values) for values in repeated]
        variances.append(sum(errors) / len(by_task) ** 2)
    return float(np.sqrt(np.mean(variances) / len(runs)))


def _margins(
    results: Results, sweeps: dict, analysis: SurfaceAnalysis, ablation: str
) -> list[dict[str, Any]]:
    """Return `<ablation>_margin:<S>:<value>`: the excess loss in nats over the recipe's own value."""
    recipe = _recipe_value(results, ablation)
    merged: dict[int, Losses] = defaultdict(dict)
    for (kind, sparsity, _), losses in sweeps.items():
        if kind == ablation:
            merged[sparsity] |= losses
    groups: dict[tuple[int, int], list[float]] = {}
    for sparsity, losses in merged.items():
        for value in losses:
            if value != recipe and recipe in losses:
                pairs = zip(losses[value], losses[recipe], strict=False)
                groups[sparsity, value] = [other - ours for other, ours in pairs]
    spread = difference_spread(groups, analysis)
    rows = []
    for (sparsity, value), differences in groups.items():
        mean = float(np.mean(differences))
        name = f"{ablation}_margin:{sparsity}:{value}"
        ends = spread.ends(mean, len(differences))
        rows.append(contrast(name, mean, ends, "nats", len(differences), spread.basis))
    return rows


def _recipe_value(results: Results, ablation: str) -> int | None:
    study = results.study
    if not study.ablations:
        return None
    layers = study.scales[study.ablations["scale"]].layers
    return span_layers(study, layers) if ablation == "span" else study.loop.visits


def _depth_shift(results: Results, sweeps: dict, analysis: SurfaceAnalysis) -> list[dict[str, Any]]:
    """Return `depth_shift:<S>`: best effective depth of the looped model minus the Baseline's, in layers.

    The interval is over simulated sweeps: each point's loss plus normal noise, best depths taken anew.
    """
    rows = []
    for sparsity in sorted({sparsity for kind, sparsity, _ in sweeps if kind == "depth"}):
        sides = [sweeps.get(("depth", sparsity, arch), {}) for arch in ("looped", "baseline")]
        if any(len(side) < 2 for side in sides):
            continue
        spread = difference_spread(_within(sides), analysis)
        generator = np.random.default_rng(0)
        depths = [
            _effective(results, side, looped) for side, looped in zip(sides, (True, False), strict=True)
        ]
        best = [depth[int(np.argmin(_means(side)))] for depth, side in zip(depths, sides, strict=True)]
        ends = (None, None)
        if spread.deviation is not None:
            drawn = [
                _best_draws(side, depth, spread, generator) for side, depth in zip(sides, depths, strict=True)
            ]
            low, high = np.percentile(drawn[0] - drawn[1], (2.5, 97.5))
            ends = (float(low), float(high))
        at_edge = [
            name
            for name, depth, value in zip(("looped", "Baseline"), depths, best, strict=True)
            if value in (depth.min(), depth.max())
        ]
        basis = spread.basis
        if at_edge:
            basis += f"; the best {' and '.join(at_edge)} depth is at the edge of its sweep"
        count = sum(len(side) for side in sides)
        rows.append(
            contrast(f"depth_shift:{sparsity}", float(best[0] - best[1]), ends, "layers", count, basis)
        )
    return rows


def _within(sides: list[Losses]) -> dict[tuple[int, int], list[float]]:
    """Return differences from the seed's mean over the sweep, by point: what training seeds do not share."""
    groups = {}
    for index, side in enumerate(sides):
        seeds = min(len(values) for values in side.values())
        level = np.mean([values[:seeds] for values in side.values()], axis=0)
        for value, losses in side.items():
            groups[index, value] = list(np.array(losses[:seeds]) - level)
    return groups


def _means(side: Losses) -> np.ndarray:
    return np.array([np.mean(side[value]) for value in sorted(side)])


def _effective(results: Results, side: Losses, looped: bool) -> np.ndarray:
    """Return the effective depths of a sweep's physical depths, ascending."""
    study = results.study
    extra = (study.loop.visits - 1) if looped else 0
    return np.array([value + extra * span_layers(study, value) for value in sorted(side)])


def _best_draws(
    side: Losses, depth: np.ndarray, spread: Spread, generator: np.random.Generator
) -> np.ndarray:
    seeds = min(len(values) for values in side.values())
    # The spread is that of a difference of two runs; one run's share of its variance is a half.
    deviation = spread.deviation / np.sqrt(2 * seeds)
    noise = deviation * generator.normal(size=(DRAWS, len(depth)))
    return depth[np.argmin(_means(side) + noise, axis=1)]
