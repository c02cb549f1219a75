"""Attention across visits: figures 17, 19 and 25."""

from __future__ import annotations

import numpy as np
import pandas as pd
from matplotlib.axes import Axes
from matplotlib.lines import Line2D

from smelt.report.data import Data
from smelt.report.figures.residual import band, visit_handles, visit_style, visits_note
from smelt.report.output import Drawing
from smelt.report.style import (
    GREY,
    LOOKS,
    RED,
    WIDTH,
    legend_above,
    outer_labels,
    panels,
    plt,
)

_HEADS = "Lines: means over heads; bands: from the lowest to the highest end of the heads' 95% intervals."
_KINDS = (("top1", "Top-1 token kept"), ("top8", "Top-8 overlap"), ("mass", "Mass overlap"))


def token_overlap(data: Data) -> Drawing:
    """Figure 17: three overlaps of a head with itself across visits, and with another head."""
    data.need("token_overlap")
    sparsity = data.lowest_sparse
    frame = data.ordered(
        data.rows(
            f"token overlaps of SMELT runs at S = {sparsity}%",
            """
            SELECT r.scale, t.kind, t.layer + 1 AS layer, avg(t.value) AS value, min(t.low) AS low,
              max(t.high) AS high, avg(t.control) AS control, min(t.control_low) AS control_low,
              max(t.control_high) AS control_high, avg(t.chance) AS chance
            FROM token_overlap t JOIN runs r USING (run)
            WHERE r.grouping = 'grid' AND r.arch = 'smelt' AND r.sparsity = ? AND t.visit = 1
            GROUP BY ALL ORDER BY ALL
            """,
            sparsity,
        )
    )
    scales = list(frame["scale"].unique())
    figure, grid = plt.subplots(
        len(_KINDS), len(scales), figsize=(WIDTH, 4.8), sharex="col", sharey=True, squeeze=False
    )
    for row, (kind, label) in enumerate(_KINDS):
        for column, scale in enumerate(scales):
            axis = grid[row, column]
            line = frame[(frame["scale"] == scale) & (frame["kind"] == kind)]
            axis.plot(line["layer"], line["value"], color=RED, marker="s", markersize=3.5)
            axis.plot(line["layer"], line["control"], color=GREY, marker="^", markersize=4, linestyle="--")
            band(axis, line, RED)
            band(axis, line, GREY, "control_low", "control_high")
            axis.xaxis.set_major_locator(plt.MaxNLocator(integer=True, nbins=5))
            axis.set_ylim(0, 1.03)
            if row == 0:
                axis.set_title(str(scale))
        grid[row, 0].set_ylabel(label)
    for axis in grid[-1]:
        axis.set_xlabel("Layer")
    legend_above(
        figure,
        [
            Line2D([], [], color=RED, marker="s", markersize=3.5, label="same head, visit 1 and 2"),
            Line2D(
                [], [], color=GREY, marker="^", markersize=4, linestyle="--", label="control: another head"
            ),
        ],
    )
    note = f"S = {sparsity}%. {_HEADS} The paper's top-8 overlap is 56–66%, of the control 28–34%."
    return Drawing(figure, frame, note + visits_note(data))


