"""The data card: lengths of documents, and what is thin of them."""

import matplotlib.pyplot as plt
import pandas as pd
import pytest

from smelt.report.data import Data
from smelt.report.datacard import THIN, datacard, draw_lengths, lengths, thin
from smelt.results.build import build_database
from smelt.results.lengths import length_rows
from tests.report.synthetic import Synthetic


def test_every_cell_of_category_and_length_is_counted(data):
    counts = lengths(data)
    assert len(counts) == 8 * counts["category"].nunique()
    stored = data.frame(
        "SELECT split = 'validation' AS held, sum(documents) AS n FROM corpus_lengths GROUP BY 1"
    )
    total = stored.set_index("held")["n"]
    # 6 sources with 80 documents each, a quarter held out.
    assert counts["documents_held"].sum() == total[True] == 120
    assert counts["documents_train"].sum() == total[False] == 360


def test_bars_are_the_counts(data):
    counts = lengths(data)
    drawing = draw_lengths(counts)
    left = drawing.figure.axes[0]
    first = counts[counts["category"] == counts["category"].iloc[0]]
    heights = [bar.get_height() for bar in left.patches]
    assert heights == [*first["documents_train"], *first["documents_held"]]
    assert [text.get_text() for text in drawing.figure.axes[-1].get_xticklabels()][-1] == "more"
    assert drawing.frame is counts
    plt.close(drawing.figure)


def test_what_is_thin_is_below_a_threshold_and_nothing_else_is(data):
    counts = lengths(data)
    frame, tried = thin(data, counts)
    assert tried == {"sources": 6, "cells of category and length": len(counts)}
    assert ((frame["documents_held"] < THIN["documents"]) | (frame["tokens_held"] < THIN["tokens"])).all()
    # Every invented source holds out 20 documents.
    assert (frame["what"] == "sources").sum() == 6
    fine = (counts["documents_held"] >= THIN["documents"]) & (counts["tokens_held"] >= THIN["tokens"])
    assert len(frame) - 6 == len(counts) - fine.sum()


def test_the_card_states_thresholds_and_what_a_validation_reads(data, tmp_path):
    html = datacard(data, tmp_path)
    assert "fewer than 30 held-out documents, or fewer than 2k held-out tokens" in html
    assert "Thin are 6 of 6 sources, " in html
    read = data.frame(
        "SELECT sum(documents) AS d FROM validation WHERE run = (SELECT min(run) FROM validation) "
        "AND horizon = (SELECT min(horizon) FROM validation)"
    )["d"].iloc[0]
    assert f"reads {int(read)} documents" in html
    assert len(pd.read_csv(tmp_path / "figD1.csv")) == len(lengths(data))
    assert (tmp_path / "figD1.png").stat().st_size > 1000


def test_where_nothing_is_thin_that_is_said(study, tmp_path, monkeypatch):
    folder = Synthetic(study, tmp_path, sources=2).write()
    rows = [
        row | {"documents": 100, "tokens": 10_000, "length_bucket": bucket}
        for row in {(r["source"], r["split"]): r for r in length_rows(folder / "corpus")}.values()
        for bucket in (32, 64, 128, 256, 512, 1024, 2048, 4096)
    ]
    monkeypatch.setattr("smelt.results.build.length_rows", lambda corpus: rows)
    build_database(study, folder, folder / "results.duckdb")
    html = datacard(Data(study, folder / "results.duckdb"), tmp_path / "files")
    assert "Nothing is thin: 0 of 2 sources, 0 of 16 cells of category and length." in html


@pytest.mark.parametrize("table", ["corpus_sources", "corpus_lengths"])
def test_without_a_corpus_there_is_a_sentence(data, tmp_path, monkeypatch, table):
    monkeypatch.setitem(data.counts, table, 0)
    html = datacard(data, tmp_path)
    assert html.count('class="missing"') == 1 and "python -m smelt.corpus build" in html
