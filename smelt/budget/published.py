"""The configurations of tables 9 and 10 counted by our accounting, beside the printed values.

The paper prints widths, depths and expert counts; head counts, head sizes and expert sizes are inferred
(section 3). The mean attended context, which the paper does not state either, is fitted to the FLOPs ratios.
"""

from __future__ import annotations

import csv
import functools
from dataclasses import dataclass

import numpy as np

from smelt.budget.accounting import attention_params, budget
from smelt.budget.search import Recipe
from smelt.budget.solver import Match, match
from smelt.errors import SmeltError
from smelt.files import ROOT
from smelt.study import Geometry
from smelt.study.geometry import centred_start

CONFIGS = ROOT / "data" / "paper" / "table09_10_configs.csv"


@dataclass(frozen=True)
class Published:
    """One printed row; `geometry` is None for the looped S=0 rows, which no accounting reproduces."""

    scale: str
    sparsity: int
    arch: str
    geometry: Geometry | None
    printed: dict[str, str]


@functools.cache
def published() -> dict[tuple[str, int, str], Published]:
    """Return the printed rows by (scale, sparsity in percent, architecture)."""
    try:
        with open(CONFIGS, newline="", encoding="utf-8") as stream:
            rows = list(csv.DictReader(stream))
    except FileNotFoundError:
        raise SmeltError(f"{CONFIGS} does not exist; it holds the printed configurations") from None
    found = [
        Published(row["scale"], round(100 * float(row["sparsity"])), row["arch"], _geometry(row), row)
        for row in rows
    ]
    return {(row.scale, row.sparsity, row.arch): row for row in found}


def _geometry(row: dict[str, str], **sizes: int) -> Geometry | None:
    """Return a row's sizes; inferred ones can be given as `sizes`."""
    if not row["derived_heads"] and not sizes:
        return None
    layers, count = int(row["physical_depth"]), int(row["loop_count"])
    span = layers // 2 if count > 1 else 0
    names = [name for name in ("heads", "kv_heads", "head_dim", "expert_dim") if name not in sizes]
    return Geometry(
        hidden=int(row["hidden"]),
        layers=layers,
        experts=int(row["experts"]),
        top_k=int(row["top_k"]),
        loop_start=centred_start(layers, span) if span else 0,
        loop_length=span,
        loop_count=count,
        **{name: int(row[f"derived_{name}"]) for name in names},
        **sizes,
    )


def baseline_of(row: Published) -> Geometry:
    """Return the Baseline of a printed row's cell."""
    geometry = published()[row.scale, row.sparsity, "baseline"].geometry
    assert geometry is not None
    return geometry


def _reconciled_pairs() -> list[Published]:
    return [row for row in published().values() if row.arch == "smelt" and row.geometry is not None]


@dataclass(frozen=True)
class AttendedFit:
    """The mean attended context (tokens) that fits the printed FLOPs ratios best.

    Attributes:
        best: value with the smallest worst error over the pairs.
        error: that worst error of a FLOPs ratio.
        low, high: range of whole values at which every ratio rounds to the printed digits.
    """

    best: float
    error: float
    low: float
    high: float


@functools.cache
def fit_attended() -> AttendedFit:
    """Find the mean attended context by scanning whole tokens from 0 to 4096, the context length."""
    values = np.arange(0, 4097, dtype=float)
    errors = []
    for row in _reconciled_pairs():
        ours = _flops_over(row.geometry, values) / _flops_over(baseline_of(row), values)
        errors.append(np.abs(ours - float(row.printed["flops_ratio"])))
    worst = np.max(errors, axis=0)
    agree = values[worst <= 0.5e-3]
    if not len(agree):
        raise SmeltError(f"{CONFIGS}: no mean attended context reproduces every printed FLOPs ratio")
    best = int(worst.argmin())
    return AttendedFit(float(values[best]), float(worst[best]), float(agree.min()), float(agree.max()))


def _flops_over(geometry: Geometry | None, attended: np.ndarray) -> np.ndarray:
    assert geometry is not None
    base, one = (budget(geometry, c).flops for c in (0.0, 1.0))
    return base + (one - base) * attended


def closest_unreconciled(row: Published) -> Geometry:
    """Return the nearest configuration to a looped S=0 row: printed sizes, expert size from the total.

    KV heads and head size follow from the printed KV ratio, query heads are those of the scale's first
    sparse row. Its active parameters and FLOPs then differ from the printed ones.
    """
    base = published()[row.scale, 0, "baseline"].geometry
    sparse = next(p for p in _reconciled_pairs() if p.scale == row.scale)
    assert base is not None and sparse.geometry is not None
    layers, effective = int(row.printed["physical_depth"]), int(row.printed["effective_depth"])
    width = float(row.printed["kv_ratio"]) * base.kv_heads * base.head_dim * layers / effective
    head_dim = 2 * round(width / base.kv_heads / 2)
    sizes = {"heads": sparse.geometry.heads, "kv_heads": base.kv_heads, "head_dim": head_dim}
    geometry = _geometry(row.printed, expert_dim=1, **sizes)
    assert geometry is not None
    fixed = attention_params(geometry) + geometry.hidden * (geometry.experts + 2)
    per_layer = 1e9 * float(row.printed["total_params_b"]) / layers - fixed
    size = max(1, round(per_layer / (3 * geometry.hidden * geometry.experts)))
    return _geometry(row.printed, expert_dim=size, **sizes) or geometry


def solved(row: Published) -> Match:
    """Return the solver's configuration for a printed looped row: multiples of 8, narrowing H first."""
    layers = int(row.printed["physical_depth"])
    recipe = Recipe(
        layers=layers,
        start=centred_start(layers, layers // 2),
        length=layers // 2,
        count=int(row.printed["loop_count"]),
        align=8,
        narrow="hidden",
    )
    return match(baseline_of(row), recipe, fit_attended().best)
