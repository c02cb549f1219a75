"""The data card: sources, lengths of documents, and where there is little of them."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pandas as pd
from matplotlib.axes import Axes
from matplotlib.lines import Line2D
from matplotlib.patches import Patch

from smelt.corpus import LENGTH_BOUNDS
from smelt.report.contents import Item
from smelt.report.data import Data, NotMeasured
from smelt.report.markup import missing_html
from smelt.report.output import (
    Column,
    Drawing,
    TableView,
    figure_html,
    file_links,
    page_table,
    save_figure,
)
from smelt.report.style import AMBER, INK, LIGHT, WIDTH, plt, use_theme
from smelt.report.tables.formats import between, counted, fixed, integer, short, text

# Held-out text below either of them is called thin.
THIN = {"documents": 30, "tokens": 2000}
_BUCKETS = dict(zip(LENGTH_BOUNDS, [*map(str, LENGTH_BOUNDS[:-1]), "more"], strict=True))
_FIGURE = Item(
    "figD1",
    "D1",
    "Lengths of the documents",
    "",
    alt="Documents and tokens by length of the document, one row a category, training and held-out text.",
    caption=(
        "Documents (left) and their tokens (right) by the document's length in tokens: 32 stands for at most "
        "32, 64 for 33 to 64, and so on. Axes are logarithmic. Held-out bars below the dotted line are thin."
    ),
)


def datacard(data: Data, folder: Path) -> str:
    """Return the tables of sources, lengths and thin places; the figure's files go to `folder`."""
    parts = [_sources(data, folder)]
    try:
        data.need("corpus_lengths")
    except NotMeasured as missing:
        return "\n".join([*parts, missing_html("lengths", "Figure D1", _FIGURE.title, str(missing))])
    counts = lengths(data)
    use_theme()
    drawing = draw_lengths(counts)
    save_figure(_FIGURE, drawing, folder)
    svg = (folder / f"{_FIGURE.id}.svg").read_text(encoding="utf-8")
    parts.append(figure_html(_FIGURE, svg, drawing.note, file_links(_FIGURE.id)))
    parts += [_totals(counts, folder), "<h3>What is thin</h3>", *_thin(data, counts, folder)]
    return "\n".join(parts)


def _sources(data: Data, folder: Path) -> str:
    """Return the table of text sources, or a sentence where there is none."""
    item = Item("data-card", "D", "Text sources", "", caption="What the models were trained and tested on.")
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
    return page_table(item, view, folder)


def lengths(data: Data) -> pd.DataFrame:
    """Return documents and tokens by category and length, of training and held-out text; zeros where none."""
    frame = data.frame(
        """
        SELECT category, length_bucket, split = 'validation' AS held, sum(documents) AS documents,
          sum(tokens) AS tokens
        FROM corpus_lengths GROUP BY ALL
        """
    )
    table = frame.pivot(index=["category", "length_bucket"], columns="held", values=["documents", "tokens"])
    cells = pd.MultiIndex.from_product([sorted(frame["category"].unique()), _BUCKETS])
    table = table.reindex(
        index=cells, columns=pd.MultiIndex.from_product([["documents", "tokens"], [False, True]])
    )
    table.columns = ["documents_train", "documents_held", "tokens_train", "tokens_held"]
    return table.fillna(0).astype(int).rename_axis(["category", "length"]).reset_index()


def draw_lengths(counts: pd.DataFrame) -> Drawing:
    """Figure D1: histograms of documents and tokens by length, one row of panels a category."""
    categories = counts["category"].unique()
    figure, grid = plt.subplots(
        len(categories),
        2,
        figsize=(WIDTH, 1.2 * len(categories) + 0.7),
        sharex=True,
        sharey="col",
        squeeze=False,
    )
    for row, category in zip(grid, categories, strict=True):
        part = counts[counts["category"] == category]
        for axis, what in zip(row, ("documents", "tokens"), strict=True):
            _bars(axis, part, what)
        row[0].set_title(category)
    for axis in grid[-1]:
        axis.set_xticks(range(len(_BUCKETS)), _BUCKETS.values(), fontsize=7.5)
        axis.set_xlabel("Length of the document (tokens, upper bound)")
    for row in grid:
        row[0].set_ylabel("Documents")
        row[1].set_ylabel("Tokens")
    handles = [Patch(color=LIGHT, label="training"), Patch(color=AMBER, label="held out")]
    handles.append(Line2D([], [], color=INK, linestyle=":", linewidth=1, label="held out: thin below"))
    figure.legend(handles=handles, loc="outside upper center", ncols=3)
    return Drawing(figure, counts)


