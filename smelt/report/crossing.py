"""Where the gap between SMELT and its Baseline changes sign, in words: figure P4 and claim C1."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from smelt.report.tables.formats import scientific


def crossing_text(row: Mapping[str, Any]) -> str:
    """Return what a row of `crossovers` says, without a full stop."""
    where = "over all cells" if row["subset"] == "all" else f"at scale {row['subset'].removeprefix('scale:')}"
    ends = _known(row["low"]), _known(row["high"])
    if _known(row["tokens"]) is None:
        side = "ahead" if row["ahead_last"] else "behind"
        window = f"{scientific(row['window_low'])} to {scientific(row['window_high'])} tokens"
        text = f"no crossover inside the window of {window} {where}: SMELT is {side} throughout"
        if not row["basis"]:
            return f"{text} (no interval)"
        if None in ends:
            return f"{text}, with its whole 95% band"
        return f"{text}, but not clearly so {_range(row)}"
    verb = "overtakes" if row["ahead_last"] else "falls behind"
    text = f"{where} SMELT {verb} at {scientific(row['tokens'])} tokens"
    if row["changes"] > 1:
        text += f", the last of {row['changes']} changes"
    return f"{text} ({_range(row) if row['basis'] else 'no interval'})"


def _range(row: Mapping[str, Any]) -> str:
    """Return from where to where the gap's 95% interval holds zero; at an edge of the window it is open."""
    low, high = (scientific(row[end]) for end in ("low", "high"))
    below, above = row["low"] <= row["window_low"], row["high"] >= row["window_high"]
    if below and above:
        return "anywhere in the window or outside"
    if below:
        return f"before {high}"
    return f"after {low}" if above else f"from {low} to {high}"


def _known(value: Any) -> float | None:
    """Return a number, or None for what SQL calls NULL and pandas NaN."""
    return None if value is None or value != value else value
