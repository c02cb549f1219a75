"""What the first page says of a study beside its figures: sizes, data, plan and wall clock."""

from __future__ import annotations

from typing import Any

from smelt.report.contents import Item
from smelt.report.data import Data, NotMeasured
from smelt.report.markup import missing_html
from smelt.report.output import Column, TableView, table_html
from smelt.report.tables.formats import fixed, integer, scientific, short, text


def facts(data: Data) -> list[tuple[str, str]]:
    """Return label and text of what the study consists of."""
    study = data.study
    runs = data.frame(
        """
        SELECT count(*) AS runs, count_if(grouping = 'grid') AS grid, count(DISTINCT seed) AS seeds,
          min(params_active) AS low, max(params_active) AS high, min(params_total) AS total_low,
          max(params_total) AS total_high FROM runs
        """
    ).iloc[0]
    ends = data.frame("SELECT count(*) AS n, min(tokens) AS low, max(tokens) AS high FROM endpoints").iloc[0]
    loop = study.loop
    runs = runs.astype(int)
    tokens = f", at {short(ends['low'])} to {short(ends['high'])} tokens" if ends["n"] else ""
    return [
        ("Scales", ", ".join(data.scales)),
        ("Sparsities", ", ".join(f"{sparsity}%" for sparsity in data.sparsities)),
        ("Runs", f"{runs['runs']}, of them {runs['grid']} in the grid; seeds: {runs['seeds']}"),
        ("Active parameters", f"{short(runs['low'])} to {short(runs['high'])}"),
        ("Total parameters", f"{short(runs['total_low'])} to {short(runs['total_high'])}"),
        ("Endpoints", f"{int(ends['n'])}{tokens}"),
        ("Loop", f"{loop.span:.0%} of the layers, visited {loop.visits} times, {loop.order} order"),
        ("Narrowed first", f"{loop.narrow}, to pay for the visits at equal budgets"),
        ("Vocabulary and context", f"{study.corpus.vocab} and {study.corpus.context} tokens"),
        ("Task suite", _suite(study.evaluation.suite)),
    ]


def _suite(name: str) -> str:
    if name == "local":
        return "local: tasks made by this project, not DCLM; scores cannot be compared with the paper's"
    return name


def datacard(data: Data) -> str:
    """Return the table of text sources, or a sentence where there is none."""
    item = Item("data-card", "D", "Text sources", "")
    try:
        data.need("corpus_sources")
    except NotMeasured as missing:
        return missing_html("data-card", "Table D", "Text sources", str(missing))
    frame = data.frame("SELECT * FROM corpus_sources ORDER BY category, source")
    total = frame[["train_tokens", "validation_tokens"]].sum()
    columns = (
        Column("source", "Source", text, numeric=False),
        Column("category", "Category", text, numeric=False),
        Column("licence", "Licence", text, numeric=False),
        Column("documents", "Documents", integer),
        Column("train_tokens", "Training tokens", short),
        Column("validation_tokens", "Held-out tokens", short),
        Column("bytes_per_token", "Bytes a token", fixed(2)),
        Column("repeated_8grams", "Repeated 8-grams", fixed(3)),
    )
    train, held = (short(total[name]) for name in ("train_tokens", "validation_tokens"))
    note = f"In all {train} training and {held} held-out tokens."
    view = TableView(columns, frame, note)
    return table_html(item, view, caption="What the models were trained and tested on.")


def clock(data: Data) -> dict[str, Any]:
    """Return a sentence on the training cost and the table behind it: plan and measured time by scale."""
    frame = data.frame(
        """
        WITH speed AS (
          SELECT run, sum(seconds) AS seconds, avg(tokens_per_s) AS tokens_per_s, any_value(device) AS device
          FROM throughput GROUP BY run)
        SELECT r.grouping, r.scale, count(*) AS runs, count(s.run) AS trained,
          any_value(r.tokens_planned) AS tokens,
          sum(r.flops_per_token * r.tokens_planned) AS flops,
          avg(s.tokens_per_s) AS tokens_per_s,
          sum(s.seconds) AS seconds, any_value(s.device) AS device
        FROM runs r LEFT JOIN speed s USING (run) GROUP BY r.grouping, r.scale
        ORDER BY r.grouping <> 'grid', r.grouping, r.scale
        """
    )
    frame = data.ordered(frame)
    trained, seconds = int(frame["trained"].sum()), float(frame["seconds"].sum())
    sentence = (
        f"The plan is {frame['runs'].sum()} runs with {frame['flops'].sum():.2e} training FLOPs in all."
    )
    if trained:
        sentence += f" {trained} of them are trained, which took {_hours(seconds)} in one job after another."
    columns = (
        Column("scale", "Scale", text, numeric=False),
        Column("grouping", "Runs of", text, numeric=False),
        Column("runs", "Runs", integer),
        Column("trained", "Trained", integer),
        Column("tokens", "Tokens a run", short),
        Column("flops", "FLOPs", scientific),
        Column("tokens_per_s", "Tokens/s", short),
        Column("seconds", "Time (s)", fixed(0)),
        Column("device", "Device", text, numeric=False),
    )
    item = Item("clock-table", "W", "Plan and training time by scale", "")
    caption = "Tokens and time are summed over trunk and decay branches."
    return {"sentence": sentence, "table": table_html(item, TableView(columns, frame), caption=caption)}


def _hours(seconds: float) -> str:
    return f"{seconds / 3600:.1f} hours" if seconds >= 5400 else f"{seconds / 60:.1f} minutes"
