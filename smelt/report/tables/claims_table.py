"""The ledger as a table: what became of each claim of the paper."""

from __future__ import annotations

from smelt.report.data import Data
from smelt.report.ledger import VERDICTS, ledger
from smelt.report.output import Column, TableView
from smelt.report.tables.formats import interval_text, scientific, text


def claims(data: Data) -> TableView:
    """Every claim with the paper's value, ours with its 95% interval, the verdict and why."""
    frame = ledger(data)
    frame["interval"] = [
        interval_text(low, high) for low, high in zip(frame["low"], frame["high"], strict=True)
    ]
    counts = frame["verdict"].value_counts()
    note = ", ".join(f"{counts.get(verdict, 0)} {verdict}" for verdict in VERDICTS)
    columns = (
        Column("claim", "Claim", text, numeric=False),
        Column("statement", "Statement", text, numeric=False, wrap=True),
        Column("verdict", "Verdict", text, numeric=False),
        Column("value", "This study", scientific),
        Column("interval", "95% interval", text),
        Column("paper_value", "Paper", text, numeric=False, wrap=True),
        Column("reason", "Reason", text, numeric=False, wrap=True),
    )
    return TableView(columns, frame, f"Verdicts: {note}.")
