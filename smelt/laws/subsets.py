"""CE gain by category, by source and by quartile of Baseline loss (figure 10)."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

import numpy as np

from smelt.laws.bootstrap import cell_weights, interval
from smelt.laws.fit import Design, SurfaceModel, fit_many
from smelt.laws.frontier import ce_gain
from smelt.laws.inputs import ARCHS, Results, listing
from smelt.laws.noise import contrast
from smelt.laws.surface import Surface
from smelt.laws.surfaces import MAX_DEGENERATE, SEED, SurfaceAnalysis, coefficients, joined

BASIS = "cell bootstrap; each draw's own exponents"
QUARTILES = 4
DRAWS = 400
Losses = dict[str, dict[tuple[str, int], tuple[float, float]]]


def subset_tables(results: Results, analysis: SurfaceAnalysis) -> dict[str, list[dict[str, Any]]]:
    """Return `law_fits` and `ce_gain` of every category, source and quartile, and the contrasts of C12.

    The aggregate's exponents are kept and E, A and K refitted (section 5), per bootstrap draw with that
    draw's exponents. The gain is that at the main budget and the middle sparsity level.
    """
    if analysis.draws is None:
        reason = analysis.reason or "there is no aggregate surface"
        return {"law_notes": [{"analysis": "code_margin", "ok": False, "reason": reason}]}
    budget, sparsity = analysis.question.main_budget, middle_level(analysis.question.sparsities)
    fits, gains, drawn, levels, doubts, notes = [], {}, {}, {}, {}, []
    for subset, losses in subset_losses(results).items():
        pair = _designs(analysis.designs, losses)
        if pair is None:
            notes.append(f"{subset} lacks endpoints")
            continue
        refits = [_refit(analysis, i, pair[i]) for i in range(2)]
        fits.extend(_fit_row(arch, subset, pair[i], refits[i], analysis) for i, arch in enumerate(ARCHS))
        place = (budget, analysis.question.fraction(sparsity))
        gains[subset] = float(ce_gain(refits[1].point, refits[0].point, *place))
        drawn[subset] = ce_gain(refits[1].draws, refits[0].draws, *place)
        doubts[subset] = joined(*dict.fromkeys(fitted.doubt for fitted in refits))
        levels[subset] = float(pair[0].loss.mean())
    _add_quartiles(gains, drawn, levels, doubts)
    place = (budget, sparsity, analysis.question.extrapolated(budget))
    # What is wrong with the aggregate is said once, however many subsets a number is made of.
    rows = [
        _gain_row(subset, gains[subset], drawn[subset], place, joined(analysis.doubt, doubts[subset]))
        for subset in gains
    ]
    contrasts = _margins(gains, drawn, doubts, analysis.doubt)
    reason = listing(notes)
    if not contrasts:
        reason = reason or "the corpus has no category Code beside others"
    note = {"analysis": "code_margin", "ok": not reason, "reason": reason}
    return {"law_fits": fits, "ce_gain": rows, "law_contrasts": contrasts, "law_notes": [note]}


def middle_level(sparsities: Iterable[int]) -> int:
    """Return the middle sparsity level in percent, 95 in the paper."""
    levels = sorted(sparsities)
    return levels[len(levels) // 2]


def subset_losses(results: Results) -> Losses:
    """Return for each `category:<name>` and `source:<name>` the losses (Baseline, SMELT) by (cell, horizon).

    A source's loss is its summed loss over its tokens; a category's is the mean over its sources, as the
    validation loss is over all. Means are over training seeds.
    """
    pairs: dict[str, dict[tuple[str, int], list[tuple[float, float]]]] = defaultdict(
        lambda: defaultdict(list)
    )
    for row in results.grid_runs("smelt", sparse=True):
        mine, other = (_by_subset(results, run) for run in (row["run"], row["baseline"]))
        for key in mine.keys() & other.keys():
            subset, horizon = key
            pairs[subset][row["cell"], horizon].append((other[key], mine[key]))
    return {
        subset: {key: tuple(np.mean(values, axis=0)) for key, values in sorted(pairs[subset].items())}
        for subset in sorted(pairs)
    }


def _by_subset(results: Results, run: str) -> dict[tuple[str, int], float]:
    sums: dict[tuple[str, str, int], np.ndarray] = defaultdict(lambda: np.zeros(2))
    for row in results.validation.get(run, ()):
        if (run, row["horizon"]) in results.endpoints:
            sums[row["category"], row["source"], row["horizon"]] += (row["loss_sum"], row["tokens"])
    losses: dict[tuple[str, int], float] = {}
    by_category: dict[tuple[str, int], list[float]] = defaultdict(list)
    for (category, source, horizon), (total, tokens) in sorted(sums.items()):
        losses[f"source:{source}", horizon] = total / tokens
        by_category[f"category:{category}", horizon].append(total / tokens)
    return losses | {key: float(np.mean(values)) for key, values in by_category.items()}


def _designs(aggregate: tuple[Design, Design], losses: dict) -> tuple[Design, Design] | None:
    """Return the aggregate's designs with a subset's losses, or None where an endpoint is missing."""
    horizons = {}
    for cell, horizon in losses:
        horizons.setdefault(cell, []).append(horizon)
    keys = []
    for cell in dict.fromkeys(aggregate[0].cell):
        keys.extend((str(cell), horizon) for horizon in sorted(horizons.get(str(cell), [])))
    if len(keys) != len(aggregate[0]):
        return None
    values = np.array([losses[key] for key in keys])
    if not (np.isfinite(values) & (values > 0)).all():
        return None
    return aggregate[0].with_loss(values[:, 0]), aggregate[1].with_loss(values[:, 1])


@dataclass(frozen=True)
class _Refit:
    """E, A and K of a subset at the aggregate's exponents, and of each draw at that draw's."""

    point: Surface
    draws: Surface
    doubt: str


def _refit(analysis: SurfaceAnalysis, index: int, design: Design) -> _Refit:
    """Refit one architecture's surface on a subset; a doubt where coefficients end on a bound."""
    law = analysis.fits[index].law
    draws = getattr(analysis.draws, ARCHS[index])
    usable = np.flatnonzero(~analysis.draws.degenerate)[:DRAWS]
    weights = cell_weights(design, len(analysis.draws.degenerate), SEED)[usable]
    log_loss = np.log(design.loss)[None]

    def fit(exponents: Surface, weights_pn: np.ndarray) -> tuple[Surface, np.ndarray]:
        rows = np.zeros(len(weights_pn), dtype=int)
        start = SurfaceModel(design, log_loss, rows).parameters(exponents)
        held = {name: getattr(exponents, name) for name in "abc"}
        surface, _, on_bound = fit_many(design, log_loss, weights_pn, rows, start[:, None], held)
        return surface, on_bound

    one = Surface(**{name: np.atleast_1d(value) for name, value in law.columns().items()})
    (point, at_bound), (sample, bounds) = (
        fit(one, np.ones((1, len(design)))),
        fit(draws.draw(usable), weights),
    )
    doubt = ""
    if at_bound.any():
        doubt = f"{ARCHS[index]}: a coefficient of the subset is on a bound"
    elif bounds.mean() > MAX_DEGENERATE:
        doubt = (
            f"{ARCHS[index]}: a coefficient of the subset is on a bound in {bounds.mean():.0%} of the draws"
        )
    return _Refit(point.draw(0), sample, doubt)


