"""Another recipe than the paper's: three visits, one scale, no ablations (study my-recipe)."""

import json

import pandas as pd
import pytest

from smelt.report.book import Report
from smelt.report.contents import FIGURES, TABLES
from smelt.report.data import Data
from smelt.results.build import build_database
from smelt.study import load_study
from tests.report.synthetic import Synthetic

INSIDE = (
    "fig01a",
    "fig12",
    "fig13",
    "fig14",
    "fig15",
    "fig16",
    "fig17",
    "fig18",
    "fig19a",
    "fig19b",
    "figP3",
)
# What one scale, or a study without ablations, has not, and how the report says so.
LACKING = {
    "fig21": "1 scale",
    "table03": "no ablation of the span",
    "table04": "no ablation of the depth",
    "table05": "no ablation of the loops",
    "tableP5": "no unlooped control",
}


@pytest.fixture(scope="module")
def drawn(tmp_path_factory):
    study, folder = load_study("my-recipe"), tmp_path_factory.mktemp("my-recipe")
    Synthetic(study, folder, seeds=2, sources=5).write()
    build_database(study, folder, folder / "results.duckdb")
    data = Data(study, folder / "results.duckdb")
    report = Report(data, folder)
    for name in (*INSIDE, *LACKING):
        (report.figure if name in FIGURES else report.table)(name)
    data.close()
    return folder


def about(folder, name):
    kind = "tables" if name in TABLES else "figures"
    return json.loads((folder / kind / f"{name}.json").read_text())


@pytest.mark.parametrize("name", INSIDE)
def test_every_figure_of_the_visits_is_drawn(drawn, name):
    assert about(drawn, name)["not_measured"] == ""
    assert len(pd.read_csv(drawn / "figures" / f"{name}.csv"))


@pytest.mark.parametrize("name", LACKING)
def test_what_the_study_has_not_is_said(drawn, name):
    assert LACKING[name] in about(drawn, name)["not_measured"]


def test_figures_by_visit_show_all_three(drawn):
    for name in ("fig13", "fig19a", "fig18"):
        assert set(pd.read_csv(drawn / "figures" / f"{name}.csv")["visit"]) == {0, 1, 2}, name


def test_figures_of_two_visits_say_which(drawn):
    for name in ("fig12", "fig16", "fig17"):
        assert about(drawn, name)["note"].endswith(" Of 3 visits the second is shown."), name
    for name in ("fig14", "figP3"):
        assert about(drawn, name)["note"].endswith(" Of 3 visits the later ones are taken together."), name


def test_executions_are_marked_by_visit(drawn):
    svg = (drawn / "figures" / "fig15.svg").read_text()
    assert "Execution: layer (' second visit, '' third)" in svg
