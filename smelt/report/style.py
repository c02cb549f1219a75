"""How figures look: one theme, one look for each architecture, shared axes and legends."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import matplotlib

matplotlib.use("agg")

import matplotlib.pyplot as plt
import numpy as np
import seaborn as sns
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.lines import Line2D

WIDTH = 7.2  # inches: the page width at which text keeps its nominal size

INK, GREY, LIGHT = "#222222", "#767676", "#d9d9d9"
BLUE, RED, AMBER, GREEN = "#1f5fa8", "#c1272d", "#b8860b", "#2a7f62"


@dataclass(frozen=True)
class Look:
    """Label, colour and marker of one architecture."""

    label: str
    colour: str
    marker: str
    filled: bool

    def points(self) -> dict[str, Any]:
        """Return keyword arguments of `plot` for the marker."""
        face = self.colour if self.filled else "white"
        return {
            "color": self.colour,
            "marker": self.marker,
            "markerfacecolor": face,
            "markeredgecolor": self.colour,
            "markeredgewidth": 1.1,
            "markersize": 4.5,
        }


LOOKS = {
    "baseline": Look("Baseline", BLUE, "o", False),
    "smelt": Look("SMELT", RED, "s", True),
}
PAIR = ("baseline", "smelt")
PAPER = {
    "color": INK,
    "marker": "D",
    "linestyle": "none",
    "markersize": 5,
    "markerfacecolor": "white",
    "markeredgecolor": INK,
    "markeredgewidth": 1.1,
}


def use_theme() -> None:
    """Set the theme of every figure: white grid, readable sizes, reproducible SVG."""
    sns.set_theme(
        context="paper",
        style="whitegrid",
        rc={
            "font.size": 9,
            "axes.titlesize": 9.5,
            "axes.labelsize": 9,
            "xtick.labelsize": 8,
            "ytick.labelsize": 8,
            "legend.fontsize": 8.5,
            "axes.edgecolor": GREY,
            "axes.titleweight": "bold",
            "axes.titlelocation": "left",
            "grid.color": "#ececec",
            "figure.dpi": 100,
            "figure.constrained_layout.use": True,
            "svg.hashsalt": "smelt",
            "svg.fonttype": "path",
            "lines.linewidth": 1.2,
            "legend.frameon": False,
            "text.parse_math": False,
        },
    )


def panels(
    count: int, columns: int = 2, height: float = 2.3, share_x: bool = True, share_y: bool = True
) -> tuple[Figure, list[Axes]]:
    """Return a figure of page width with `count` panels in rows of `columns`; `height` inches a row."""
    columns = min(columns, count)
    rows = -(-count // columns)
    figure, grid = plt.subplots(
        rows, columns, figsize=(WIDTH, height * rows + 0.35), sharex=share_x, sharey=share_y, squeeze=False
    )
    axes = list(grid.flat)
    for spare in axes[count:]:
        spare.remove()
    for axis in axes[:count]:
        axis.tick_params(labelbottom=True, labelleft=True)
    return figure, axes[:count]


def outer_labels(axes: list[Axes], x: str, y: str) -> None:
    """Label the left and the lowest panels only."""
    for axis in axes:
        spec = axis.get_subplotspec()
        below = [a for a in axes if a.get_subplotspec().colspan == spec.colspan]
        if spec.rowspan.stop == max(a.get_subplotspec().rowspan.stop for a in below):
            axis.set_xlabel(x)
        if spec.is_first_col():
            axis.set_ylabel(y)


def legend_above(figure: Figure, handles: list[Line2D]) -> None:
    """Put one legend above all panels."""
    figure.legend(handles=handles, loc="outside upper center", ncols=min(len(handles), 5))


def pair_handles(line: bool = False) -> list[Line2D]:
    """Return legend handles of Baseline and SMELT."""
    style = "-" if line else "none"
    return [Line2D([], [], label=LOOKS[arch].label, linestyle=style, **LOOKS[arch].points()) for arch in PAIR]


def sparsity_title(sparsity: int) -> str:
    """Return the title of a sparsity's panel."""
    return f"S = {sparsity}%"


def tokens_label(value: float) -> str:
    """Return a token count in short form, such as 2.1M."""
    for size, unit in ((1e12, "T"), (1e9, "B"), (1e6, "M"), (1e3, "k")):
        if value >= size:
            return f"{value / size:.3g}{unit}"
    return f"{value:.0f}"


def span_limits(values: Any, margin: float = 0.06) -> tuple[float, float]:
    """Return axis limits around finite `values`."""
    values = np.asarray(values, dtype=float)
    values = values[np.isfinite(values)]
    low, high = values.min(), values.max()
    pad = (high - low or abs(high) or 1.0) * margin
    return low - pad, high + pad


def text_figure(sentence: str) -> Figure:
    """Return the small figure that stands where something was not measured."""
    figure = plt.figure(figsize=(WIDTH, 0.9), layout="none")
    figure.text(0.02, 0.5, sentence.replace("`", ""), va="center", wrap=True, fontsize=9, color=INK)
    return figure
