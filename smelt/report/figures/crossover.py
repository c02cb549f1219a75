"""Where looping begins or ceases to pay: figure P4."""

from __future__ import annotations

import pandas as pd
from matplotlib.axes import Axes
from matplotlib.lines import Line2D
from matplotlib.patches import Patch

from smelt.report.crossing import crossing_text
from smelt.report.data import Data
from smelt.report.output import Drawing
from smelt.report.style import (
    AMBER,
    GAP,
    GREY,
    INK,
    RED,
    legend_above,
    log_axis,
    outer_labels,
    panels,
    tokens_label,
)
from smelt.report.tables.formats import joined

ALL = "all"


def crossover(data: Data) -> Drawing:
    """Figure P4: mean gap against tokens by scale and over all cells, and where it changes sign."""
    data.need("gap_curves", "crossovers")
    frame = data.frame(
        """
        SELECT subset, horizon, g.tokens, -gap AS gap, -g.high AS low, -g.low AS high, g.cells, g.seeds,
          g.basis, c.tokens AS crossover, c.low AS crossover_low, c.high AS crossover_high
        FROM gap_curves g JOIN crossovers c USING (subset) ORDER BY subset, horizon
        """
    )
    found = {row["subset"]: row for row in data.frame("SELECT * FROM crossovers").to_dict("records")}
    subsets = [name for name in (*(f"scale:{scale}" for scale in data.scales), ALL) if name in found]
    figure, axes = panels(len(subsets), columns=3, height=2.0)
    for axis, subset in zip(axes, subsets, strict=True):
        part = frame[frame["subset"] == subset]
        _draw(axis, part)
        axis.set_title("All cells" if subset == ALL else f"Scale {subset.removeprefix('scale:')}")
        log_axis(axis, frame["tokens"], tokens_label)
    outer_labels(axes, "Tokens seen", GAP)
    handles = [Line2D([], [], color=RED, marker="s", markersize=4, label="mean gap over cells")]
    if frame["low"].notna().any():
        handles.append(Patch(color=RED, alpha=0.13, linewidth=0, label="95% interval"))
        handles.append(Patch(color=AMBER, alpha=0.35, linewidth=0, label="where the gap may be zero"))
    if frame["crossover"].notna().any():
        handles.append(Line2D([], [], color=INK, linestyle=":", label="change of sign"))
    legend_above(figure, handles)
    return Drawing(figure, frame, _note(found, subsets))


def _draw(axis: Axes, part: pd.DataFrame) -> None:
    first = part.iloc[0]
    if first["crossover_low"] == first["crossover_low"]:
        axis.axvspan(first["crossover_low"], first["crossover_high"], 0, 0.04, color=AMBER, alpha=0.35, lw=0)
    if part["low"].notna().any():
        axis.fill_between(part["tokens"], part["low"], part["high"], color=RED, alpha=0.13, linewidth=0)
    axis.axhline(0, color=GREY, linewidth=0.9)
    axis.plot(part["tokens"], part["gap"], color=RED, marker="s", markersize=4)
    if first["crossover"] == first["crossover"]:
        axis.axvline(first["crossover"], color=INK, linestyle=":", linewidth=1.0)


def _note(found: dict[str, dict], subsets: list[str]) -> str:
    """Say where each line changes sign and what the intervals are made of."""
    whole_first = sorted(subsets, key=lambda subset: subset != ALL)
    places = "; ".join(crossing_text(found[subset]) for subset in whole_first)
    kinds = {
        basis: [subset for subset in subsets if found[subset]["basis"] == basis]
        for basis in dict.fromkeys(found[subset]["basis"] for subset in subsets)
    }
    made = "; ".join(
        f"{basis or 'none, for too few cells'} ({_named(members)})" for basis, members in kinds.items()
    )
    return joined(f"{places[0].upper()}{places[1:]}.", f"Intervals: {made}.")


def _named(subsets: list[str]) -> str:
    return ", ".join("all cells" if subset == ALL else subset.removeprefix("scale:") for subset in subsets)