def sink_heads(data: Data) -> Drawing:
    """Figure 19a: sink mass of every head, visit 1 and visit 2, at the largest scale."""
    data.need("sink")
    sparsity, scale = data.lowest_sparse, data.scales[-1]
    frame = data.rows(
        f"sink masses of SMELT at scale {scale}, S = {sparsity}%",
        """
        SELECT s.layer + 1 AS layer, s.visit, s.head + 1 AS head, avg(s.mass) AS mass, min(s.low) AS low,
          max(s.high) AS high
        FROM sink s JOIN runs r USING (run) WHERE r.grouping = 'grid' AND r.arch = 'smelt' AND r.scale
          = ? AND r.sparsity = ? AND s.layer BETWEEN r.loop_start AND r.loop_start + r.loop_length - 1
        GROUP BY ALL ORDER BY ALL
        """,
        scale,
        sparsity,
    )
    visits, top = sorted(frame["visit"].unique()), frame["mass"].max()
    figure, grid = plt.subplots(1, len(visits), figsize=(WIDTH, 3.0), sharey=True, squeeze=False)
    for axis, visit in zip(grid[0], visits, strict=True):
        table = frame[frame["visit"] == visit].pivot(index="layer", columns="head", values="mass")
        image = axis.imshow(table, cmap="Reds", vmin=0, vmax=top, aspect="auto", interpolation="nearest")
        axis.set_xticks(
            range(0, table.shape[1], -(-table.shape[1] // 12)), table.columns[:: -(-table.shape[1] // 12)]
        )
        step = -(-table.shape[0] // 12)
        axis.set_yticks(range(0, table.shape[0], step), table.index[::step])
        axis.set_title(f"Visit {visit + 1}: mean {np.nanmean(table):.2f}")
        axis.set_xlabel("Head")
        axis.grid(False)
    grid[0, 0].set_ylabel("Layer")
    figure.colorbar(image, ax=grid[0].tolist(), label="Mass on the segment start")
    widest = (frame["high"] - frame["low"]).astype(float).max()
    spread = "" if np.isnan(widest) else f" The widest of the heads' 95% intervals spans {widest:.2f}."
    return Drawing(figure, frame, f"Scale {scale}, S = {sparsity}%.{spread}")


def sink_depth(data: Data) -> Drawing:
    """Figure 19b: sink mass against physical depth at the largest scale."""
    frame = _sink_means(data)
    frame = frame[frame["scale"] == data.scales[-1]]
    figure, axes = panels(1, height=2.9)
    _sink_lines(axes[0], frame)
    axes[0].set_title(str(data.scales[-1]))
    axes[0].set(xlabel="Physical layer", ylabel="Mass on the segment start")
    legend_above(figure, _sink_handles(frame))
    return Drawing(figure, frame, f"S = {data.lowest_sparse}%. {_HEADS}")


def sink_scales(data: Data) -> Drawing:
    """Figure 25: figure 19b for every scale."""
    frame = _sink_means(data)
    scales = list(frame["scale"].unique())
    figure, axes = panels(len(scales), height=2.3, share_x=False)
    for axis, scale in zip(axes, scales, strict=True):
        _sink_lines(axis, frame[frame["scale"] == scale])
        axis.set_ylim(0, _sink_top(frame))  # the panels share it
        axis.set_title(str(scale))
    outer_labels(axes, "Physical layer", "Mass on segment start")
    legend_above(figure, _sink_handles(frame))
    return Drawing(figure, frame, f"S = {data.lowest_sparse}%. {_HEADS}")


def _sink_means(data: Data) -> pd.DataFrame:
    data.need("sink")
    sparsity = data.lowest_sparse
    return data.ordered(
        data.rows(
            f"sink masses at S = {sparsity}%",
            """
            SELECT r.scale, r.arch, s.visit, s.layer + 1 AS layer, avg(s.mass) AS mass, min(s.low) AS low,
              max(s.high) AS high
            FROM sink s JOIN runs r USING (run) WHERE r.grouping = 'grid' AND r.sparsity = ?
            GROUP BY ALL ORDER BY ALL
            """,
            sparsity,
        )
    )


def _sink_lines(axis: Axes, frame: pd.DataFrame) -> None:
    for (arch, visit), line in frame.groupby(["arch", "visit"]):
        look = LOOKS["baseline"].points() | {"linewidth": 1.1} if arch == "baseline" else visit_style(visit)
        axis.plot(line["layer"], line["mass"], **look)
        band(axis, line, look["color"])
    axis.set_ylim(0, _sink_top(frame))
    axis.xaxis.set_major_locator(plt.MaxNLocator(integer=True, nbins=8))


def _sink_top(frame: pd.DataFrame) -> float:
    return max(0.05, 1.05 * frame[["mass", "high"]].max().max())


def _sink_handles(frame: pd.DataFrame) -> list[Line2D]:
    visits = sorted(frame[frame["arch"] == "smelt"]["visit"].unique())
    handles = visit_handles(visits)
    for handle in handles:
        handle.set_label(f"SMELT, {handle.get_label()}")
    return [Line2D([], [], label="Baseline", **LOOKS["baseline"].points()), *handles]
