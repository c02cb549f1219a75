"""The candidates of the solver: every aligned set of sizes near the three budgets, counted at once.

Per executed layer the FLOPs budget and per physical layer the parameter budget are known. For a hidden size,
a query width and a KV width they leave two unknowns, the expert size I and the number of experts E:

    3 k I + E = P        (FLOPs)
    E (3 I + 1) = M      (parameters)

a quadratic in I. Enumerated are the aligned hidden sizes and the query widths in a box around the Baseline
and the KV widths nearest to their budget; I is solved for and rounded to the alignment, E to whole experts.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from smelt.budget.accounting import Budget
from smelt.study import Geometry

Sizes = dict[str, np.ndarray]

# The box, relative to the Baseline.
HIDDEN_BOX = (0.4, 2.0)
QUERY_BOX = 2.0
HEAD_DIM_BOX = (0.25, 1.5)
MIN_HEADS = 2  # with one query head nothing could be said of one head against another
MAX_KV_HEADS = 8
# The most values of a size that are looked at, evenly spaced; only sizes beyond any real model reach them.
MAX_HIDDEN, MAX_GROUPS, MAX_KV_PAIRS = 600, 64, 64


@dataclass(frozen=True)
class Recipe:
    """The shape that is asked for: depth and loop, alignment, what is narrowed first.

    Attributes:
        layers: physical depth.
        start, length, count, order: the loop, as in `Geometry`.
        align: hidden and expert_dim are multiples of it; head_dim is even below 8, else a multiple of 8, or
            of 4 where no multiple of 8 meets the KV goal (the paper's own 84).
        narrow: what is narrowed first: `hidden`, `experts` or `heads`.
        expert_geometry: (experts, expert_dim) to be kept, while top_k is free; None when both are free.
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


def candidates(baseline: Geometry, recipe: Recipe, target: Budget, attended: float, kv_limit: float) -> Sizes:
    """Return columns of sizes, one row a candidate; `kv_limit` is the KV mismatch that is let in."""
    kv_heads, head_dims = kv_choices(baseline, recipe, target.kv, kv_limit)
    widest = QUERY_BOX * baseline.heads * baseline.head_dim
    fewest = min(MIN_HEADS, baseline.heads)
    groups = [
        _thin(np.arange(-(-fewest // kv), max(-(-fewest // kv), int(widest // (kv * dim))) + 1), MAX_GROUPS)
        for kv, dim in zip(kv_heads, head_dims, strict=True)
    ]
    repeats = [len(group) for group in groups]
    kv_a, dim_a = np.repeat(kv_heads, repeats), np.repeat(head_dims, repeats)
    heads_a = kv_a * np.concatenate(groups)
    hidden_h = _multiples(*(factor * baseline.hidden for factor in HIDDEN_BOX), recipe.align)
    hidden_h = _thin(hidden_h, MAX_HIDDEN)
    sizes = {"hidden": np.repeat(hidden_h, len(kv_a))}
    for name, column in (("kv_heads", kv_a), ("head_dim", dim_a), ("heads", heads_a)):
        sizes[name] = np.tile(column, len(hidden_h))
    if recipe.expert_geometry is not None:
        return _fixed_experts(sizes, recipe.expert_geometry, baseline.top_k)
    return _solved_experts(sizes, recipe, target, attended, baseline.top_k)


def kv_choices(
    baseline: Geometry, recipe: Recipe, target_kv: int, limit: float
) -> tuple[np.ndarray, np.ndarray]:
    """Return kv_heads and head_dim of the pairs within `limit` of the KV budget, or nearest to it."""
    kept: tuple[np.ndarray, np.ndarray] | None = None
    least = np.inf
    for step in (8, 4) if recipe.align >= 8 else (2,):
        low, high = (factor * baseline.head_dim for factor in HEAD_DIM_BOX)
        dims = _multiples(low, max(high, step), step)
        heads = np.arange(1, max(MAX_KV_HEADS, 2 * baseline.kv_heads) + 1)
        heads, dims = (grid.ravel() for grid in np.meshgrid(heads, dims, indexing="ij"))
        error = np.abs(2 * recipe.effective_layers * heads * dims / target_kv - 1)
        keep = error <= max(limit, error.min() + 1e-9)
        if kept is None or error.min() < least - 1e-9:
            kept, least = (_thin(heads[keep], MAX_KV_PAIRS), _thin(dims[keep], MAX_KV_PAIRS)), error.min()
        if least <= limit:
            break
    assert kept is not None
    return kept


def ratios(sizes: Sizes, recipe: Recipe, target: Budget, attended: float) -> dict[str, np.ndarray]:
    """Count the three budgets of every candidate, relative to the target; as in `accounting`."""
    hidden = sizes["hidden"].astype(float)
    query, kv = (sizes[name] * sizes["head_dim"] for name in ("heads", "kv_heads"))
    attention = 2.0 * hidden * (query + kv)
    expert, router = 3.0 * hidden * sizes["expert_dim"], hidden * sizes["experts"]
    flops = 6.0 * (attention + sizes["top_k"] * expert + router) + 12.0 * query * attended
    params = attention + sizes["experts"] * expert + router + 2.0 * hidden
    return {
        "flops": recipe.effective_layers * flops / target.flops,
        "params": recipe.layers * params / target.params,
        "kv": 2.0 * recipe.effective_layers * kv / target.kv,
    }


def _multiples(low: float, high: float, step: int) -> np.ndarray:
    """Return the positive multiples of `step` in [low, high]; at least the nearest one to `high`."""
    first, last = max(1, int(np.ceil(low / step))), max(1, int(high // step))
    return np.arange(min(first, last), last + 1) * step


def _thin(values: np.ndarray, limit: int) -> np.ndarray:
    """Return at most `limit` of the values, evenly spaced, the first and the last among them."""
    if len(values) <= limit:
        return values
    return values[np.linspace(0, len(values) - 1, limit).astype(int)]


def _fixed_experts(sizes: Sizes, expert_geometry: tuple[int, int], top_k: int) -> Sizes:
    """Return every candidate with the given experts and every top_k from the study's to twice of it."""
    experts, expert_dim = expert_geometry
    chosen = np.arange(top_k, min(2 * top_k, experts) + 1)
    rows = len(sizes["hidden"])
    sizes = {name: np.tile(column, len(chosen)) for name, column in sizes.items()}
    sizes["top_k"] = np.repeat(chosen, rows)
    sizes["experts"] = np.full_like(sizes["hidden"], experts)
    sizes["expert_dim"] = np.full_like(sizes["hidden"], expert_dim)
    return sizes


def _solved_experts(sizes: Sizes, recipe: Recipe, target: Budget, attended: float, top_k: int) -> Sizes:
    """Return every candidate with the larger root I, rounded down and up, and the three nearest E.

    Where no I stores M at this P, the I that stores most is taken.
    """
    hidden, dim = sizes["hidden"], sizes["head_dim"]
    widths = 2.0 * (sizes["heads"] + sizes["kv_heads"]) * dim
    execution = target.flops / recipe.effective_layers - 12.0 * sizes["heads"] * dim * attended
    p = execution / (6.0 * hidden) - widths
    m = target.params / recipe.layers / hidden - widths - 2.0
    half = 3.0 * (p - top_k)
    root = np.sqrt(np.maximum(half**2 - 36.0 * top_k * (m - p), 0.0))
    lower = np.maximum(np.floor((half + root) / (18.0 * top_k) / recipe.align), 1) * recipe.align
    expert_dim = np.concatenate([lower, lower + recipe.align])
    nearest = np.rint(np.tile(m, 2) / (3.0 * expert_dim + 1.0))
    sizes = {name: np.tile(column, 6) for name, column in sizes.items()}
    sizes["expert_dim"] = np.tile(expert_dim, 3).astype(np.int64)
    experts = np.concatenate([nearest, nearest - 1, nearest + 1])
    sizes["experts"] = np.maximum(experts, top_k).astype(np.int64)
    sizes["top_k"] = np.full_like(sizes["experts"], top_k)
    return sizes
