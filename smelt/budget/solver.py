"""Find sizes whose FLOPs, parameters and KV cache equal a Baseline's, for any depth and loop.

Per executed layer the FLOPs budget and per physical layer the parameter budget are known. For a hidden size,
a query width and a KV width they leave two unknowns, the expert size I and the number of experts E:

    3 k I + E = P        (FLOPs)
    E (3 I + 1) = M      (parameters)

a quadratic in I. The search enumerates every aligned hidden size, KV width and query width in a box around
the Baseline, solves the quadratic, rounds I to the alignment and E to whole experts, recounts the budgets of
what is left and takes the candidate with the least cost. Nothing is random, ties are broken by size.
"""

from __future__ import annotations

import functools
from dataclasses import dataclass, replace

import numpy as np

from smelt.budget.accounting import Budget, budget
from smelt.errors import SmeltError
from smelt.study import Geometry

# Relative mismatch aimed at, and the mismatch beyond which a pair is no longer compute-matched.
GOALS = {"flops": 0.01, "params": 0.003, "kv": 0.02}
REFUSED = 0.10

# Cost of a relative change (absolute log ratio) of each size; what is narrowed first is cheap.
PREFERENCES = {
    "hidden": {"hidden": 0.0, "query": 0.0, "query_per_hidden": 0.5, "expert_dim": 0.05, "experts": 2.0},
    "experts": {"hidden": 4.0, "query": 0.5, "query_per_hidden": 0.0, "expert_dim": 0.0, "experts": 0.5},
    "heads": {"hidden": 4.0, "query": 0.0, "query_per_hidden": 0.0, "expert_dim": 0.5, "experts": 0.5},
}
HEAD_COST = 0.05  # of head_dim and kv_heads, which matter least
MISMATCH_COST = 0.05  # of a mismatch as large as its goal
EXCESS_COST = 50.0  # of every further goal beyond the goal


