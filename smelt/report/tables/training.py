"""What the training log says beside the curves: how evenly the routers use their experts."""

from __future__ import annotations

import pandas as pd

from smelt.report.data import Data
from smelt.report.output import Column, TableView
from smelt.report.style import LOOKS, PAIR
from smelt.report.tables.formats import counted, fixed, integer, text


def expert_load(data: Data) -> TableView:
    """Table P6: smallest and largest load of an expert at the end of the last branch, one row a cell.

    Loads are relative to an equal share, over about 20 updates. They are the extremes over the executed
    layers, and over the runs where there are several training seeds.
    """
    data.need("train_log")
    frame = data.rows(
        "last updates of grid runs",
        """
        WITH ends AS (
          SELECT run, load_min, load_max FROM train_log WHERE phase = 'decay' AND horizon = ?
          QUALIFY row_number() OVER (PARTITION BY run ORDER BY step DESC) = 1)
        SELECT r.cell, r.scale, r.sparsity, r.arch, any_value(r.experts) AS experts, any_value(r.top_k) AS k,
          min(e.load_min) AS load_min, max(e.load_max) AS load_max
        FROM ends e JOIN runs r USING (run) WHERE r.grouping = 'grid' GROUP BY ALL ORDER BY r.sparsity, r.arch
        """,
        max(data.study.training.horizons),
    )
    cells = data.ordered(frame)[["cell", "scale", "sparsity"]].drop_duplicates().set_index("cell")
    columns = [Column("scale", "Scale", text, numeric=False), Column("sparsity", "S (%)", integer)]
    for arch in PAIR:
        own = frame[frame["arch"] == arch].set_index("cell")
        for name, label, show in (
            ("experts", "E", integer),
            ("load_min", "smallest load", fixed(2)),
            ("load_max", "largest load", fixed(2)),
        ):
            cells[f"{arch}_{name}"] = own[name]
            columns.append(Column(f"{arch}_{name}", label, show, group=LOOKS[arch].label))
    return TableView(tuple(columns), cells.reset_index(drop=True), _note(frame))


def _note(frame: pd.DataFrame) -> str:
    """Tell the extremes, and how many models have an expert that gets next to nothing."""
    idle = int((frame["load_min"] < 0.01).sum())
    return (
        f"An expert that every token chooses has a load of E / {frame['k'].iloc[0]}; the largest here is "
        f"{frame['load_max'].max():.1f}. In {idle} of {counted(len(frame), 'model')} an expert gets less "
        "than a hundredth of its share."
    )