def _bars(axis: Axes, part: pd.DataFrame, what: str) -> None:
    places = np.arange(len(part))
    for beside, kind, colour in ((-0.2, "train", LIGHT), (0.2, "held", AMBER)):
        axis.bar(places + beside, part[f"{what}_{kind}"], width=0.4, color=colour, edgecolor="none")
    axis.axhline(THIN[what], color=INK, linestyle=":", linewidth=1)
    axis.set_yscale("log")
    axis.grid(axis="x", visible=False)


def _totals(counts: pd.DataFrame, folder: Path) -> str:
    frame = counts.groupby("length", as_index=False)[
        ["documents_train", "tokens_train", "documents_held", "tokens_held"]
    ].sum()
    frame["length"] = frame["length"].map(_BUCKETS)
    columns = [Column("length", "Length, up to", text)]
    for kind, group in (("train", "Training"), ("held", "Held out")):
        columns.append(Column(f"documents_{kind}", "documents", integer, group=group))
        columns.append(Column(f"tokens_{kind}", "tokens", short, group=group))
    caption = "All categories together; the CSV of figure D1 has them one by one."
    item = Item("length-table", "D2", "Documents by length", "", caption=caption)
    return page_table(item, TableView(tuple(columns), frame), folder)


def _thin(data: Data, counts: pd.DataFrame, folder: Path) -> list[str]:
    """Return what the thresholds are, what a validation reads, and a table of all that is thin."""
    frame, tried = thin(data, counts)
    sentences = (
        f"Called thin here: fewer than {THIN['documents']} held-out documents, or fewer than "
        f"{short(THIN['tokens'])} held-out tokens. A loss over so little text "
        f"hangs on which documents it holds. "
        f"{_read(data)}"
    )
    found = frame["what"].value_counts()
    note = ", ".join(f"{found.get(what, 0)} of {number} {what}" for what, number in tried.items())
    if frame.empty:
        return [f"<p>{sentences}</p>", f"<p>Nothing is thin: {note}.</p>"]
    columns = (
        Column("name", "Source, or category and length", text, numeric=False),
        Column("documents_held", "documents", integer, group="Held out"),
        Column("tokens_held", "tokens", short, group="Held out"),
        Column("documents_train", "documents", integer, group="Training"),
        Column("tokens_train", "tokens", short, group="Training"),
    )
    caption = "Sources first, then categories by length, the fewest documents first."
    item = Item("thin-table", "D3", "Thin places", "", caption=caption)
    view = TableView(columns, frame, f"Thin are {note}.")
    return [f"<p>{sentences}</p>", page_table(item, view, folder)]


def thin(data: Data, counts: pd.DataFrame) -> tuple[pd.DataFrame, dict[str, int]]:
    """Return the thin sources and cells of category and length, and how many there are of all."""
    sources = data.frame(
        """
        SELECT source AS name, coalesce(sum(documents) FILTER (split <> 'validation'), 0) AS documents_train,
          coalesce(sum(documents) FILTER (split = 'validation'), 0) AS documents_held,
          coalesce(sum(tokens) FILTER (split <> 'validation'), 0) AS tokens_train,
          coalesce(sum(tokens) FILTER (split = 'validation'), 0) AS tokens_held
        FROM corpus_lengths GROUP BY source ORDER BY source
        """
    ).assign(what="sources")
    names = counts["category"] + ", " + counts["length"].map(_BUCKETS) + " tokens"
    cells = counts.assign(name=names, what="cells of category and length")
    both = pd.concat([sources, cells], ignore_index=True)
    tried = {what: len(part) for what, part in both.groupby("what", sort=False)}
    few = (both["documents_held"] < THIN["documents"]) | (both["tokens_held"] < THIN["tokens"])
    order = both["what"].map({what: place for place, what in enumerate(tried)})
    chosen = both.assign(order=order)[few].sort_values(["order", "documents_held"], kind="stable")
    return chosen.drop(columns="order").reset_index(drop=True), tried


def _read(data: Data) -> str:
    """Tell how much of the held-out text one validation reads, and how that is spread."""
    if not data.counts["validation"]:
        return ""
    # Every endpoint reads the same text.
    read = data.frame(
        """
        SELECT source, length_bucket, sum(documents) AS documents, sum(tokens) AS tokens FROM validation
        WHERE (run, horizon) = (SELECT (run, horizon) FROM validation ORDER BY run, horizon LIMIT 1)
        GROUP BY ALL
        """
    )
    spread = []
    for name, what in (("length_bucket", "a class of lengths"), ("source", "a source")):
        sums = read.groupby(name)["tokens"].sum()
        spread.append(f"{between(short(sums.min()), short(sums.max()))} of {what}")
    return (
        f"A validation of this study reads {counted(read['documents'].sum(), 'document')} with "
        f"{short(read['tokens'].sum())} tokens of it: {', '.join(spread)}."
    )
