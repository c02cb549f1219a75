"""What the first page says of a study beside its figures: sizes and data."""

from __future__ import annotations

from smelt.report.contents import Item
from smelt.report.data import Data, NotMeasured
from smelt.report.markup import missing_html
from smelt.report.output import Column, TableView, table_html
from smelt.report.tables.formats import counted, fixed, integer, short, text


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
        (
            "Runs",
            f"{runs['runs']}, of them {runs['grid']} in the grid; {counted(runs['seeds'], 'training seed')}",
        ),
        ("Active parameters", f"{short(runs['low'])} to {short(runs['high'])}"),
        ("Total parameters", f"{short(runs['total_low'])} to {short(runs['total_high'])}"),
        ("Endpoints", f"{int(ends['n'])}{tokens}"),
        (
            "Loop",
            f"{loop.span:.0%} of the layers, visited {counted(loop.visits, 'time')}, {loop.order} order",
        ),
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
