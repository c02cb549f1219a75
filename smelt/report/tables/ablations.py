"""The ablations: tables 3, 4 and 5 beside the printed values at the same place, and stronger Baselines."""

from __future__ import annotations

import pandas as pd

from smelt.report.data import Data, NotMeasured
from smelt.report.output import Column, TableView
from smelt.report.paper import published
from smelt.report.tables.formats import between, fixed, integer, interval, joined, text

# Standard errors say in their heading what was repeated; the note says what that covers.
TRAINING, EVALUATION = "± training seeds", "± evaluation seeds"
_OURS = (
    ("val_loss", "Val. loss (nats)", fixed(4)),
    ("val_loss_se_training", TRAINING, fixed(4)),
    ("core_pct", "Core (%)", fixed(2)),
    ("core_se_training_pct", TRAINING, fixed(2)),
    ("core_se_evaluation_pct", EVALUATION, fixed(2)),
    ("completion", "Completion (nats)", fixed(4)),
    ("completion_se_training", TRAINING, fixed(4)),
)
# The paper trained each model once, so its error can only be that of the demonstrations.
_PAPER = (
    ("val_loss_paper", "Val. loss (nats)", fixed(4)),
    ("dclm_core", "Core (%)", fixed(2)),
    ("dclm_core_se", EVALUATION, fixed(2)),
    ("dclm_completion", "Completion (nats)", fixed(4)),
)

_UNLOOPED = {
    "loss_gap": "Baseline",
    "loss_gap_control": "Control with SMELT's experts",
    "loss_gap_best_depth": "Baseline of the best depth",
}


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
        Column("arch", "Architecture", str.capitalize, numeric=False),
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


def stronger_baselines(data: Data) -> TableView:
    """SMELT against the Baseline of its cell and two stronger unlooped models, at the last horizon."""
    data.need("law_contrasts")
    frame = data.rows(
        "unlooped control",
        """
        WITH gaps AS (
          SELECT *, split_part(contrast, ':', 1) AS kind, split_part(contrast, ':', 2) AS cell
            FROM law_contrasts WHERE starts_with(contrast, 'loss_gap')
        )
        SELECT g.*, r.sparsity FROM gaps g JOIN runs r USING (cell)
          WHERE r.arch = 'smelt' AND r.seed = 0
            AND cell IN (SELECT cell FROM gaps WHERE kind <> 'loss_gap')
          ORDER BY r.sparsity, cell, list_position(?, kind)
        """,
        list(_UNLOOPED),
    )
    frame["unlooped"] = frame["kind"].map(_UNLOOPED)
    frame["interval"] = [
        interval(low, high, 4) for low, high in zip(frame["low"], frame["high"], strict=True)
    ]
    columns = (
        Column("cell", "Cell", text, numeric=False),
        Column("unlooped", "Unlooped model", text, numeric=False),
        Column("value", "Its loss minus SMELT's (nats)", fixed(4, sign=True)),
        Column("interval", "95% interval", text),
        Column("n", "Training seeds", integer),
        Column("basis", "Interval from", text, numeric=False, wrap=True),
        Column("note", "Reservation", text, numeric=False, wrap=True),
    )
    return TableView(columns, frame, "Positive gaps are in favour of SMELT.")


def _points(data: Data, ablation: str) -> pd.DataFrame:
    """Return the measured points of one ablation, each at the last endpoint."""
    if not data.study.ablations.get(ablation):
        raise NotMeasured(f"Not measured: study {data.study.name} plans no ablation of the {ablation}.")
    data.need("ablation_points", "ablation_results")
    return data.rows(
        f"ablation of {ablation}",
        """
        SELECT a.*, r.layers, r.hidden, 100 * a.core AS core_pct,
          100 * a.core_se_training AS core_se_training_pct,
          100 * a.core_se_evaluation AS core_se_evaluation_pct
        FROM ablation_results a JOIN runs r USING (run) WHERE a.ablation = ?
        ORDER BY a.sparsity, a.arch, a.value
        """,
        ablation,
    )


def _beside(frame: pd.DataFrame, paper: pd.DataFrame, keys: list[str]) -> pd.DataFrame:
    """Join our points and the printed ones; a point that only one side has keeps its row."""
    both = frame.merge(paper, on=keys, how="outer", suffixes=("", "_paper"), sort=True)
    return both.drop(columns="sparsity_paper", errors="ignore")


def _view(data: Data, columns: tuple[Column, ...], frame: pd.DataFrame) -> TableView:
    measured = [
        Column(key, label, show, group=group)
        for group, shown in (("This study", _OURS), ("Paper", _PAPER))
        for key, label, show in shown
        if frame[key].notna().any()
    ]
    note = f"Ours at scale {data.study.ablations['scale']}, last endpoint. The paper's column is at 200M."
    name = frame["ablation"].dropna().iloc[0]
    interval_note = data.interval_note(f"{name}_margin", "a difference from the recipe's own row")
    return TableView((*columns, *measured), frame, joined(note, *_error_notes(data, frame), interval_note))


def _error_notes(data: Data, frame: pd.DataFrame) -> tuple[str, str]:
    """Say what each of the standard errors covers, or why there is none."""
    trained = frame["seeds"].dropna()
    repeats = between(f"{trained.min():.0f}", f"{trained.max():.0f}")
    if trained.max() > 1:
        training = (
            f"{TRAINING}: standard error of the mean of {repeats} trainings with other initial weights and "
            "another order of the text, on the same demonstrations."
        )
    else:
        training = "One training seed: no error here says how far another training would fall."
    chosen = data.study.evaluation.seeds
    if frame["core_se_evaluation_pct"].notna().any():
        evaluation = (
            f"{EVALUATION}: standard error over {chosen} choices of demonstrations for the same models, "
            "nothing else."
        )
    elif frame["core_pct"].notna().any():
        evaluation = "One evaluation seed: no error says how far other demonstrations would move Core."
    else:
        evaluation = ""
    return training, evaluation
