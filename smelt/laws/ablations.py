"""Tables 3 to 5 from our runs, and what claims C2 to C4 read off them."""

from __future__ import annotations

from collections import defaultdict
from typing import Any

import numpy as np

from smelt.laws.inputs import Results, listing
from smelt.laws.noise import Spread, common_seeds, contrast, margin_spread, mean, paired, run_spread
from smelt.laws.surfaces import SurfaceAnalysis
from smelt.study.runs import span_layers

# Simulated sweeps behind the interval of the best depth.
DRAWS = 4000
# Loss in nats by point of a sweep and training seed.
Losses = dict[int, dict[int, float]]
Sweeps = dict[tuple[str, int, str], Losses]


def ablation_tables(results: Results, analysis: SurfaceAnalysis) -> dict[str, list[dict[str, Any]]]:
    """Return `ablation_results`, the contrasts of C2 to C4 and notes on what is missing."""
    rows, missing = [], []
    sweeps: Sweeps = defaultdict(dict)
    for point in results.ablation_points:
        losses = seed_losses(results, point["run"])
        if not losses:
            missing.append(f"{point['run']} has no endpoint at the last horizon")
            continue
        rows.append(_row(results, point, [seed_run(point["run"], seed) for seed in losses]))
        sweeps[point["ablation"], point["sparsity"], point["arch"]][point["value"]] = losses
    contrasts = [
        *_margins(results, sweeps, analysis, "span"),
        *_margins(results, sweeps, analysis, "loops"),
        *_depth_shift(results, sweeps, analysis),
    ]
    notes = [{"analysis": "ablations", "ok": not missing, "reason": listing(missing)}]
    for name in ("span_margin", "loops_margin", "depth_shift"):
        found = any(row["contrast"].startswith(name) for row in contrasts)
        reason = "" if found else listing(missing) or "the study has no such ablation"
        notes.append({"analysis": name, "ok": found, "reason": reason})
    return {"ablation_results": rows, "law_contrasts": contrasts, "law_notes": notes}


def seed_run(first: str, seed: int) -> str:
    """Return the identifier of a run under another training seed than the first."""
    return first if seed == 0 else f"{first}-seed{seed}"


def seed_losses(results: Results, first: str) -> dict[int, float]:
    """Return a run's loss in nats at the last horizon by training seed, of the seeds that reached it."""
    last = results.study.training.horizons[-1]
    ends = {seed: results.endpoints.get((seed_run(first, seed), last)) for seed in results.seeds}
    return {seed: end["val_loss"] for seed, end in ends.items() if end is not None}


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

    All trainings of a point see the same demonstrations, so they are averaged first. Tasks draw theirs
    independently, so their squared errors add; a task that is evaluated once adds nothing.
    """
    by_task: dict[str, dict[int, list[float]]] = defaultdict(lambda: defaultdict(list))
    for run in runs:
        for row in results.scores(run, horizon, "accuracy"):
            task = results.tasks[row["task"]]
            if task["core"] and row["shots"] == task["shots"]:
                by_task[row["task"]][row["seed"]].append(row["value"] / (1 - row["chance"]))
    means = [[np.mean(values) for values in seeds.values()] for seeds in by_task.values()]
    errors = [np.var(values, ddof=1) / len(values) for values in means if len(values) > 1]
    return float(np.sqrt(sum(errors)) / len(by_task)) if errors else None


def _margins(
    results: Results, sweeps: Sweeps, analysis: SurfaceAnalysis, ablation: str
) -> list[dict[str, Any]]:
    """Return `<ablation>_margin:<S>:<value>`: the excess loss in nats over the recipe's own value."""
    recipe = _recipe_value(results, ablation)
    merged: dict[int, Losses] = defaultdict(dict)
    for (kind, sparsity, _), losses in sweeps.items():
        if kind == ablation:
            merged[sparsity] |= losses
    spread = margin_spread(list(merged.values()), analysis)
    rows = []
    for sparsity, losses in merged.items():
        for value in losses:
            differences = paired(losses[value], losses.get(recipe, {}))
            if value != recipe and differences:
                margin, count = mean(differences), len(differences)
                name = f"{ablation}_margin:{sparsity}:{value}"
                rows.append(contrast(name, margin, spread.ends(margin, count), "nats", count, spread.basis))
    return rows


