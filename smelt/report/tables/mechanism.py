"""Interventions on the second visit, as a table."""

from __future__ import annotations

import pandas as pd

from smelt.report.data import Data
from smelt.report.figures.routing import INTERVENTIONS
from smelt.report.output import Column, TableView
from smelt.report.tables.formats import fixed, integer, text


def interventions(data: Data) -> TableView:
    """The rise of the loss on all text under every intervention, one row a SMELT run of the grid."""
    data.need("interventions")
    frame = data.ordered(
        data.rows(
            "interventions on grid runs",
            """
            SELECT r.scale, r.sparsity, i.intervention, i.loss, i.rise, i.low, i.high
            FROM interventions i JOIN runs r USING (run)
            WHERE r.grouping = 'grid' AND r.seed = 0 AND i.category = 'all' ORDER BY r.sparsity
            """,
        )
    )
    intact = frame[frame["intervention"] == "none"].set_index(["scale", "sparsity"])["loss"]
    wide = pd.DataFrame({"intact": intact})
    columns = [
        Column("scale", "Scale", text, numeric=False),
        Column("sparsity", "S (%)", integer),
        Column("intact", "Intact loss (nats)", fixed(4)),
    ]
    for name, label in INTERVENTIONS.items():
        part = frame[frame["intervention"] == name].set_index(["scale", "sparsity"])
        if part.empty:
            continue
        for kind in ("rise", "low", "high"):
            wide[f"{name}_{kind}"] = part[kind]
        wide[f"{name}_text"] = [
            _rise(*row) for row in part[["rise", "low", "high"]].astype(float).reindex(wide.index).values
        ]
        columns.append(Column(f"{name}_text", label, text, group="Rise of the loss (nats)"))
    note = "± is half of the 95% interval over documents."
    return TableView(tuple(columns), wide.reset_index(), note)


def _rise(rise: float, low: float, high: float) -> str | None:
    """Return a rise with half of its interval, None where it was not measured."""
    if rise != rise:
        return None
    return f"{rise:+.4f}" + (f"\n±{(high - low) / 2:.4f}" if high == high else "")
