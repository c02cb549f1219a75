"""The recipe drawn from a configuration, and what the study can show: figures 1a and P1."""

from __future__ import annotations

from dataclasses import fields

import pandas as pd
from matplotlib.axes import Axes
from matplotlib.lines import Line2D
from matplotlib.patches import FancyArrowPatch, FancyBboxPatch
from matplotlib.ticker import FixedLocator, FuncFormatter, NullLocator

from smelt.report.data import PAIRS, Data
from smelt.report.output import Drawing
from smelt.report.style import (
    AMBER,
    BOX,
    GAP,
    GREY,
    INK,
    LOOKS,
    LOOPED_BOX,
    WIDTH,
    legend_above,
    log_axis,
    outer_labels,
    panels,
    plt,
    power_label,
    span_limits,
    sparsity_title,
)
from smelt.report.tables.formats import counted, short
from smelt.study import Geometry

_GEOMETRY = [field.name for field in fields(Geometry)]
_HEIGHT = 6.0  # of a stack, in the drawing's units
_LINEAR = 0.3  # nats: larger gaps need a logarithmic axis
_MOST_LABELS = 14  # layers that can each carry a readable label


def recipe(data: Data) -> Drawing:
    """Figure 1a: the executions of a pair in order, from its configurations, and its three budgets."""
    scale, sparsity = _shown_cell(data)
    frame = data.rows(
        "pair of runs to draw",
        """
        SELECT * FROM runs WHERE grouping = 'grid' AND seed = 0 AND scale = ? AND sparsity = ?
        AND arch IN ('baseline', 'smelt') ORDER BY arch
        """,
        scale,
        sparsity,
    )
    rows = frame.to_dict("records")
    figure, (stacks, budgets) = plt.subplots(1, 2, figsize=(WIDTH, 3.6), width_ratios=(1.15, 1))
    for axis in (stacks, budgets):
        axis.set_axis_off()
    for column, row in enumerate(rows):
        _stack(stacks, 2.5 * column, row)
    stacks.set(xlim=(-0.1, 5.2), ylim=(-1.1, _HEIGHT + 0.9))
    _budgets(budgets, rows)
    figure.suptitle(f"Scale {scale}, {sparsity_title(sparsity)}", fontsize=9.5, fontweight="bold")
    return Drawing(figure, frame.drop(columns=["spec_hash", "baseline"]))


def _shown_cell(data: Data) -> tuple[str, int]:
    """The ablation scale, or the first, at the lowest sparsity that is not zero."""
    scale = data.study.ablations.get("scale", data.scales[0])
    return scale, data.lowest_sparse


def _stack(axis: Axes, left: float, row: dict) -> None:
    """Draw the physical layers bottom up, and the way back that makes the loop."""
    geometry = Geometry(**{name: row[name] for name in _GEOMETRY})
    look = LOOKS[row["arch"]]
    step = _HEIGHT / geometry.layers
    for layer in range(geometry.layers):
        inside = layer in geometry.span
        box = FancyBboxPatch(
            (left, layer * step + 0.08 * step),
            1.5,
            0.72 * step,
            boxstyle="round,pad=0.02,rounding_size=0.08",
            facecolor=LOOPED_BOX if inside else BOX,
            edgecolor=look.colour if inside else GREY,
            linewidth=1.2 if inside else 0.8,
        )
        axis.add_patch(box)
    for text, middle in _labels(geometry):
        axis.text(left + 0.75, (middle + 0.44) * step, text, ha="center", va="center", fontsize=7.5)
    if geometry.looped:
        _loop_arrow(axis, left, geometry, step, look.colour)
    axis.text(left + 0.75, _HEIGHT + 0.3, look.label, ha="center", color=look.colour, fontweight="bold")
    text = f"{geometry.layers} layers,\n{geometry.effective_layers} executions"
    axis.text(left + 0.75, -0.2, text, ha="center", va="top", fontsize=8)


def _labels(geometry: Geometry) -> list[tuple[str, float]]:
    """Return texts and the layers they stand at: one a layer, or one a part of a tall stack."""
    span, times = geometry.span, f"  ×{geometry.loop_count}"
    if geometry.layers <= _MOST_LABELS:
        return [(f"layer {i + 1}{times if i in span else ''}", i) for i in range(geometry.layers)]
    parts = [(range(span.start), ""), (span, times), (range(span.stop, geometry.layers), "")]
    return [
        (f"layers {part[0] + 1} to {part[-1] + 1}{suffix}", (part[0] + part[-1]) / 2)
        for part, suffix in parts
        if part
    ]


def _loop_arrow(axis: Axes, left: float, geometry: Geometry, step: float, colour: str) -> None:
    """Draw the way back: from the span's last layer to its first, or from each layer to itself."""
    if geometry.loop_order == "block":
        ways = [(geometry.span[-1] + 0.44, geometry.span[0] + 0.44)]
    else:
        ways = [(layer + 0.66, layer + 0.22) for layer in geometry.span]
    for top, bottom in ways:
        arrow = FancyArrowPatch(
            (left + 1.54, top * step),
            (left + 1.54, bottom * step - 0.01),
            connectionstyle="arc3,rad=-0.4" if len(ways) == 1 else "arc3,rad=-0.9",
            arrowstyle="-|>",
            mutation_scale=10,
            color=colour,
            linewidth=1.3,
        )
        axis.add_patch(arrow)
    text = f"{geometry.loop_count} visits,\nwrites ×1/{geometry.loop_count}"
    middle = (geometry.span[0] + geometry.span[-1]) / 2 + 0.44
    axis.text(left + 1.9, middle * step, text, va="center", fontsize=7.5, color=colour)


