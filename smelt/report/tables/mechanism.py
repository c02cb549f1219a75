"""Interventions on the second visit, as a table."""

from __future__ import annotations

from smelt.report.data import Data
from smelt.report.output import Column, TableView
from smelt.report.tables.formats import fixed, integer, interval, text


def interventions(data: Data) -> TableView:
    """The rise of the loss on all text under every intervention, for each SMELT run of the grid."""
    data.need("interventions")
    frame = data.ordered(
        data.rows(
            "interventions on grid runs",
            """
            SELECT r.scale, r.sparsity, i.intervention, i.loss, i.rise, i.low, i.high, i.tokens
            FROM interventions i JOIN runs r USING (run)
            WHERE r.grouping = 'grid' AND r.seed = 0 AND i.category = 'all'
            ORDER BY r.sparsity, i.intervention <> 'none', i.intervention
            """,
        )
    )
    frame["interval"] = [
        interval(low, high, 4) for low, high in zip(frame["low"], frame["high"], strict=True)
    ]
    columns = (
        Column("scale", "Scale", text, numeric=False),
        Column("sparsity", "S (%)", integer),
        Column("intervention", "Intervention", lambda name: name.replace("_", " "), numeric=False),
        Column("loss", "Loss (nats)", fixed(4)),
        Column("rise", "Rise (nats)", fixed(4, sign=True)),
        Column("interval", "95% interval", text),
        Column("tokens", "Tokens", integer),
    )
    return TableView(columns, frame)
