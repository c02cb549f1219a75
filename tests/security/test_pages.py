"""Texts of the data that look like markup are text on every page."""

import re

import duckdb
import nbformat
import pytest

from smelt.report import site
from smelt.report.book import Report
from smelt.report.contents import TABLES
from smelt.report.data import Data
from smelt.report.page import notebook_page, render
from smelt.results import schemas
from smelt.results.build import build_database
from smelt.study import load_study
from tests.report.synthetic import Synthetic

HOSTILE = "<script>alert(1)</script>\"'&<img src=x onerror=alert(2)>"
# Columns that other tables are joined by, or that figures choose by, keep their values.
NAMES = {
    *("run", "cell", "scale", "arch", "grouping", "baseline", "quantity", "phase", "category", "metric"),
    *("subset", "contrast", "analysis", "exponent", "design", "noise", "ablation", "family", "task"),
    *("diagnostic", "component", "stage", "kind", "role", "intervention", "claim", "verdict", "key", "suite"),
    *("source", "spec_hash", "loop_order"),
}


@pytest.fixture(scope="module")
def data(tmp_path_factory):
    study = load_study("smoke")
    folder = Synthetic(study, tmp_path_factory.mktemp("hostile"), sources=4).write()
    path = folder / "results.duckdb"
    build_database(study, folder, path)
    with duckdb.connect(str(path)) as connection:
        for table in schemas.TABLES.values():
            for column in table.columns:
                if column.kind == "s" and column.name not in NAMES:
                    # A note says something where it is not empty, and nothing where it is.
                    connection.execute(
                        f'UPDATE "{table.name}" SET "{column.name}" = "{column.name}" || ? '
                        f"WHERE \"{column.name}\" <> '' AND \"{column.name}\" <> 'smoke'",
                        [HOSTILE],
                    )
        for table in ("corpus_sources", "validation"):
            connection.execute(f"UPDATE {table} SET source = source || ?", [HOSTILE])
    data = Data(study, path)
    yield data
    data.close()


def assert_text(html):
    assert "<script>alert" not in html
    assert not re.search(r"<img[^>]*onerror", html)


@pytest.mark.parametrize("name", sorted(TABLES))
def test_tables(data, name, tmp_path):
    html = Report(data, tmp_path).table(name).html
    assert_text(html)


def test_some_table_shows_hostile_text(data, tmp_path):
    shown = "".join(Report(data, tmp_path).table(name).html for name in sorted(TABLES))
    assert "&lt;script&gt;alert(1)" in shown


def test_the_first_page(data, tmp_path, monkeypatch):
    monkeypatch.setattr(site, "_section", lambda section, results: {
        "id": "00", "title": HOSTILE, "notebook": "00", "items": [],
    })  # fmt: skip
    html = render("index.html", **site._values(data, tmp_path, tmp_path))
    assert_text(html)
    assert html.count("&lt;script&gt;alert(1)") > 20


def test_a_notebook_with_hostile_data(data):
    frame = data.frame("SELECT * FROM corpus_sources")
    v4 = nbformat.v4
    outputs = [
        v4.new_output("execute_result", {"text/html": frame.to_html(), "text/plain": repr(frame)}),
        v4.new_output("stream", text=HOSTILE),
        v4.new_output("execute_result", {"text/plain": HOSTILE}),
    ]
    page = notebook_page(
        v4.new_notebook(cells=[v4.new_code_cell(f"print({HOSTILE!r})", outputs=[o]) for o in outputs])
    )
    assert_text(page)
    assert page.count("&lt;script&gt;alert(1)") >= 3