def _fit_row(
    arch: str, subset: str, design: Design, fitted: _Refit, analysis: SurfaceAnalysis
) -> dict[str, Any]:
    law = fitted.point
    errors = law.loss(design.flops, design.sparsity, design.tokens) - design.loss
    row = {"arch": arch, "subset": subset, "n": len(design), "condition": None} | coefficients(law)
    return row | {
        "rmse": float(np.sqrt(np.mean(errors**2))),
        "converged": not (analysis.doubt or fitted.doubt),
        "note": joined(analysis.note, fitted.doubt) or "exponents of the aggregate",
    }


def _add_quartiles(
    gains: dict[str, float], drawn: dict[str, np.ndarray], levels: dict[str, float], doubts: dict[str, str]
) -> None:
    """Add `quartile:1`..`quartile:4`: mean gain of the sources by quartile of their mean Baseline loss."""
    sources = sorted((name for name in gains if name.startswith("source:")), key=lambda name: levels[name])
    if len(sources) < QUARTILES:
        return
    for number, names in enumerate(np.array_split(np.array(sources), QUARTILES), start=1):
        gains[f"quartile:{number}"] = float(np.mean([gains[name] for name in names]))
        drawn[f"quartile:{number}"] = np.mean([drawn[name] for name in names], axis=0)
        doubts[f"quartile:{number}"] = joined(*dict.fromkeys(doubts[name] for name in names))


def _gain_row(
    subset: str, gain: float, sample: np.ndarray, place: tuple[float, int, bool], note: str
) -> dict[str, Any]:
    budget, sparsity, extrapolated = place
    low, high = interval(sample)
    row = {"budget": budget, "sparsity": sparsity, "subset": subset, "gain": gain}
    row |= {"low": float(low), "high": float(high), "low_calibrated": None, "high_calibrated": None}
    return row | {"extrapolated": extrapolated, "note": note}


def _margins(
    gains: dict[str, float], drawn: dict[str, np.ndarray], doubts: dict[str, str], aggregate: str
) -> list[dict[str, Any]]:
    """Return `code_margin:<category>`: the gain of Code minus that of each other category."""
    code = "category:Code"
    rows = []
    for subset in gains:
        if code in gains and subset.startswith("category:") and subset != code:
            low, high = interval(drawn[code] - drawn[subset])
            name = f"code_margin:{subset.removeprefix('category:')}"
            note = joined(aggregate, *dict.fromkeys((doubts[code], doubts[subset])))
            value, ends = gains[code] - gains[subset], (float(low), float(high))
            rows.append(contrast(name, value, ends, "fraction", len(drawn[subset]), BASIS, note))
    return rows
