"""How values are written in tables."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any


def text(value: Any) -> str:
    """Return the value as it is."""
    return str(value)


def integer(value: Any) -> str:
    """Return a whole number."""
    return f"{int(value)}"


def counted(number: Any, noun: str) -> str:
    """Return a count with its noun, such as `1 cell` or `4 cells`."""
    return f"{int(number)} {noun}{'' if int(number) == 1 else 's'}"


def fixed(digits: int, sign: bool = False) -> Callable[[Any], str]:
    """Return a writer with a fixed number of decimals, with a sign on request."""
    return lambda value: f"{value:+.{digits}f}" if sign else f"{value:.{digits}f}"


def percent(digits: int) -> Callable[[Any], str]:
    """Return a writer of fractions as percentages without the unit."""
    return lambda value: f"{100 * value:.{digits}f}"


def scientific(value: Any) -> str:
    """Return three significant digits, such as 0.0123, 1650 or 1.2e21."""
    short_text = f"{value:.3g}"
    if 1 <= abs(value) < 1e5:
        return f"{float(short_text):.0f}" if "e+" in short_text else short_text
    return short_text.replace("e+0", "e").replace("e+", "e").replace("e-0", "e-")


def short(value: Any) -> str:
    """Return a count with a unit, such as 1.87M."""
    for size, unit in ((1e12, "T"), (1e9, "B"), (1e6, "M"), (1e3, "k")):
        if abs(value) >= size:
            return f"{value / size:.3g}{unit}"
    return f"{value:.0f}"


def interval_text(low: Any, high: Any) -> str | None:
    """Return `low to high` with three significant digits, or None where an end is missing."""
    if low is None or high is None or low != low or high != high:
        return None
    return f"{scientific(low)} to {scientific(high)}"


def joined(*sentences: str) -> str:
    """Return the sentences that are not empty as one text."""
    return " ".join(filter(None, sentences))


def between(low: str, high: str) -> str:
    """Return `low to high`, or one of them where they read the same."""
    return low if low == high else f"{low} to {high}"


def interval(low: Any, high: Any, digits: int) -> str | None:
    """Return `low to high`, or None where an end is missing."""
    if low is None or high is None or low != low or high != high:
        return None
    return f"{low:.{digits}f} to {high:.{digits}f}"
