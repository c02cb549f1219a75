"""The residual stream in the span: figures 13, 15 and 16."""

from __future__ import annotations

from typing import Any

import numpy as np
import pandas as pd
import seaborn as sns
from matplotlib.axes import Axes
from matplotlib.lines import Line2D

from smelt.report.data import Data
from smelt.report.output import Drawing
from smelt.report.style import GREY, LATER, LOOKS, WIDTH, legend_above, plt

BANDS = "Bands: 95% intervals over documents."
_STAGES = ("X", "Q", "K", "V", "PV", "O")
_PAPER_STAGES = "The paper's ranges: X 0.84–0.93, Q and K 0.89–0.93, V 0.65–0.74, PV 0.56–0.69, O 0.49–0.64."


def visit_style(visit: int) -> dict:
    """Return how a visit is drawn: later visits are darker."""
    return {
        "color": LATER[min(visit, len(LATER) - 1)],
        "marker": "s",
        "markersize": 3.5,
        "linewidth": 1.1,
    }


def visit_handles(visits: list[int]) -> list[Line2D]:
    """Return legend handles of the visits, counted from 1."""
    return [Line2D([], [], label=f"visit {visit + 1}", **visit_style(visit)) for visit in visits]


def band(axis: Axes, line: pd.DataFrame, colour: Any, low: str = "low", high: str = "high") -> None:
    """Draw intervals along the layers as a band."""
    ends = (line[end].astype(float) for end in (low, high))
    axis.fill_between(line["layer"], *ends, color=colour, alpha=0.15, linewidth=0)


def visits_note(data: Data, mean: bool = False) -> str:
    """Return a remark for figures of two visits, where a recipe has more; else an empty string.

    `mean` says that the later visits are taken together; otherwise the second stands for them.
    """
    visits = data.study.loop.visits
    if visits == 2:
        return ""
    return f" Of {visits} visits " + (
        "the later ones are taken together." if mean else "the second is shown."
    )


def flow(data: Data) -> Drawing:
    """Figure 13: RMS of the stream and of the update and their ratio, by layer, visit and scale."""
    data.need("residual_flow")
    sparsity = data.lowest_sparse
    frame = data.ordered(
        data.rows(
            f"residual flow of SMELT runs at S = {sparsity}%",
            """
            SELECT r.scale, f.layer + 1 AS layer, f.visit, f.component, avg(f.rms) AS rms, min(f.low) AS
              low, max(f.high) AS high, avg(f.relative) AS relative, min(f.relative_low) AS relative_low,
              max(f.relative_high) AS relative_high
            FROM residual_flow f JOIN runs r USING (run)
            WHERE r.grouping = 'grid' AND r.arch = 'smelt' AND r.sparsity = ? AND f.component IN
              ('stream', 'update') AND f.layer BETWEEN r.loop_start AND r.loop_start + r.loop_length - 1
            GROUP BY ALL ORDER BY ALL
            """,
            sparsity,
        )
    )
    scales = list(frame["scale"].unique())
    figure, grid = plt.subplots(3, len(scales), figsize=(WIDTH, 5.0), sharex="col", squeeze=False)
    kinds = (
        ("stream", "rms", "low", "high"),
        ("update", "rms", "low", "high"),
        ("update", "relative", "relative_low", "relative_high"),
    )
    for column, scale in enumerate(scales):
        for axis, (component, value, low, high) in zip(grid[:, column], kinds, strict=True):
            part = frame[(frame["scale"] == scale) & (frame["component"] == component)]
            for visit, line in part.groupby("visit"):
                style = visit_style(visit)
                axis.plot(line["layer"], line[value], **style)
                band(axis, line, style["color"], low, high)
            axis.set_ylim(0, 1.08 * part[value].max())
            axis.xaxis.set_major_locator(plt.MaxNLocator(integer=True, nbins=5))
        grid[0, column].set_title(str(scale))
        grid[2, column].set_xlabel("Layer")
    for axis, label in zip(grid[:, 0], ("RMS of stream", "RMS of update", "Update / stream"), strict=True):
        axis.set_ylabel(label)
    legend_above(figure, visit_handles(sorted(frame["visit"].unique())))
    return Drawing(figure, frame, f"S = {sparsity}%; layers of the span, counted from 1. {BANDS}")


