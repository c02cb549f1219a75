"""Training curves: figures 2 and 20-23."""

from __future__ import annotations

import numpy as np
import pandas as pd
from matplotlib.axes import Axes
from matplotlib.lines import Line2D

from smelt.report.data import Data, NotMeasured
from smelt.report.output import Drawing
from smelt.report.style import (
    GAP,
    GREY,
    INK,
    LOOKS,
    PAIR,
    WIDTH,
    legend_above,
    log_axis,
    plt,
    span_limits,
    sparsity_title,
    tokens_label,
)
from smelt.report.tables.formats import counted

_BINS_A_DECADE, _BINS_A_BRANCH, _WINDOW = 60, 10, 7

_START = 0.03  # curves begin after this share of the longest run's tokens


def scale_0(data: Data) -> Drawing:
    """Figure 20: every sparsity of the first scale."""
    return _scale(data, 0)


def scale_1(data: Data) -> Drawing:
    """Figure 21: every sparsity of the second scale."""
    return _scale(data, 1)


def scale_2(data: Data) -> Drawing:
    """Figure 22: every sparsity of the third scale."""
    return _scale(data, 2)


def scale_3(data: Data) -> Drawing:
    """Figure 23: every sparsity of the fourth scale."""
    return _scale(data, 3)


def two_cells(data: Data) -> Drawing:
    """Figure 2: the smallest and the largest scale at the lowest sparsity that is not zero."""
    sparsity = data.lowest_sparse
    if len(data.scales) == 1:
        raise NotMeasured(f"Study {data.study.name} has one scale, whose curves are all in figure 20.")
    scales = (data.scales[0], data.scales[-1])
    return _curves(data, [(scale, sparsity) for scale in scales], lambda s, p: f"{s}, {sparsity_title(p)}")


def _scale(data: Data, index: int) -> Drawing:
    if index >= len(data.scales):
        raise NotMeasured(
            f"Not measured: study {data.study.name} has {counted(len(data.scales), 'scale')} "
            f"and this figure is for scale {index + 1} of the paper's four."
        )
    scale = data.scales[index]
    cells = [(scale, sparsity) for sparsity in data.sparsities]
    return _curves(data, cells, lambda s, p: f"{s}, {sparsity_title(p)}")


def _curves(data: Data, cells: list[tuple[str, int]], title) -> Drawing:
    data.need("train_log")
    figure, grid = plt.subplots(
        2,
        len(cells),
        figsize=(WIDTH, 4.5),
        sharex="col",
        squeeze=False,
        height_ratios=(1.9, 1),
    )
    frames = []
    for column, (scale, sparsity) in enumerate(cells):
        frame = _log(data, scale, sparsity)
        ends = _ends(data, scale, sparsity)
        _draw_loss(grid[0, column], frame, ends)
        _draw_gap(grid[1, column], frame, ends)
        grid[0, column].set_title(title(scale, sparsity))
        grid[1, column].set_xlabel("Tokens seen")
        frames += [frame, ends]
    _share_limits(grid[1])
    grid[0, 0].set_ylabel("Loss (nats per token)")
    grid[1, 0].set_ylabel(GAP, fontsize=7.5)
    legend_above(figure, _handles())
    drawn = pd.concat([frame for frame in frames if not frame.empty], ignore_index=True)
    return Drawing(figure, drawn.drop(columns="trunk", errors="ignore"))


def _handles() -> list[Line2D]:
    lines = [
        Line2D([], [], color=LOOKS[arch].colour, label=f"{LOOKS[arch].label}, training") for arch in PAIR
    ]
    points = [
        Line2D([], [], linestyle="none", label=f"{LOOKS[arch].label}, validation", **LOOKS[arch].points())
        for arch in PAIR
    ]
    return [lines[0], points[0], lines[1], points[1]]


