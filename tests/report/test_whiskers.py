"""Intervals that would flatten the others are cut, marked and told."""

import matplotlib.pyplot as plt
import numpy as np
import pytest

from smelt.report.data import Data
from smelt.report.figures import domains
from smelt.report.whiskers import cut_note, frame_axis, readable, whiskers
from smelt.results.build import build_database
from smelt.results.parquet import read_rows, write_table
from tests.report.synthetic import Synthetic


@pytest.fixture
def axis():
    figure, axis = plt.subplots()
    yield axis
    plt.close(figure)


def test_the_range_is_that_of_the_points_and_as_much_again():
    assert readable([0.0, np.nan, 4.0]) == (-4.0, 8.0)
    assert readable([2.0, 2.0], least=5.0) == (-3.0, 7.0)


def test_cut_ends_carry_a_triangle_that_points_on(axis):
    low, high = [-100.0, 1.0, np.nan, -50.0], [1.0, 90.0, 3.0, 50.0]
    assert whiskers(axis, [0, 1, 2, 3], low, high, (-4.0, 8.0), "black") == 3
    marks = {line.get_marker(): (list(line.get_xdata()), set(line.get_ydata())) for line in axis.lines}
    assert marks == {"v": ([0.0, 3.0], {-4.0}), "^": ([1.0, 3.0], {8.0})}
    segments = [tuple(segment[:, 1]) for segment in axis.collections[0].get_segments()]
    assert segments == [(-4.0, 1.0), (1.0, 8.0), (-4.0, 8.0)]
    frame_axis(axis, [0.0, 4.0], np.array(low)[[0, 1, 3]], np.array(high)[[0, 1, 3]], (-4.0, 8.0))
    bottom, top = axis.get_ylim()
    assert -6 < bottom < -4 and 8 < top < 10


def test_intervals_that_fit_are_whole_and_not_spoken_of(axis):
    assert whiskers(axis, [0], [1.0], [3.0], (0.0, 4.0), "black") == 0
    assert all(len(line.get_xdata()) == 0 for line in axis.lines)
    assert cut_note(0) == "" and cut_note(1).startswith("1 interval goes on")


@pytest.mark.parametrize(
    ("table", "wide", "draw"),
    [
        ("ce_gain", {"low": -3.45}, domains.gain_by_quartile),
        ("length_profile", {"high": 99.0}, domains.length_profile),
    ],
)
def test_one_wide_interval_leaves_the_others_readable(study, tmp_path, table, wide, draw):
    folder = Synthetic(study, tmp_path, sources=2).write()
    rows = read_rows(folder / "laws" / f"{table}.parquet")
    first = next(row for row in rows if row.get("subset") == "quartile:1" or row.get("family") == "smelt")
    first |= wide
    write_table(folder / "laws", table, rows)
    build_database(study, folder, folder / "results.duckdb")
    drawing = draw(Data(study, folder / "results.duckdb"))
    low, high = drawing.figure.axes[0].get_ylim()
    column = "gain" if table == "ce_gain" else "normalised"
    points = drawing.frame[column]
    assert high - low < 5 * (max(points.max(), 18.0 if table == "ce_gain" else 1.0) - min(points.min(), 0.0))
    assert "1 interval goes on where a triangle points; the CSV has the ends." in drawing.note
    if table == "ce_gain":
        assert "Cut: 1 from -345 to 25%." in drawing.note
        assert drawing.frame["low"].min() == pytest.approx(-345)
    plt.close(drawing.figure)
