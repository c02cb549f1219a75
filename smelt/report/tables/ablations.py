"""The ablations: tables 3, 4 and 5, ours beside the printed values at the same relative place."""

from __future__ import annotations

import pandas as pd

from smelt.report.data import Data
from smelt.report.output import Column, TableView
from smelt.report.paper import published
from smelt.report.tables.formats import fixed, integer, text

_OURS = (
    ("val_loss", "Val. loss", fixed(4)),
    ("val_loss_sd", "± seeds", fixed(4)),
    ("core", "Core (%)", fixed(2)),
    ("completion", "Completion", fixed(4)),
)
_PAPER = (
    ("val_loss_paper", "Val. loss, paper", fixed(4)),
    ("dclm_core", "Core, paper (%)", fixed(2)),
    ("dclm_completion", "Completion, paper", fixed(4)),
)


def span(data: Data) -> TableView:
    """Table 3: how many of the middle layers are looped."""
    frame = _points(data, "span")
    frame["span_pct"] = (100 * frame["value"] / frame["layers"]).round().astype(int)
    paper = published("table03_loop_span").assign(
        sparsity=lambda rows: (100 * rows["sparsity"]).round().astype(int)
    )
    frame = _beside(frame, paper, ["sparsity", "span_pct"])
    columns = (
        Column("sparsity", "S (%)", integer),
        Column("span_pct", "Span (%)", integer),
        Column("value", "Looped layers", integer),
        Column("effective_layers", "L_eff", integer),
    )
    return _view(data, columns, frame)


def depth(data: Data) -> TableView:
    """Table 4: depth against width at equal budgets, Baseline and looped."""
    frame = _points(data, "depth")
    reference = data.study.scales[data.study.ablations["scale"]].layers
    frame["relative"] = (frame["value"] / reference).round(2)
    paper = published("table04_depth_width").assign(
        relative=lambda rows: (rows["physical_depth"] / 12).round(2)
    )
    frame = _beside(frame, paper, ["arch", "relative"])
    columns = (
        Column("arch", "Architecture", text, numeric=False),
        Column("relative", "Depth / reference", fixed(2)),
        Column("value", "L", integer),
        Column("effective_layers", "L_eff", integer),
        Column("hidden", "H", integer),
        Column("physical_depth", "L, paper", integer),
    )
    return _view(data, columns, frame)


def loops(data: Data) -> TableView:
    """Table 5: how often the span is visited."""
    frame = _points(data, "loops")
    frame = _beside(frame, published("table05_loop_count").rename(columns={"loop_count": "value"}), ["value"])
    columns = (
        Column("value", "Visits", integer),
        Column("effective_layers", "L_eff", integer),
        Column("effective_depth", "L_eff, paper", integer),
    )
    return _view(data, columns, frame)


def _points(data: Data, ablation: str) -> pd.DataFrame:
    """Return one row a point: means over seeds of the last endpoint, and the spread between seeds."""
    data.need("ablation_points")
    frame = data.rows(
        f"ablation of {ablation}",
        """
        WITH last AS (SELECT run, max(horizon) AS horizon FROM endpoints GROUP BY run)
        SELECT a.sparsity, a.arch, a.value, any_value(r.layers) AS layers,
          any_value(r.effective_layers) AS effective_layers, any_value(r.hidden) AS hidden,
          avg(e.val_loss) AS val_loss, stddev_samp(e.val_loss) AS val_loss_sd, count(e.run) AS seeds,
          100 * avg(e.core) AS core, avg(e.completion) AS completion
        FROM ablation_points a JOIN runs r ON r.run = a.run OR regexp_matches(r.run, '^' || a.run || '-seed\\d+$')
        LEFT JOIN last l ON l.run = r.run LEFT JOIN endpoints e ON e.run = l.run AND e.horizon = l.horizon
        WHERE a.ablation = ? GROUP BY a.sparsity, a.arch, a.value ORDER BY a.sparsity, a.arch, a.value
        """,
        ablation,
    )
    if not frame["seeds"].sum():
        data.need("endpoints")
    return frame


def _beside(frame: pd.DataFrame, paper: pd.DataFrame, keys: list[str]) -> pd.DataFrame:
    """Join our points and the printed ones; a point that only one side has keeps its row."""
    joined = frame.merge(paper, on=keys, how="outer", suffixes=("", "_paper"), sort=True)
    return joined.drop(columns="sparsity_paper", errors="ignore")


def _view(data: Data, columns: tuple[Column, ...], frame: pd.DataFrame) -> TableView:
    measured = [
        Column(key, label, show) for key, label, show in (*_OURS, *_PAPER) if frame[key].notna().any()
    ]
    scale = data.study.ablations["scale"]
    seeds = int(frame["seeds"].max())
    spread = "the spread is one standard deviation between seeds" if seeds > 1 else "one seed, so no spread"
    note = f"Ours at scale {scale}, last endpoint, {spread}; the paper's at 200M and S = 85% or as given."
    return TableView((*columns, *measured), frame, note)