def _log(data: Data, scale: str, sparsity: int) -> pd.DataFrame:
    """Return the training loss of a cell's pair of the first seed, averaged into bins that a page can show.

    The trunk's bins are evenly wide on the logarithmic axis and smoothed by a centred running mean, a
    branch's are evenly wide in steps; the members of a pair share them, so that they can be subtracted.
    """
    frame = data.rows(
        f"training log of cell {scale}, S = {sparsity}%",
        """
        SELECT r.scale, r.sparsity, r.arch, t.phase, t.horizon, max(t.step) AS step, max(t.tokens) AS tokens,
          avg(t.loss) AS loss
        FROM train_log t JOIN runs r USING (run)
        WHERE r.grouping = 'grid' AND r.seed = 0 AND r.scale = ? AND r.sparsity = ?
        GROUP BY r.scale, r.sparsity, r.arch, t.phase, t.horizon,
          floor(if(t.phase = 'trunk', ? * log10(t.step), (t.step - t.horizon - 1) * ? / ?))
        ORDER BY r.arch, t.phase, t.horizon, step
        """,
        scale,
        sparsity,
        _BINS_A_DECADE,
        _BINS_A_BRANCH,
        data.study.training.decay_steps,
    )
    frame["trunk"] = frame["phase"] == "trunk"
    frame["smoothed"] = frame["loss"]
    for _, part in frame[frame["trunk"]].groupby("arch"):
        mean = part["loss"].rolling(_WINDOW, min_periods=1, center=True).mean()
        frame.loc[part.index, "smoothed"] = mean
    return frame


def _ends(data: Data, scale: str, sparsity: int) -> pd.DataFrame:
    return data.frame(
        """
        SELECT r.scale, r.sparsity, r.arch, 'validation' AS phase, e.horizon, e.tokens, e.val_loss AS
          loss FROM endpoints e JOIN runs r USING (run)
        WHERE r.grouping = 'grid' AND r.seed = 0 AND r.scale = ? AND r.sparsity = ? ORDER BY r.arch,
          e.tokens
        """,
        scale,
        sparsity,
    )


def _draw_loss(axis: Axes, frame: pd.DataFrame, ends: pd.DataFrame) -> None:
    for arch in PAIR:
        look = LOOKS[arch]
        own = frame[frame["arch"] == arch]
        trunk = own[own["trunk"]]
        axis.plot(trunk["tokens"], trunk["smoothed"], color=look.colour, linewidth=1)
        for _, branch in own[~own["trunk"]].groupby("horizon"):
            axis.plot(branch["tokens"], branch["smoothed"], color=look.colour, linewidth=0.7, alpha=0.6)
        points = ends[ends["arch"] == arch]
        axis.plot(points["tokens"], points["loss"], linestyle="none", **look.points())
    # The first steps fall from log(vocabulary) and would flatten everything that follows.
    late = frame[frame["tokens"] >= _START * frame["tokens"].max()]
    log_axis(axis, [*late["tokens"], *ends["tokens"]], tokens_label)
    axis.set_ylim(*span_limits([*late["smoothed"], *ends["loss"]]))


def _draw_gap(axis: Axes, frame: pd.DataFrame, ends: pd.DataFrame) -> None:
    trunk = frame[frame["trunk"]].pivot_table(index="tokens", columns="arch", values="smoothed")
    points = ends.pivot_table(index="tokens", columns="arch", values="loss")
    axis.axhline(0, color=GREY, linewidth=0.8)
    if set(PAIR) <= set(trunk):
        gap = trunk["smelt"] - trunk["baseline"]
        gap = gap[gap.index >= _START * frame["tokens"].max()]
        axis.plot(gap.index, gap, color=GREY, linewidth=0.9)
    if set(PAIR) <= set(points):
        gap = points["smelt"] - points["baseline"]
        axis.plot(gap.index, gap, color=INK, marker="s", markersize=4, linewidth=1)


def _share_limits(axes: np.ndarray) -> None:
    """Give the gap panels one range, in which a few outliers of the training loss may be cut off."""
    values = []
    for line in (line for axis in axes for line in axis.lines):
        y = np.atleast_1d(line.get_ydata()).astype(float)
        values += list(np.nanpercentile(y, (2, 98))) if line.get_color() == GREY and len(y) > 2 else list(y)
    for axis in axes:
        axis.set_ylim(*span_limits(values, 0.1))