def update_cosine(data: Data) -> Drawing:
    """Figure 15: cosine of every pair of updates in execution order, at the largest scale."""
    data.need("update_cosine")
    sparsity, scale = data.lowest_sparse, data.scales[-1]
    frame = data.rows(
        f"update cosines of scale {scale} at S = {sparsity}%",
        """
        SELECT r.arch, u.i, u.j, u.layer_i + 1 AS layer_i, u.visit_i, u.layer_j + 1 AS layer_j,
          u.visit_j, avg(u.cosine) AS cosine FROM update_cosine u JOIN runs r USING (run)
        WHERE r.grouping = 'grid' AND r.scale = ? AND r.sparsity = ?
        GROUP BY ALL ORDER BY ALL
        """,
        scale,
        sparsity,
    )
    archs = [arch for arch in ("baseline", "smelt") if arch in set(frame["arch"])]
    figure, grid = plt.subplots(1, len(archs), figsize=(WIDTH, 3.5), squeeze=False)
    for axis, arch in zip(grid[0], archs, strict=True):
        part = frame[frame["arch"] == arch]
        table = part.pivot(index="i", columns="j", values="cosine")
        image = axis.imshow(table, cmap="RdBu_r", vmin=-1, vmax=1, interpolation="nearest")
        first = part.drop_duplicates("i").sort_values("i")
        _execution_ticks(axis, first["layer_i"].tolist(), first["visit_i"].tolist())
        axis.set_title(LOOKS[arch].label)
        axis.grid(False)
    figure.colorbar(image, ax=grid[0].tolist(), shrink=0.8, label="Cosine of updates")
    return Drawing(figure, frame, _cosine_note(data, scale, sparsity))


def _execution_ticks(axis: Axes, layers: list[int], visits: list[int]) -> None:
    """Label executions by layer, with a prime for every later visit, at most 15 of them."""
    step = -(-len(layers) // 15)
    places = list(range(0, len(layers), step))
    labels = [str(layers[i]) + "'" * visits[i] for i in places]
    axis.set_xticks(places, labels, fontsize=7)
    axis.set_yticks(places, labels, fontsize=7)
    third = ", '' third" if max(visits) > 1 else ""
    axis.set_xlabel(f"Execution: layer (' second visit{third})")
    axis.set_ylabel("Execution")
    changes = [i - 0.5 for i in range(1, len(visits)) if visits[i] != visits[i - 1]]
    for place in changes:
        axis.axhline(place, color=GREY, linewidth=0.6)
        axis.axvline(place, color=GREY, linewidth=0.6)


def _cosine_note(data: Data, scale: str, sparsity: int) -> str:
    found = data.frame(
        """
        SELECT avg(d.value) AS same, avg(d.reference) AS other
        FROM diagnostics d JOIN runs r USING (run)
        WHERE d.diagnostic = 'update_cosine' AND r.grouping = 'grid' AND r.arch = 'smelt' AND r.scale =
          ? AND r.sparsity = ?
        """,
        scale,
        sparsity,
    ).iloc[0]
    if np.isnan(found["same"]) or np.isnan(found["other"]):
        return f"Scale {scale}, S = {sparsity}%."
    return (
        f"Scale {scale}, S = {sparsity}%: a layer's two updates have a mean cosine of {found['same']:.2f}, "
        f"other cross-visit pairs {found['other']:.2f} (the paper at 1.6B: 0.56 and 0.16)."
    )


def visit_cosine(data: Data) -> Drawing:
    """Figure 16: cosine between the visits at six stages of the attention, by scale."""
    data.need("visit_cosine")
    sparsity = data.lowest_sparse
    frame = data.ordered(
        data.rows(
            f"visit cosines of SMELT runs at S = {sparsity}%",
            """
            SELECT r.scale, v.layer + 1 AS layer, v.stage, avg(v.cosine) AS cosine, min(v.low) AS low,
              max(v.high) AS high FROM visit_cosine v JOIN runs r USING (run)
            WHERE r.grouping = 'grid' AND r.arch = 'smelt' AND r.sparsity = ? AND v.visit = 1
            GROUP BY ALL ORDER BY ALL
            """,
            sparsity,
        )
    )
    colours = dict(zip(_STAGES, sns.color_palette("colorblind", len(_STAGES)), strict=True))
    markers = dict(zip(_STAGES, "osD^vP", strict=True))
    scales = list(frame["scale"].unique())
    figure, grid = plt.subplots(1, len(scales), figsize=(WIDTH, 2.9), sharey=True, squeeze=False)
    for axis, scale in zip(grid[0], scales, strict=True):
        for stage in _STAGES:
            line = frame[(frame["scale"] == scale) & (frame["stage"] == stage)]
            style = {"color": colours[stage], "marker": markers[stage], "markersize": 4}
            axis.plot(line["layer"], line["cosine"], **style)
            band(axis, line, colours[stage])
        axis.set_title(str(scale))
        axis.set_xlabel("Layer")
        axis.xaxis.set_major_locator(plt.MaxNLocator(integer=True, nbins=5))
    grid[0, 0].set_ylabel("Cosine, visit 1 and 2")
    grid[0, 0].set_ylim(np.floor(10 * frame["cosine"].min() - 0.5) / 10, 1.03)
    handles = [Line2D([], [], color=colours[s], marker=markers[s], markersize=4, label=s) for s in _STAGES]
    figure.legend(handles=handles, loc="outside upper center", ncols=6)
    return Drawing(figure, frame, f"S = {sparsity}%. {BANDS} {_PAPER_STAGES}{visits_note(data)}")
