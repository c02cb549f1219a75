"""What stands beside claim C1: stronger unlooped models than the Baseline, and where the gap changes sign."""

from __future__ import annotations

from smelt.report.claims_evidence import Evidence, Row
from smelt.report.claims_rules import Unmeasured, sentence
from smelt.report.crossing import crossing_text

_MODELS = {
    "loss_gap_control": "the control with SMELT's experts",
    "loss_gap_best_depth": "the Baseline of the best depth",
}


def referee_sentence(evidence: Evidence) -> str:
    """Return one sentence on the gaps to the two stronger unlooped models; they decide no verdict."""
    parts = []
    for kind, model in _MODELS.items():
        rows = [row for name, row in evidence.contrasts.items() if name.startswith(kind + ":")]
        parts.extend(f"{_gap(row)} for {model} in {row['contrast'].split(':')[1]}" for row in rows)
        if not rows:
            parts.append(f"not measured for {model} ({evidence.reason(kind)})")
    return f"Beside the verdict, the unlooped model's loss minus SMELT's is {', '.join(parts)}."


def crossover_sentence(evidence: Evidence) -> str:
    """Return one sentence on where the mean gap over all cells changes sign, or why that is not known."""
    try:
        rows = [row for row in evidence.laws("crossovers") if row["subset"] == "all"]
    except Unmeasured as reason:
        return f"No crossover: {reason}."
    return sentence(crossing_text(rows[0]) if rows else f"No crossover: {evidence.reason('crossover')}")


def _gap(row: Row) -> str:
    ends = "no interval" if row["low"] is None else f"{row['low']:+.4f} to {row['high']:+.4f}"
    note = f"; {row['note']}" if row["note"] else ""
    return f"{row['value']:+.4f} nats ({ends}{note})"
