"""Vertical intervals where a wide one would flatten the others: cut at what is readable, and marked."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import numpy as np
from matplotlib.axes import Axes

from smelt.report.style import span_limits
from smelt.report.tables.formats import counted


def readable(points: Iterable[float], least: float = 0.0) -> tuple[float, float]:
    """Return the range within which intervals are drawn: that of `points`, as much again on either side.

    `least` is what is added at least, in the axis's unit.
    """
    values = np.asarray(list(points), dtype=float)
    values = values[np.isfinite(values)]
    low, high = float(values.min()), float(values.max())
    more = max(high - low, least)
    return low - more, high + more


def whiskers(axis: Axes, x: Any, low: Any, high: Any, limits: tuple[float, float], colour: str) -> int:
    """Draw intervals cut at `limits`, with a triangle that points on; return how many are cut.

    Intervals with a missing end are left out.
    """
    x, low, high = (np.asarray(values, dtype=float) for values in (x, low, high))
    there = np.isfinite(low) & np.isfinite(high)
    x, low, high = x[there], low[there], high[there]
    axis.vlines(x, low.clip(*limits), high.clip(*limits), color=colour, linewidth=1.1)
    below, above = low < limits[0], high > limits[1]
    for beyond, limit, marker in ((below, limits[0], "v"), (above, limits[1], "^")):
        axis.plot(x[beyond], np.full(beyond.sum(), limit), marker, color=colour, markersize=5, zorder=3)
    return int((below | above).sum())


def frame_axis(axis: Axes, points: Any, low: Any, high: Any, limits: tuple[float, float]) -> None:
    """Let the axis hold the points and what is drawn of the intervals."""
    ends = [np.asarray(values, dtype=float).clip(*limits) for values in (low, high)]
    axis.set_ylim(*span_limits(np.concatenate([np.asarray(points, dtype=float), *ends])))


def cut_note(count: int) -> str:
    """Return a sentence on intervals that are cut, or an empty string."""
    if not count:
        return ""
    verb = "goes" if count == 1 else "go"
    return f"{counted(count, 'interval')} {verb} on where a triangle points; the CSV has the ends."