def _budgets(axis: Axes, rows: list[dict]) -> None:
    """Write the three budgets and what was changed to hold them."""
    base, looped = rows[0], rows[-1]
    lines = [("", "Baseline", "SMELT", "ratio")]
    for label, key in (
        ("FLOPs a token", "flops_per_token"),
        ("Parameters", "params_total"),
        ("KV bytes a token", "kv_bytes_per_token"),
    ):
        lines.append((label, short(base[key]), short(looped[key]), f"{looped[key] / base[key]:.3f}"))
    lines.append(("", "", "", ""))
    for label, key in (
        ("Hidden size", "hidden"),
        ("Query heads", "heads"),
        ("KV heads", "kv_heads"),
        ("Head size", "head_dim"),
        ("Experts", "experts"),
        ("Expert size", "expert_dim"),
    ):
        lines.append((label, f"{base[key]}", f"{looped[key]}", ""))
    for i, line in enumerate(lines):
        for x, text in zip((0.0, 0.55, 0.78, 1.0), line, strict=True):
            weight = "bold" if i == 0 else "normal"
            align = "right" if x else "left"
            axis.text(x, 0.93 - 0.083 * i, text, ha=align, va="center", fontsize=8, fontweight=weight)


def power(data: Data) -> Drawing:
    """Figure P1: the gap that the paper's law predicts for each pair, beside the spread between seeds."""
    data.need("power")
    frame = data.ordered(
        data.frame(
            """
            SELECT DISTINCT r.scale, r.sparsity, p.*
            FROM power p JOIN (SELECT DISTINCT cell, scale, sparsity
            FROM runs WHERE grouping = 'grid') r USING (cell) ORDER BY r.sparsity, p.flops
            """
        )
    )
    measured = _measured_gaps(data)
    spread = _seed_spread(data)
    figure, axes = panels(len(data.sparsities), height=2.1)
    for axis, sparsity in zip(axes, data.sparsities, strict=True):
        own = frame[frame["sparsity"] == sparsity]
        for _, cell in own.groupby("cell", sort=False):
            axis.plot(cell["flops"], cell["gap_predicted"], color=AMBER, marker=".", linewidth=0.8)
        points = measured[measured["sparsity"] == sparsity]
        axis.plot(points["flops"], points["gap"], linestyle="none", marker="x", color=INK, markersize=4)
        axis.axhline(0, color=GREY, linewidth=0.8)
        bent = _gap_axis(axis, frame["gap_predicted"].dropna().tolist(), measured["gap"].tolist())
        if spread is not None:
            axis.axhspan(-spread, spread, color=GREY, alpha=0.15, linewidth=0)
        log_axis(axis, [*frame["flops"], *measured["flops"]], power_label)
        axis.set_title(sparsity_title(sparsity))
    outer_labels(axes, "Training compute (FLOPs)", GAP)
    handles = [Line2D([], [], color=INK, marker="x", linestyle="none", label="measured")]
    predicted = int(frame["gap_predicted"].notna().sum())
    if predicted:
        handles.append(Line2D([], [], color=AMBER, marker=".", label="predicted by the paper's law"))
    legend_above(figure, handles)
    note = (
        f"The grey band is twice the standard deviation of a pair's gap between seeds, {spread:.3f} nats."
        if spread is not None
        else "With one seed the spread of a gap between seeds is unknown."
    )
    note += _prediction_note(frame)
    note += f" The vertical axis is linear to ±{_LINEAR / 3:g} nats, logarithmic beyond." if bent else ""
    return Drawing(figure, frame.merge(measured, on=["cell", "horizon", "sparsity"], how="left"), note)


def _prediction_note(frame: pd.DataFrame) -> str:
    predicted = frame[frame["gap_predicted"].notna()]
    blank = len(frame) - len(predicted)
    if predicted.empty:
        return " So far below its window the paper's law predicts no gap."
    outside = counted((~predicted["in_window"]).sum(), "prediction")
    note = f" {outside} of {len(predicted)} outside the window of the paper's law"
    return f"{note}; at {counted(blank, 'endpoint')} it predicts nothing." if blank else f"{note}."


def _gap_axis(axis: Axes, predicted: list[float], measured: list[float]) -> bool:
    """Make the axis of gaps logarithmic beyond small ones if predictions need it; return whether it is."""
    reach = max(map(abs, predicted), default=0.0)
    if reach <= max([_LINEAR, *map(abs, measured)]):
        axis.set_ylim(*span_limits([0.0, *predicted, *measured], 0.1))
        return False
    # Far below the paper's window the law may predict anything; small gaps must stay readable.
    axis.set_yscale("symlog", linthresh=_LINEAR / 3)
    steps = [step for step in (0.1, 1, 10, 100) if step <= 1.5 * reach]
    axis.yaxis.set_major_locator(FixedLocator([*(-step for step in steps), 0, *steps]))
    axis.yaxis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:g}"))
    axis.yaxis.set_minor_locator(NullLocator())
    return True


def _measured_gaps(data: Data) -> pd.DataFrame:
    return data.frame(
        PAIRS + "SELECT cell, sparsity, horizon, avg(flops) AS flops, avg(gap) AS gap FROM pairs "
        "GROUP BY cell, sparsity, horizon ORDER BY cell, horizon"
    )


def _seed_spread(data: Data) -> float | None:
    """Return twice the pooled standard deviation of a pair's gap between seeds, None with one seed."""
    found = data.frame(
        PAIRS
        + """
        SELECT sqrt(avg(v)) AS spread
        FROM (SELECT var_samp(gap) AS v FROM pairs GROUP BY cell, horizon HAVING count(*) > 1)
        """
    )["spread"].iloc[0]
    return None if pd.isna(found) else 2 * float(found)
