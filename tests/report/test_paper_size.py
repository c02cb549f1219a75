"""A database of the paper's size: 192 endpoints, 39 sources, long logs: complete pictures of few points."""

import matplotlib.pyplot as plt
import pytest

from smelt.report.clock import paces, plan
from smelt.report.data import Data
from smelt.report.figures import attention, domains, routing, scaling, training
from smelt.report.tables import budgets
from smelt.results.build import build_database
from smelt.study import load_study
from tests.report.synthetic import Synthetic


@pytest.fixture(scope="module")
def paper(tmp_path_factory):
    study, folder = load_study("paper"), tmp_path_factory.mktemp("paper")
    Synthetic(study, folder, sources=39, log_points=2000).write()
    build_database(study, folder, folder / "results.duckdb")
    data = Data(study, folder / "results.duckdb")
    yield data
    data.close()


def drawn(drawing):
    """Return the figure's axes and numbers, and close it."""
    plt.close(drawing.figure)
    return drawing.figure.axes, drawing.frame


def test_every_endpoint_is_drawn(paper):
    axes, frame = drawn(scaling.loss_by_sparsity(paper))
    assert len(frame) == 192 and frame["run"].nunique() == 32 and len(axes) == 4
    for axis in axes:
        points = [line for line in axis.lines if line.get_marker() in "os"]
        assert len(points) == 8 and sum(len(line.get_xdata()) for line in points) == 48


def test_every_gap_is_drawn(paper):
    axes, frame = drawn(scaling.gaps(paper))
    assert len(frame) == 96 and frame["scale"].unique().tolist() == ["100M", "200M", "600M", "1.6B"]
    assert all(len(axis.containers) == 4 for axis in axes)


def test_a_long_log_is_drawn_in_few_points(paper):
    for draw in (training.scale_0, training.scale_3):
        axes, frame = drawn(draw(paper))
        assert len(axes) == 8 and len(frame) < 4000
        assert all(len(line.get_xdata()) < 500 for axis in axes for line in axis.lines)


def test_grids_have_all_cells(paper):
    axes, frame = drawn(routing.diagnostics(paper))
    assert len(axes) == 8 and len(frame) == 8 * 16
    assert all(len(axis.texts) == 16 for axis in axes)


def test_all_heads_of_the_largest_scale_are_in_the_map(paper):
    _, frame = drawn(attention.sink_heads(paper))
    largest = paper.study.scales["1.6B"]
    assert frame["head"].max() == largest.heads and frame["layer"].nunique() == largest.layers // 2


def test_every_number_of_demonstrations_has_its_place(paper):
    axes, _ = drawn(domains.shots(paper))
    assert [text.get_text() for text in axes[0].get_xticklabels()] == ["0", "1", "2", "4", "8"]


def test_tables_have_all_cells(paper, tmp_path):
    assert len(budgets.baselines(paper).frame) == len(budgets.looped(paper).frame) == len(paces(paper)) == 16
    assert "TB" in " ".join(plan(paper, tmp_path)["sentences"])
