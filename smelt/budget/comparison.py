"""Tables 9 and 10 as rows: printed | ours | difference, and what the solver finds for the same cell."""

from __future__ import annotations

import itertools
from typing import Any

from smelt.budget.accounting import Budget, budget, parameters, sparsity
from smelt.budget.published import (
    Published,
    baseline_of,
    closest_unreconciled,
    fit_attended,
    published,
    solved,
)
from smelt.study import Geometry

SIZES = ("hidden", "experts", "heads", "kv_heads", "head_dim", "expert_dim")
# Quantity of this table: column of the paper and the decimals it is printed with.
PRINTED = {
    "active_params_b": ("active_params_b", 3),
    "total_params_b": ("total_params_b", 2),
    "flops_ratio": ("flops_ratio", 3),
    "kv_ratio": ("kv_ratio", 3),
    "sparsity_measured_pct": ("sparsity_measured_pct", 1),
    "sparsity_own_control_pct": ("sparsity_measured_pct", 1),
    "flops_ratio_implied": ("flops_ratio", 3),
}


def comparison_rows() -> list[dict[str, Any]]:
    """Return rows of the table `published_configs`.

    `ours` counts the printed configuration with the accounting of section 3. Rows of scale `all` hold the
    fitted mean attended context. For the looped S=0 rows, which do not reconcile, `ours` is the nearest
    configuration, and `flops_ratio_implied` the FLOPs ratio that the printed parameters allow.
    """
    fit = fit_attended()
    fitted = {
        "attended_context_tokens": fit.best,
        "attended_context_lowest": fit.low,
        "attended_context_highest": fit.high,
        "attended_context_worst_flops_error": fit.error,
    }
    rows = [_row(("all", 0, "pair", name), None, value, None, None) for name, value in fitted.items()]
    for row in published().values():
        rows += _compare(row)
    return rows


def _compare(row: Published) -> list[dict[str, Any]]:
    geometry = row.geometry or closest_unreconciled(row)
    ours: dict[str, float] = {name: float(getattr(geometry, name)) for name in SIZES}
    ours |= counted(row, geometry)
    solver: dict[str, float] = {}
    if row.arch == "smelt":
        ours["sparsity_own_control_pct"] = 100 * sparsity(_budget(geometry), _printed_control(row.scale))
        if row.geometry is None:
            ours["flops_ratio_implied"] = _implied_flops_ratio(row)
        match = solved(row)
        solver = {name: float(getattr(match.geometry, name)) for name in SIZES}
        solver |= counted(row, match.geometry)
        control = _budget(solved(published()[row.scale, 0, "smelt"]).geometry)
        solver["sparsity_own_control_pct"] = 100 * sparsity(_budget(match.geometry), control)
    rows = []
    for name, value in ours.items():
        column, decimals = PRINTED.get(name, (name, 0))
        text = row.printed.get(column) or row.printed.get(f"derived_{column}")
        printed = float(text) if text else None
        reach = (value, value)
        if name == "sparsity_own_control_pct":
            reach = _own_control_range(row, geometry)
        key = (row.scale, row.sparsity, row.arch, name)
        matches = None
        if printed is not None:
            half = 0.5 * 10.0**-decimals + 1e-9
            matches = reach[0] - half <= printed <= reach[1] + half
        rows.append(_row(key, printed, value, matches, solver.get(name)))
    return rows


def _row(
    key: tuple[str, int, str, str],
    printed: float | None,
    ours: float,
    matches: bool | None,
    solver: float | None,
) -> dict[str, Any]:
    scale, percent, arch, quantity = key
    return {
        "scale": scale,
        "sparsity": percent,
        "arch": arch,
        "quantity": quantity,
        "printed": printed,
        "ours": ours,
        "difference": None if printed is None else ours - printed,
        "matches": matches,
        "solver": solver,
    }


def _budget(geometry: Geometry | None) -> Budget:
    assert geometry is not None
    return budget(geometry, fit_attended().best)


def counted(row: Published, geometry: Geometry) -> dict[str, float]:
    """Return what the accounting gives for a configuration in the place of a printed row."""
    ours, count = _budget(geometry), parameters(geometry)
    control = _budget(published()[row.scale, 0, "baseline"].geometry)
    values = {
        "active_params_b": count.active / 1e9,
        "total_params_b": count.total / 1e9,
        "sparsity_measured_pct": 100 * sparsity(ours, control),
    }
    if row.arch == "smelt":
        ratios = ours.ratios(_budget(baseline_of(row)))
        values |= dict(zip(("flops_ratio", "params_ratio", "kv_ratio"), ratios, strict=True))
    return values


def _printed_control(scale: str, flops_shift: float = 0.0, params_shift: float = 0.0) -> Budget:
    """Return F0 and N0 of the looped S=0 model from its printed row, the only source for them.

    The shifts are added to the printed FLOPs ratio and to the printed billions of parameters.
    """
    base = _budget(published()[scale, 0, "baseline"].geometry)
    printed = published()[scale, 0, "smelt"].printed
    flops = float(printed["flops_ratio"]) + flops_shift
    params = float(printed["total_params_b"]) + params_shift
    return Budget(flops * base.flops, round(1e9 * params), base.kv)


def _own_control_range(row: Published, geometry: Geometry) -> tuple[float, float]:
    """Return the least and the greatest S in percent that the rounding of the printed F0 and N0 allows."""
    corners = itertools.product((-0.5e-3, 0.5e-3), (-0.5e-2, 0.5e-2))
    values = [100 * sparsity(_budget(geometry), _printed_control(row.scale, *c)) for c in corners]
    return min(values), max(values)


def _implied_flops_ratio(row: Published) -> float:
    """Return the FLOPs ratio that follows from a row's printed parameters, hidden size, experts and KV ratio.

    Total less active parameters give the expert size, the active ones the attention and with it the query
    width. Of the values that rounding allows the one nearest to the printed ratio is returned.
    """
    printed = {
        name: float(text) for name, text in row.printed.items() if text and name not in ("scale", "arch")
    }
    base = baseline_of(row)
    hidden, layers, experts, top_k = (
        printed[name] for name in ("hidden", "physical_depth", "experts", "top_k")
    )
    kv_width = printed["kv_ratio"] * base.kv_heads * base.head_dim * layers / printed["effective_depth"]
    values = []
    for active_shift, total_shift in itertools.product((-0.5e6, 0.5e6), (-0.5e7, 0.5e7)):
        active = 1e9 * printed["active_params_b"] + active_shift
        total = 1e9 * printed["total_params_b"] + total_shift
        expert = (total - active) / (layers * (experts - top_k))
        attention = active / layers - top_k * expert - hidden * (experts + 2)
        query = attention / (2 * hidden) - kv_width
        weights = attention + top_k * expert + hidden * experts
        flops = printed["effective_depth"] * (6 * weights + 12 * query * fit_attended().best)
        values.append(flops / _budget(base).flops)
    return min(max(printed["flops_ratio"], min(values)), max(values))
