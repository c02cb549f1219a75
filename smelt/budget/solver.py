"""Find sizes whose FLOPs, parameters and KV cache equal a Baseline's, for any depth and loop.

Of the candidates of `smelt.budget.search` the one with the least cost is taken: how far it is from the
preferred shape, and how far from the budgets. Nothing is random, ties are broken by size.
"""

from __future__ import annotations

import functools
from dataclasses import dataclass, replace

import numpy as np

from smelt.budget.accounting import budget
from smelt.budget.search import Recipe, Sizes, candidates, ratios
from smelt.errors import SmeltError
from smelt.study import Geometry

# Relative mismatch aimed at, and the mismatch beyond which a pair is no longer compute-matched.
GOALS = {"flops": 0.01, "params": 0.003, "kv": 0.02}
REFUSED = 0.10

# Cost of a relative change (absolute log ratio) of each size; what is narrowed first is cheap.
# `active` is top_k experts together, `ratio` the query width per hidden size.
PREFERENCES = {
    "hidden": {"hidden": 0.25, "query": 0.0, "ratio": 0.5, "active": 0.25, "experts": 0.5},
    "experts": {"hidden": 4.0, "query": 0.5, "ratio": 0.0, "active": 0.0, "experts": 0.5},
    "heads": {"hidden": 4.0, "query": 0.0, "ratio": 0.0, "active": 0.5, "experts": 0.5},
}
HEAD_COST = 0.05  # of head_dim and kv_heads, which matter least
OTHER_RATIO_COST = 0.1  # of an expert count other than L_eff/L times the Baseline's, the ratio of all cells
MISMATCH_COST = 0.1  # of a mismatch as large as its goal
MISSED_COST = 1.0  # of missing a goal at all
EXCESS_COST = 1.0  # of every further goal beyond the goal
SHORTLIST = 2000
ORDER = ("hidden", "kv_heads", "head_dim", "heads", "expert_dim", "experts", "top_k")


@dataclass(frozen=True)
class Match:
    """A matched model: its geometry and its budgets relative to the Baseline's."""

    geometry: Geometry
    flops_ratio: float
    params_ratio: float
    kv_ratio: float

    @property
    def mismatch(self) -> dict[str, float]:
        """Relative deviation of each budget, signed."""
        return {"flops": self.flops_ratio - 1, "params": self.params_ratio - 1, "kv": self.kv_ratio - 1}

    @property
    def binding(self) -> tuple[str, ...]:
        """Budgets that miss their goal."""
        return tuple(name for name, value in self.mismatch.items() if abs(value) > GOALS[name])


@functools.cache
def match(baseline: Geometry, recipe: Recipe, attended: float) -> Match:
    """Return the sizes for `recipe` that hold the three budgets of `baseline`.

    Args:
        baseline: the unlooped model whose budgets are to be met.
        recipe: depth, loop, alignment and preference.
        attended: mean attended context in tokens, for the FLOPs.

    Raises:
        SmeltError: the recipe is impossible, or no sizes come within `REFUSED` of every budget; the message
            names the budget that binds and what would work.
    """
    found = _best(baseline, recipe, attended)
    worst = max(found.mismatch, key=lambda name: abs(found.mismatch[name]))
    if abs(found.mismatch[worst]) > REFUSED:
        raise SmeltError(_refusal(baseline, recipe, attended, found, worst))
    return found


def trade_off(baseline: Geometry, recipe: Recipe, attended: float) -> list[Match]:
    """Return the matches that no other beats in all three budgets and in the preferred shape, best first.

    Looked at are the `SHORTLIST` cheapest candidates that come within `REFUSED` of every budget.
    """
    sizes, errors, preference = _counted(baseline, recipe, attended, REFUSED)
    near = np.flatnonzero(np.all([errors[name] <= REFUSED for name in GOALS], axis=0))
    near = near[np.argsort(_cost(errors, preference)[near], kind="stable")][:SHORTLIST]
    columns = np.stack([*(errors[name] for name in GOALS), preference], axis=1)[near]
    front: list[int] = []
    for place, row in enumerate(columns):
        if not np.any(np.all(columns[front] <= row + 1e-12, axis=1)):
            front.append(place)
    return [_match(baseline, recipe, attended, sizes, int(near[place])) for place in front]


def _best(baseline: Geometry, recipe: Recipe, attended: float) -> Match:
    sizes, errors, preference = _counted(baseline, recipe, attended, GOALS["kv"])
    cost = np.round(_cost(errors, preference), 12)
    cheapest = np.flatnonzero(cost == cost.min())
    ties = np.lexsort([sizes[name][cheapest] for name in reversed(ORDER)])
    return _match(baseline, recipe, attended, sizes, int(cheapest[ties[0]]))


