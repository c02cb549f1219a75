"""How figures look: one theme, one look for each architecture, shared axes and legends."""

from __future__ import annotations

import math
from collections.abc import Callable
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
from matplotlib.ticker import FixedLocator, FuncFormatter, NullLocator

WIDTH = 7.2  # inches: the page width at which text keeps its nominal size

INK, GREY, LIGHT, GRID = "#222222", "#767676", "#d9d9d9", "#ececec"
BLUE, RED, AMBER = "#1f5fa8", "#c1272d", "#b8860b"
LATER = ("#e39a9d", RED, "#7d151a", "#3d0a0d")  # the visits of a span, light to dark
BOX, LOOPED_BOX, PROMPT = "#e9eef5", "#f4d3d5", "#cfd8e3"
# Middle tones that hold on white and on black, told apart by their markers too.
SCALES = ("#de8f05", "#029e73", "#9370db", "#56b4e9", "#ca6f1e", "#7f8c8d")
MARKERS = "osD^vP"

# What a colour turns into on a dark page; colours of heat maps stay as they are.
_DARK = {
    INK: "#e8e9eb",
    GREY: "#a9adb5",
    LIGHT: "#4a4e55",
    GRID: "#33363c",
    BLUE: "#6fb1f5",
    RED: "#ff6b6b",
    AMBER: "#e0b040",
    LATER[2]: "#c23a40",
    LATER[3]: "#8c2227",
    BOX: "#2b313a",
    LOOPED_BOX: "#5a2a2e",
    PROMPT: "#4b5563",
}


@dataclass(frozen=True)
class Look:
    """Label, colour and marker of one architecture."""

    label: str
    colour: str
    marker: str
    face: str
    size: float
    order: float

    def points(self) -> dict[str, Any]:
        """Return keyword arguments of `plot` for the marker."""
        return {
            "color": self.colour,
            "marker": self.marker,
            "markerfacecolor": self.face,
            "markeredgecolor": self.colour,
            "markeredgewidth": 1.1,
            "markersize": self.size,
            "zorder": self.order,
        }


# The open circle is the larger one and drawn last, so that both can be seen where they coincide.
LOOKS = {
    "baseline": Look("Baseline", BLUE, "o", "none", 5.8, 2.6),
    "smelt": Look("SMELT", RED, "s", RED, 4.2, 2.4),
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


# Figures show the gap as the paper does; the ledger turns it round, so that positive supports a claim.
GAP = "SMELT − Baseline (nats)\nbelow 0: SMELT better"

_SUPERSCRIPT = str.maketrans("0123456789-", "⁰¹²³⁴⁵⁶⁷⁸⁹⁻")


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
            "grid.color": GRID,
            "text.color": INK,
            "axes.labelcolor": INK,
            "xtick.color": INK,
            "ytick.color": INK,
            "figure.dpi": 100,
            "figure.constrained_layout.use": True,
            "svg.hashsalt": "smelt",
            "svg.fonttype": "path",
            "lines.linewidth": 1.2,
            "legend.frameon": False,
        },
    )


def dark_style() -> str:
    """Return CSS that turns a figure's colours into those for a dark page, for an SVG without background.

    Opened by itself it then has a dark page too.
    """
    rules = [
        f'[style*="{kind}: {colour}"] {{ {kind}: {dark} !important }}'
        for colour, dark in _DARK.items()
        for kind in ("fill", "stroke")
    ]
    return f"svg {{ color-scheme: light dark }} @media (prefers-color-scheme: dark) {{ {' '.join(rules)} }}"


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


def log_axis(axis: Axes, values: Any, write: Callable[[float], str], vertical: bool = False) -> None:
    """Make an axis logarithmic over `values` with three to six labelled ticks, however short it is."""
    low, high = (float(value) for value in (np.min(values), np.max(values)))
    pad = (high / low) ** 0.05 if high > low else 1.2
    low, high = low / pad, high * pad
    scale, limits = (axis.set_yscale, axis.set_ylim) if vertical else (axis.set_xscale, axis.set_xlim)
    scale("log")
    limits(low, high)
    own = axis.yaxis if vertical else axis.xaxis
    own.set_major_locator(FixedLocator(log_ticks(low, high)))
    own.set_major_formatter(FuncFormatter(lambda value, _: write(value)))
    own.set_minor_locator(NullLocator())


# Digits of ticks, from the roundest to any.
_ROUND = (
    (1,),
    (1, 3),
    (1, 2, 5),
    (1, 2, 3, 4, 6, 8),
    (1, 1.5, 2, 3, 5, 7),
    tuple(n / 2 for n in range(2, 20)),
    tuple(n / 10 for n in range(10, 100)),
)


def log_ticks(low: float, high: float, most: int = 5) -> list[float]:
    """Return at most `most` round numbers from `low` to `high`, well apart on a logarithmic axis."""
    exponents = range(math.floor(math.log10(low)), math.ceil(math.log10(high)) + 1)
    gap = math.log10(high / low) / (most + 0.5)
    best: list[float] = []
    for digits in _ROUND:
        ticks = []
        for tick in (digit * 10.0**exponent for exponent in exponents for digit in digits):
            if low <= tick <= high and (not ticks or math.log10(tick / ticks[-1]) >= gap):
                ticks.append(tick)
        if len(ticks) >= 3:
            return ticks
        best = max(best, ticks, key=len)
    return best if len(best) > 1 else [low, high]


def power_label(value: float) -> str:
    """Return a number as a power of ten, such as 2·10¹²."""
    exponent = math.floor(math.log10(value) + 1e-9)
    factor = value / 10.0**exponent
    power = "10" + str(exponent).translate(_SUPERSCRIPT)
    return power if abs(factor - 1) < 1e-6 else f"{factor:.2g}·{power}"


def legend_above(figure: Figure, handles: list[Line2D]) -> None:
    """Put one legend above all panels."""
    figure.legend(handles=handles, loc="outside upper center", ncols=len(handles) if len(handles) <= 7 else 5)


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
