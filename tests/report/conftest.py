"""A synthetic study with its database, and everything drawn from it once."""

import shutil
from pathlib import Path

import nbformat
import pytest

from smelt.files import ROOT
from smelt.report.book import Report
from smelt.report.contents import FIGURES, SECTIONS, TABLES
from smelt.report.data import Data
from smelt.report.page import notebook_page
from smelt.report.site import write_site
from smelt.results.build import build_database
from smelt.study import load_study
from tests.report.synthetic import Synthetic


@pytest.fixture(scope="session")
def study():
    return load_study("smoke")


@pytest.fixture(scope="session")
def results(study, tmp_path_factory) -> Path:
    """Result folder with stage files and the database."""
    folder = Synthetic(study, tmp_path_factory.mktemp("smoke"), sources=6).write()
    build_database(study, folder, folder / "results.duckdb")
    return folder


@pytest.fixture(scope="session")
def data(study, results):
    data = Data(study, results / "results.duckdb")
    yield data
    data.close()


@pytest.fixture(scope="session")
def drawn(data, results) -> Path:
    """The same folder with every figure and table."""
    report = Report(data, results)
    for name in FIGURES:
        report.figure(name)
    for name in TABLES:
        report.table(name)
    return results


@pytest.fixture(scope="session")
def site(study, data, drawn, tmp_path_factory) -> Path:
    """The site's folder; the page of one small notebook stands for all."""
    folder = tmp_path_factory.mktemp("site")
    for name in ("figures", "tables", "results.duckdb"):
        source = drawn / name
        (shutil.copytree if source.is_dir() else shutil.copyfile)(source, folder / name)
    (folder / "notebooks").mkdir()
    page = notebook_page(_executed(data, drawn))
    for section in SECTIONS:
        (folder / "notebooks" / f"{section.notebook}.html").write_text(page)
    write_site(study, folder / "report")
    return folder / "report"


def _executed(data: Data, drawn: Path) -> nbformat.NotebookNode:
    """A notebook with a figure, a table and a query as outputs, as a kernel would leave it."""
    report = Report(data, drawn)
    frame = report.query("SELECT * FROM runs LIMIT 3")
    shown = (report.figure("fig03").html, report.table("table02").html, frame.to_html())
    v4 = nbformat.v4
    cells = [v4.new_markdown_cell("# A section\n\nText.")]
    cells += [
        v4.new_code_cell("report.show()", outputs=[v4.new_output("display_data", {"text/html": html})])
        for html in shown
    ]
    return v4.new_notebook(cells=cells)


@pytest.fixture(scope="session")
def notebooks() -> Path:
    return ROOT / "notebooks"
