"""Interventions on the second visit, as a table."""

from __future__ import annotations

import pandas as pd

from smelt.report.data import Data
from smelt.report.figures.routing import INTERVENTIONS
from smelt.report.output import Column, TableView
from smelt.report.tables.formats import integer, text


def interventions(data: Data) -> TableView:
    """The rise of the loss on all text under every intervention, one row a SMELT run of the grid."""
    data.need("interventions")
    frame = data.ordered(
        data.rows(
            "interventions on grid runs",
            """
            SELECT r.scale, r.sparsity, i.intervention, i.loss, i.loss_low, i.loss_high, i.rise, i.low, i.high
            FROM interventions i JOIN runs r USING (run)
            WHERE r.grouping = 'grid' AND r.seed = 0 AND i.category = 'all' ORDER BY r.sparsity
            """,
        )
    )
    intact = frame[frame["intervention"] == "none"].set_index(["scale", "sparsity"])
    ends = {f"intact_{end}": intact[f"loss_{end}"] for end in ("low", "high")}
    wide = pd.DataFrame({"intact": intact["loss"], **ends})
    wide["intact_text"] = [_measured(*row) for row in wide.astype(float).values]
    columns = [
        Column("scale", "Scale", text, numeric=False),
        Column("sparsity", "S (%)", integer),
        Column("intact_text", "Intact loss (nats)", text),
    ]
    for name, label in INTERVENTIONS.items():
        part = frame[frame["intervention"] == name].set_index(["scale", "sparsity"])
        if part.empty:
            continue
        for kind in ("rise", "low", "high"):
            wide[f"{name}_{kind}"] = part[kind]
        wide[f"{name}_text"] = [
            _measured(*row, sign="+")
            for row in part[["rise", "low", "high"]].astype(float).reindex(wide.index).values
        ]
        columns.append(Column(f"{name}_text", label, text, group="Rise of the loss (nats)"))
    note = "± is half of the 95% interval over documents."
    return TableView(tuple(columns), wide.reset_index(), note)


def _measured(value: float, low: float, high: float, sign: str = "") -> str | None:
    """Return a number with half of its interval, None where it was not measured."""
    if value != value:
        return None
    return f"{value:{sign}.4f}" + (f"\n±{(high - low) / 2:.4f}" if high == high else "")