@dataclass(frozen=True)
class Recipe:
    """The shape that is asked for: depth and loop, alignment, what is narrowed first.

    Attributes:
        layers: physical depth.
        start, length, count, order: the loop, as in `Geometry`.
        align: hidden and expert_dim are multiples of it; from 8 on head_dim is a multiple of 8, else even.
        narrow: a key of `PREFERENCES`.
        expert_geometry: (experts, expert_dim) to be kept, or None when both are free.
    """

    layers: int
    start: int = 0
    length: int = 0
    count: int = 1
    order: str = "block"
    align: int = 8
    narrow: str = "hidden"
    expert_geometry: tuple[int, int] | None = None

    @property
    def effective_layers(self) -> int:
        """Executed layers."""
        return self.layers + (self.count - 1) * self.length


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
            names the budget that binds.
    """
    frame = _frame(baseline, recipe)
    target = budget(baseline, attended)
    sizes = _candidates(baseline, recipe, target, attended)
    ratios = _ratios(sizes, frame, target, attended)
    cost = _preference(sizes, baseline, recipe) + _mismatch_cost(ratios)
    keys = [sizes[name] for name in ("hidden", "kv_heads", "head_dim", "heads", "expert_dim", "experts")]
    best = int(np.lexsort((*keys, np.round(cost, 12)))[0])
    geometry = replace(frame, **{name: int(values[best]) for name, values in sizes.items()})
    found = Match(geometry, *budget(geometry, attended).ratios(target))
    worst = max(found.mismatch, key=lambda name: abs(found.mismatch[name]))
    if abs(found.mismatch[worst]) > REFUSED:
        raise SmeltError(_refusal(found, worst, recipe))
    return found


def _frame(baseline: Geometry, recipe: Recipe) -> Geometry:
    """Return the Baseline's sizes in the recipe's shape; `Geometry` refuses an impossible span."""
    if recipe.narrow not in PREFERENCES:
        raise SmeltError(f"narrow is {recipe.narrow!r}; it must be one of {', '.join(PREFERENCES)}")
    if baseline.looped:
        raise SmeltError(f"the Baseline is looped {baseline.loop_count} times; it must be unlooped")
    return replace(
        baseline,
        layers=recipe.layers,
        loop_start=recipe.start,
        loop_length=recipe.length,
        loop_count=recipe.count,
        loop_order=recipe.order,
    )


def _multiples(low: float, high: float, step: int) -> np.ndarray:
    """Return the positive multiples of `step` in [low, high]; at least the nearest one to `high`."""
    first, last = max(1, int(np.ceil(low / step))), max(1, int(high // step))
    return np.arange(min(first, last), last + 1) * step


def _kv_choices(baseline: Geometry, recipe: Recipe, target_kv: int) -> tuple[np.ndarray, np.ndarray]:
    """Return (kv_heads, head_dim) pairs within the KV goal, or the nearest where none is."""
    step = 8 if recipe.align >= 8 else 2
    head_dims = _multiples(baseline.head_dim / 4, max(1.5 * baseline.head_dim, step), step)
    kv_heads, head_dims = (
        grid.ravel()
        for grid in np.meshgrid(np.arange(1, max(8, 2 * baseline.kv_heads) + 1), head_dims, indexing="ij")
    )
    error = np.abs(2 * recipe.effective_layers * kv_heads * head_dims / target_kv - 1)
    keep = error <= max(GOALS["kv"], error.min() + 1e-9)
    return kv_heads[keep], head_dims[keep]


def _candidates(baseline: Geometry, recipe: Recipe, target: Budget, attended: float) -> dict[str, np.ndarray]:
    """Return columns of sizes, one row a candidate."""
    kv_heads, head_dims = _kv_choices(baseline, recipe, target.kv)
    query = baseline.heads * baseline.head_dim
    rows = []
    for kv_head, head_dim in zip(kv_heads, head_dims, strict=True):
        group = np.arange(1, max(1, int(2 * query // (kv_head * head_dim))) + 1)
        rows.append(np.stack([np.full_like(group, kv_head), np.full_like(group, head_dim), kv_head * group]))
    kv_a, dim_a, heads_a = np.concatenate(rows, axis=1)
    hidden_h = _multiples(0.4 * baseline.hidden, 2.0 * baseline.hidden, recipe.align)
    hidden = np.repeat(hidden_h, len(kv_a))
    kv, dim, heads = (np.tile(column, len(hidden_h)) for column in (kv_a, dim_a, heads_a))

    widths = 2.0 * (heads + kv) * dim
    per_execution = target.flops / recipe.effective_layers
    p = (per_execution - 12.0 * heads * dim * attended) / (6.0 * hidden) - widths
    m = target.params / recipe.layers / hidden - widths - 2.0
    if recipe.expert_geometry is not None:
        experts, expert_dim = (np.full_like(hidden, value) for value in recipe.expert_geometry)
    else:
        (hidden, kv, dim, heads), experts, expert_dim = _experts(
            (hidden, kv, dim, heads), p, m, baseline.top_k, recipe.align
        )
    return {
        "hidden": hidden,
        "kv_heads": kv,
        "head_dim": dim,
        "heads": heads,
        "experts": experts,
        "expert_dim": expert_dim,
    }


def _experts(
    columns: tuple[np.ndarray, ...], p: np.ndarray, m: np.ndarray, top_k: int, align: int
) -> tuple[tuple[np.ndarray, ...], np.ndarray, np.ndarray]:
    """Solve (P - 3kI)(3I + 1) = M for the larger I; round to both neighbours, E to three.

    Where no I stores M at this P, the I that stores most is taken.
    """
    half = 3.0 * (p - top_k)
    root = np.sqrt(np.maximum(half**2 - 36.0 * top_k * (m - p), 0.0))
    ideal = (half + root) / (18.0 * top_k)
    lower = np.maximum(np.floor(ideal / align), 1) * align
    expert_dim = np.concatenate([lower, lower + align])
    m = np.tile(m, 2)
    nearest = np.rint(m / (3.0 * expert_dim + 1.0))
    expert_dim = np.tile(expert_dim, 3).astype(np.int64)
    experts = np.maximum(np.concatenate([nearest, nearest - 1, nearest + 1]), top_k).astype(np.int64)
    return tuple(np.tile(column, 6) for column in columns), experts, expert_dim


def _ratios(
    sizes: dict[str, np.ndarray], frame: Geometry, target: Budget, attended: float
) -> dict[str, np.ndarray]:
    """Count the three budgets of every candidate, relative to the target; as in `accounting`."""
    hidden, dim = sizes["hidden"].astype(float), sizes["head_dim"]
    query, kv = sizes["heads"] * dim, sizes["kv_heads"] * dim
    attention = 2.0 * hidden * (query + kv)
    expert, router = 3.0 * hidden * sizes["expert_dim"], hidden * sizes["experts"]
    flops = 6.0 * (attention + frame.top_k * expert + router) + 12.0 * query * attended
    params = attention + sizes["experts"] * expert + router + 2.0 * hidden
    return {
        "flops": frame.effective_layers * flops / target.flops,
        "params": frame.layers * params / target.params,
        "kv": 2.0 * frame.effective_layers * kv / target.kv,
    }


def _preference(sizes: dict[str, np.ndarray], baseline: Geometry, recipe: Recipe) -> np.ndarray:
    """Return how far each candidate is from the preferred shape.

    Preferred are the Baseline's sizes, with L_eff/L times its experts (each execution may use L/L_eff of the
    FLOPs while the same parameters are stored) and its KV heads at L/L_eff of their size.
    """
    weights = PREFERENCES[recipe.narrow]
    query = sizes["heads"] * sizes["head_dim"] / (baseline.heads * baseline.head_dim)
    hidden = sizes["hidden"] / baseline.hidden
    growth = recipe.effective_layers / recipe.layers
    terms = {
        "hidden": hidden,
        "query": query,
        "query_per_hidden": query / hidden,
        "expert_dim": sizes["expert_dim"] / baseline.expert_dim,
        "experts": sizes["experts"] / (growth * baseline.experts),
    }
    cost = sum(weights[name] * np.abs(np.log(term)) for name, term in terms.items() if weights[name])
    kv_size = sizes["head_dim"] * recipe.effective_layers / (baseline.head_dim * baseline.layers)
    heads = np.abs(np.log(kv_size)) + np.abs(np.log(sizes["kv_heads"] / baseline.kv_heads))
    return cost + HEAD_COST * heads


def _mismatch_cost(ratios: dict[str, np.ndarray]) -> np.ndarray:
    cost = 0.0
    for name, ratio in ratios.items():
        relative = np.abs(ratio - 1) / GOALS[name]
        cost = cost + MISMATCH_COST * relative + EXCESS_COST * np.maximum(relative - 1, 0)
    return cost


def _refusal(found: Match, worst: str, recipe: Recipe) -> str:
    words = {"flops": "FLOPs per token", "params": "parameters", "kv": "KV cache per token"}
    return (
        f"no sizes aligned to {recipe.align} give {recipe.layers} layers with a span of {recipe.length} "
        f"executed {recipe.count} times the Baseline's budgets: {words[worst]} stay "
        f"{found.mismatch[worst]:+.1%} away; fewer visits, a shorter span or a larger Baseline would work"
    )