def _recipe_value(results: Results, ablation: str) -> int | None:
    study = results.study
    if not study.ablations:
        return None
    layers = study.scales[study.ablations["scale"]].layers
    return span_layers(study, layers) if ablation == "span" else study.loop.visits


def _depth_shift(results: Results, sweeps: Sweeps, analysis: SurfaceAnalysis) -> list[dict[str, Any]]:
    """Return `depth_shift:<S>`: best effective depth of the looped model minus the Baseline's, in layers.

    The interval is over simulated sweeps: each point's loss plus normal noise, whose size is itself drawn
    with the freedom of its estimate, best depths taken anew.
    """
    rows = []
    for sparsity in sorted({sparsity for kind, sparsity, _ in sweeps if kind == "depth"}):
        sides = [sweeps.get(("depth", sparsity, arch), {}) for arch in ("looped", "baseline")]
        if any(len(side) < 2 or not common_seeds(side) for side in sides):
            continue
        depths = [
            _effective(results, side, looped) for side, looped in zip(sides, (True, False), strict=True)
        ]
        best = [depth[int(np.argmin(_means(side)))] for depth, side in zip(depths, sides, strict=True)]
        shift = float(best[0] - best[1])
        spread = run_spread(sides, analysis)
        ends = (None, None) if spread.deviation is None else _shift_ends(sides, depths, spread)
        count = sum(len(side) for side in sides)
        note = _edge_note(depths, best)
        rows.append(contrast(f"depth_shift:{sparsity}", shift, ends, "layers", count, spread.basis, note))
    return rows


def _edge_note(depths: list[np.ndarray], best: list[int]) -> str:
    """Say which best depth is merely where its sweep ends, or return an empty string.

    A looped model that is best at the deepest point may only be better still beyond: that cannot make a
    shift towards deeper looped models smaller.
    """
    looped, baseline = depths
    edges = []
    if best[0] == looped.min() or (best[0] == looped.max() and best[0] <= best[1]):
        edges.append("looped")
    if best[1] in (baseline.min(), baseline.max()):
        edges.append("Baseline")
    if not edges:
        return ""
    return f"the best depth of the {' and the '.join(edges)} sweep is at its edge and may lie beyond"


def _means(side: Losses) -> np.ndarray:
    """Return the mean losses of a sweep, shallowest first, over the seeds that all of its points have."""
    seeds = common_seeds(side)
    return np.array([np.mean([side[value][seed] for seed in seeds]) for value in sorted(side)])


def _effective(results: Results, side: Losses, looped: bool) -> np.ndarray:
    """Return the effective depths of a sweep's physical depths, ascending."""
    study = results.study
    extra = (study.loop.visits - 1) if looped else 0
    return np.array([value + extra * span_layers(study, value) for value in sorted(side)])


def _shift_ends(sides: list[Losses], depths: list[np.ndarray], spread: Spread) -> tuple[float, float]:
    """Return the 95% interval of the difference in best depth under noise of the size of `spread`."""
    generator = np.random.default_rng(0)
    deviations_d = spread.deviation * np.sqrt(spread.freedom / generator.chisquare(spread.freedom, DRAWS))
    drawn = []
    for side, depth in zip(sides, depths, strict=True):
        noise_dp = generator.normal(size=(DRAWS, len(depth))) / np.sqrt(len(common_seeds(side)))
        losses_dp = _means(side) + deviations_d[:, None] * noise_dp
        drawn.append(depth[np.argmin(losses_dp, axis=1)])
    low, high = np.percentile(drawn[0] - drawn[1], (2.5, 97.5))
    return float(low), float(high)