def _counted(
    baseline: Geometry, recipe: Recipe, attended: float, kv_limit: float
) -> tuple[Sizes, dict[str, np.ndarray], np.ndarray]:
    """Return candidates, their absolute mismatches and their distance from the preferred shape."""
    if recipe.narrow not in PREFERENCES:
        raise SmeltError(f"narrow is {recipe.narrow!r}; it must be one of {', '.join(PREFERENCES)}")
    if baseline.looped:
        raise SmeltError(f"the Baseline is looped {baseline.loop_count} times; it must be unlooped")
    _shape(baseline, recipe)
    target = budget(baseline, attended)
    sizes = candidates(baseline, recipe, target, attended, kv_limit)
    errors = {name: np.abs(r - 1) for name, r in ratios(sizes, recipe, target, attended).items()}
    return sizes, errors, _preference(sizes, baseline, recipe)


def _shape(baseline: Geometry, recipe: Recipe, **sizes: int) -> Geometry:
    """Return a geometry of the recipe's shape; `Geometry` refuses an impossible span."""
    return replace(
        baseline,
        layers=recipe.layers,
        loop_start=recipe.start,
        loop_length=recipe.length,
        loop_count=recipe.count,
        loop_order=recipe.order,
        **sizes,
    )


def _match(baseline: Geometry, recipe: Recipe, attended: float, sizes: Sizes, index: int) -> Match:
    geometry = _shape(baseline, recipe, **{name: int(sizes[name][index]) for name in ORDER})
    return Match(geometry, *budget(geometry, attended).ratios(budget(baseline, attended)))


def _preference(sizes: Sizes, baseline: Geometry, recipe: Recipe) -> np.ndarray:
    """Return how far each candidate is from the preferred shape.

    Preferred are the Baseline's sizes, with L_eff/L times its experts (each execution may use L/L_eff of the
    FLOPs while the same parameters are stored) and its KV heads at L/L_eff of their size.
    """
    growth = recipe.effective_layers / recipe.layers
    hidden = sizes["hidden"] / baseline.hidden
    query = sizes["heads"] * sizes["head_dim"] / (baseline.heads * baseline.head_dim)
    terms = {
        "hidden": hidden,
        "query": query,
        "ratio": query / hidden,
        "active": sizes["top_k"] * sizes["expert_dim"] / (baseline.top_k * baseline.expert_dim),
        "experts": sizes["experts"] / (growth * baseline.experts),
    }
    weights = PREFERENCES[recipe.narrow]
    cost = sum(weights[name] * np.abs(np.log(term)) for name, term in terms.items() if weights[name])
    head_dim = sizes["head_dim"] * recipe.effective_layers / (baseline.head_dim * baseline.layers)
    heads = np.abs(np.log(head_dim)) + np.abs(np.log(sizes["kv_heads"] / baseline.kv_heads))
    return cost + HEAD_COST * heads + OTHER_RATIO_COST * (np.abs(terms["experts"] - 1) > 1e-9)


def _cost(errors: dict[str, np.ndarray], preference: np.ndarray) -> np.ndarray:
    cost = preference
    for name, error in errors.items():
        relative = error / GOALS[name]
        cost = cost + MISMATCH_COST * relative + MISSED_COST * (relative > 1)
        cost = cost + EXCESS_COST * np.maximum(relative - 1, 0)
    return cost


def _refusal(baseline: Geometry, recipe: Recipe, attended: float, found: Match, worst: str) -> str:
    """Return one sentence: which budget binds, by how much, and the nearest recipe that works."""
    words = {"flops": "FLOPs per token", "params": "parameters", "kv": "KV cache per token"}
    works, fails = 1, recipe.count
    while fails - works > 1:
        middle = (works + fails) // 2
        nearest = _best(baseline, replace(recipe, count=middle), attended)
        if max(map(abs, nearest.mismatch.values())) <= REFUSED:
            works = middle
        else:
            fails = middle
    hint = f"{works} visits would work" if works > 1 else "a Baseline with larger sizes would work"
    return (
        f"no sizes in multiples of {recipe.align} give {recipe.layers} layers with a span of {recipe.length} "
        f"visited {recipe.count} times the budgets of {baseline.layers} layers of hidden size "
        f"{baseline.hidden}: {words[worst]} stay {found.mismatch[worst]:+.1%} away; {hint}"
    )
