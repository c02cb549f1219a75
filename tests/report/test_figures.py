"""Every figure and table is drawn from the database, or says what is missing."""

import copy
import json
import re
import shutil
from dataclasses import replace

import duckdb
import matplotlib.pyplot as plt
import numpy as np
import pandas as pd
import pytest

from smelt.errors import SmeltError
from smelt.report.book import Report
from smelt.report.clock import paces, time_table
from smelt.report.contents import FIGURES, TABLES
from smelt.report.crossing import crossing_text
from smelt.report.data import Data, NotMeasured
from smelt.report.figures import attention, domains, dyck, recipe, routing, scaling, training
from smelt.report.style import _DARK, BLUE, GAP, GREY, INK, LOOKS, RED, log_ticks, power_label
from smelt.report.tables import ablations
from smelt.report.tables import training as training_tables
from smelt.report.tables.formats import scientific
from smelt.results.build import build_database
from smelt.results.parquet import read_rows, write_table
from tests.report.synthetic import Synthetic

# smoke has two scales: the figures of the third and fourth cannot be drawn.
ABSENT = {"fig22", "fig23"}


def about(folder, name):
    kind = "figures" if name in FIGURES else "tables"
    return json.loads((folder / kind / f"{name}.json").read_text())


@pytest.mark.parametrize("name", FIGURES)
def test_figure_is_drawn(drawn, name):
    assert bool(about(drawn, name)["not_measured"]) == (name in ABSENT)
    for kind in ("svg", "png"):
        assert (drawn / "figures" / f"{name}.{kind}").stat().st_size > 1000
    frame = pd.read_csv(drawn / "figures" / f"{name}.csv")
    assert len(frame) and (name in ABSENT or frame.shape[1] > 2)


@pytest.mark.parametrize("name", TABLES)
def test_table_is_made(drawn, name):
    assert not about(drawn, name)["not_measured"]
    html = (drawn / "tables" / f"{name}.html").read_text()
    assert html.count("<tr>") == 1 + len(pd.read_csv(drawn / "tables" / f"{name}.csv"))
    assert "None" not in html and "nan" not in html


def test_stronger_baselines_stand_beside_the_cell_s_own(drawn):
    frame = pd.read_csv(drawn / "tables" / "tableP5.csv")
    assert frame["cell"].unique().tolist() == ["s-s85"]
    assert frame["kind"].tolist() == ["loss_gap", "loss_gap_control", "loss_gap_best_depth"]
    assert frame["value"].tolist() == [0.02, 0.01, -0.03]
    html = (drawn / "tables" / "tableP5.html").read_text()
    assert "-0.0300" in html and "-0.0500 to 0.0500" in html


def test_the_crossover_is_told_with_what_its_interval_is_made_of(drawn):
    note = about(drawn, "figP4")["note"]
    assert note.startswith("Over all cells SMELT overtakes at 1200 tokens (before 1500); at scale ")
    assert "at scale xs SMELT overtakes at 1200 tokens (no interval)" in note
    assert "t interval over cells (all cells)" in note
    frame = pd.read_csv(drawn / "figures" / "figP4.csv")
    first = frame[frame["subset"] == "all"].iloc[0]
    # SMELT minus Baseline, the table's opposite.
    assert (first["gap"], first["low"], first["high"]) == (0.005, -0.03, 0.05)


@pytest.mark.parametrize(
    ("row", "said"),
    [
        ({}, "over all cells SMELT overtakes at 3000 tokens (from 2000 to 4000)"),
        ({"high": 9000.0}, "over all cells SMELT overtakes at 3000 tokens (after 2000)"),
        ({"low": 1000.0, "high": 9000.0}, "at 3000 tokens (anywhere in the window or outside)"),
        ({"changes": 3, "ahead_last": False}, "falls behind at 3000 tokens, the last of 3 changes (from"),
        (
            {"subset": "scale:B", "basis": "", "low": None, "high": None},
            "at scale B SMELT overtakes at 3000 tokens (no",
        ),
        (
            {"tokens": None, "low": None, "high": None},
            "no crossover inside the window of 1000 to 9000 tokens over all cells: SMELT is ahead throughout",
        ),
        ({"tokens": np.nan, "low": 1000.0}, "SMELT is ahead throughout, but not clearly so before 4000"),
        ({"tokens": None, "basis": "", "ahead_last": False}, "SMELT is behind throughout (no interval)"),
    ],
)
def test_a_crossover_is_told_in_words(row, said):
    whole = {"subset": "all", "tokens": 3000.0, "low": 2000.0, "high": 4000.0, "window_low": 1000.0}
    whole |= {"window_high": 9000.0, "changes": 1, "ahead_first": False, "ahead_last": True, "basis": "t"}
    assert said in crossing_text(whole | row)


@pytest.mark.parametrize(
    ("seeds", "values", "headings", "said"),
    [
        (
            1,
            {"core_se_evaluation": 0.01},
            {"± training seeds": 0, "± evaluation seeds": 2},
            ("One training seed: no error", "± evaluation seeds: standard error over"),
        ),
        (
            3,
            {"core_se_evaluation": None} | {f"{name}_se_training": 0.03 for name in ("val_loss", "core")},
            {"± training seeds": 2, "± evaluation seeds": 1},
            ("± training seeds: standard error of the mean of 3 trainings", "One evaluation seed: no error"),
        ),
        (
            2,
            {f"{name}_se_training": 0.03 for name in ("val_loss", "core", "completion")},
            {"± training seeds": 3, "± evaluation seeds": 2},
            ("mean of 2 trainings", "± evaluation seeds: standard error over"),
        ),
    ],
)
def test_standard_errors_of_ablations_say_what_was_repeated(study, tmp_path, seeds, values, headings, said):
    folder = Synthetic(study, tmp_path, sources=2).write()
    rows = read_rows(folder / "laws" / "ablation_results.parquet")
    write_table(folder / "laws", "ablation_results", [row | {"seeds": seeds} | values for row in rows])
    build_database(study, folder, folder / "results.duckdb")
    for table in (ablations.span, ablations.depth, ablations.loops):
        view = table(Data(study, folder / "results.duckdb"))
        labels = [column.label for column in view.columns]
        # The paper's own error, over evaluation seeds, is always there.
        assert {heading: labels.count(heading) for heading in headings} == headings
        assert all(text in view.note for text in said)
        if "core_se_training" in values:
            assert view.frame["core_se_training_pct"].dropna().unique().tolist() == [3.0]


def test_the_load_of_experts_is_that_of_the_last_update(study, tmp_path):
    folder = Synthetic(study, tmp_path, sources=2).write()
    path = folder / "runs" / "xs-s85-smelt" / "train_log.parquet"
    rows = read_rows(path)
    last = max((row for row in rows if row["phase"] == "decay"), key=lambda row: row["step"])
    last |= {"load_min": 0.001, "load_max": 7.25}
    write_table(path.parent, "train_log", rows)
    build_database(study, folder, folder / "results.duckdb")
    view = training_tables.expert_load(Data(study, folder / "results.duckdb"))
    row = view.frame.set_index(["scale", "sparsity"]).loc[("xs", 85)]
    assert row[["smelt_load_min", "smelt_load_max"]].tolist() == [0.001, 7.25]
    assert row[["baseline_load_min", "baseline_load_max"]].tolist() == [0.5, 2.0]
    assert row["smelt_experts"] == 1.5 * row["baseline_experts"] and len(view.frame) == 4
    assert "the largest here is 7.2. In 1 of 8 models" in view.note


@pytest.fixture
def doubted(study, tmp_path):
    """The study with notes against the surface and against Core's curve."""
    folder = Synthetic(study, tmp_path, sources=2).write()
    reasons = {"surface": "60% of the draws determine nothing", "calibration:core": "the curve explains 0%"}
    notes = [{"analysis": name, "ok": False, "reason": reason} for name, reason in reasons.items()]
    write_table(folder / "laws", "law_notes", [*notes, {"analysis": "pairs", "ok": True, "reason": ""}])
    build_database(study, folder, folder / "results.duckdb")
    data = Data(study, folder / "results.duckdb")
    yield Report(data, folder)
    data.close()


_OF_THE_LAW = ("fig01b", "fig03", "fig04", "fig10a", "fig10b", "table06", "table07", "table08")


def test_what_a_doubted_law_gives_says_so(doubted, drawn):
    sentence = "Doubtful: 60% of the draws determine nothing, so no claim is decided"
    for name in _OF_THE_LAW:
        shown = doubted.figure(name) if name in FIGURES else doubted.table(name)
        assert sentence in about(doubted.out, name)["note"] and sentence in shown.html, name
        assert "Doubtful" not in about(drawn, name)["note"], name
    assert sentence in time_table(doubted.data, paces(doubted.data), doubted.out)


def test_what_a_doubted_curve_gives_says_so(doubted, drawn):
    for name in ("fig08", "fig09a"):
        doubted.figure(name)
        assert "Doubtful: Core: the curve explains 0%;" in about(doubted.out, name)["note"], name
        assert "Doubtful" not in about(drawn, name)["note"], name


def test_contrasts_that_cannot_be_scaled_are_counted_and_not_in_the_legend(study, tmp_path):
    folder = Synthetic(study, tmp_path, sources=2).write()
    path = folder / "laws" / "length_profile.parquet"
    rows = read_rows(path)
    for row in rows:
        if row["family"] == "smelt":
            row |= {"normalised": None, "low": None, "high": None, "contrasts": 0, "excluded": 16}
    write_table(path.parent, "length_profile", rows)
    build_database(study, folder, folder / "results.duckdb")
    drawing = domains.length_profile(Data(study, folder / "results.duckdb"))
    legend = [text.get_text() for text in drawing.figure.legends[0].get_texts()]
    assert legend == ["more experts", "more parameters"]
    assert "SMELT against Baseline 16 of 16." in drawing.note
    plt.close(drawing.figure)


def test_a_gap_axis_is_bent_only_by_predictions():
    for predicted, measured, bent in (([], [0.46], False), ([0.2], [0.1], False), ([9.0], [0.46], True)):
        figure, axis = plt.subplots()
        assert recipe._gap_axis(axis, predicted, measured) == bent == (axis.get_yscale() == "symlog")
        plt.close(figure)


def test_panels_of_the_sink_hold_every_band(data):
    drawing = attention.sink_scales(data)
    top = drawing.frame["high"].max()
    assert all(axis.get_ylim()[1] >= top for axis in drawing.figure.axes)
    plt.close(drawing.figure)


def test_interventions_are_a_column_each(data, drawn):
    frame = pd.read_csv(drawn / "tables" / "tableP3.csv").set_index(["scale", "sparsity"])
    assert len(frame) == 4 and frame["intact"].tolist() == [2.0] * 4
    assert frame["skip_rise"].tolist() == pytest.approx([0.08] * 4)
    html = (drawn / "tables" / "tableP3.html").read_text()
    assert "no second visit</th>" in html and html.count("+0.0800\n±0.0050") == 4
    assert html.count("2.0000\n±0.0300") == 4


def test_every_category_of_an_intervention_has_its_whisker(data):
    drawing = routing.interventions(data)
    found = {tuple(line.get_xdata()) for line in drawing.figure.axes[0].lines if len(line.get_xdata()) == 2}
    rows = drawing.frame
    assert set(zip(rows["low"], rows["high"], strict=True)) <= found
    assert len({line.get_ydata()[0] for line in drawing.figure.axes[0].lines}) == len(rows)
    plt.close(drawing.figure)


def test_changes_of_the_dyck_head_that_are_not_sure_are_blank(data):
    drawing = dyck.dyck_map(data)
    shown = drawing.figure.axes[3].images[0].get_array()
    roles = drawing.frame.drop_duplicates("position").set_index("position")["role"]
    for role, value in (("bos", -0.58), ("demonstration_answer", 0.61), ("query", 0.0)):
        columns = shown[:, roles[roles == role].index]
        assert np.allclose(columns[:2], value) and np.allclose(columns[2], 0)
    assert "rises by 0.60 [0.58, 0.62] from 4.00 [3.50, 4.50]" in drawing.note
    assert "BOS 0.60 [0.58, 0.62] to 0.02 [0.00, 0.04]" in drawing.note
    plt.close(drawing.figure)


def test_numbers_are_written_short():
    written = [scientific(value) for value in (0.012345, 4.5, 1649.7, 98765, 1e5, 1.25e21, -3.2e-7)]
    assert written == ["0.0123", "4.5", "1650", "98800", "1e5", "1.25e21", "-3.2e-7"]


def test_headings_are_grouped(drawn):
    html = (drawn / "tables" / "table02.html").read_text()
    groups = re.findall(r'<th scope="colgroup" colspan="(\d)" class="group">([^<]+)', html)
    assert groups == [("5", "Baseline → run"), ("3", "Off the Baseline (%)")]
    assert html.count('<th scope="col"') == 10


def test_without_measurements_there_are_sentences_and_no_numbers(study, tmp_path):
    skip = tuple(set(_measured_tables()))
    folder = Synthetic(study, tmp_path, sources=2, skip=skip).write()
    build_database(study, folder, folder / "results.duckdb", partial=True)
    report = Report(Data(study, folder / "results.duckdb"), folder)
    for name in FIGURES.keys() - {"fig01a", "figP1"}:
        shown = report.figure(name)
        assert about(folder, name)["not_measured"].startswith("Not measured: "), name
        assert "<img" not in shown.html
        assert pd.read_csv(folder / "figures" / f"{name}.csv").columns.tolist() == ["not_measured"]
    for name in ("table03", "table06", "table07", "table08", "table11", "claims"):
        assert "<table" not in report.table(name).html


def _measured_tables():
    from smelt.results.schemas import TABLES as DECLARED

    kept = {"runs", "pairs", "ablation_points", "power", "published_configs", "corpus_sources"}
    return DECLARED.keys() - kept


@pytest.mark.slow
def test_a_study_that_is_half_done_is_drawn_as_far_as_it_goes(study, tmp_path):
    folder = Synthetic(study, tmp_path, sources=2).write()
    for stage in ("runs", "evaluate", "mechanism"):
        for run in (folder / stage).iterdir():
            if run.name != "xs-s85-baseline":
                shutil.rmtree(run)
    build_database(study, folder, folder / "results.duckdb", partial=True)
    report = Report(Data(study, folder / "results.duckdb"), folder)
    missing = {name for name in FIGURES if "<img" not in report.figure(name).html}
    assert {"fig12", "fig14", "fig18", "figP2"} <= missing and "fig03" not in missing
    frame = pd.read_csv(folder / "figures" / "fig03.csv")
    assert set(frame["run"]) == {"xs-s85-baseline"}


def test_points_are_those_of_the_database(data, drawn):
    frame = pd.read_csv(drawn / "figures" / "fig03.csv")
    stored = data.frame(
        "SELECT run, horizon, val_loss FROM endpoints JOIN runs USING (run) WHERE grouping = 'grid'"
    )
    both = frame.merge(stored, on=["run", "horizon"], suffixes=("", "_stored"))
    assert len(both) == len(frame) == len(stored)
    np.testing.assert_allclose(both["val_loss"], both["val_loss_stored"], rtol=1e-6)


def test_gap_is_smelt_minus_its_own_baseline(data, drawn):
    frame = pd.read_csv(drawn / "figures" / "figP2.csv")
    losses = data.endpoints().set_index(["scale", "sparsity", "arch", "tokens"])["val_loss"]
    for row in frame.to_dict("records"):
        key = (row["scale"], row["sparsity"])
        expected = losses[(*key, "smelt", row["tokens"])] - losses[(*key, "baseline", row["tokens"])]
        assert row["gap"] == pytest.approx(expected, rel=1e-5)


def test_encodings_are_the_papers(data):
    drawing = scaling.loss_by_sparsity(data)
    markers = {
        (line.get_marker(), line.get_color(), line.get_markerfacecolor())
        for line in drawing.figure.axes[0].lines
    }
    assert ("o", BLUE, "none") in markers and ("s", RED, RED) in markers
    assert LOOKS["baseline"].label == "Baseline" and LOOKS["smelt"].label == "SMELT"
    plt.close(drawing.figure)


def test_every_axis_of_the_curves_has_a_name_and_unit(data):
    drawing = training.scale_0(data)
    left = [axis for axis in drawing.figure.axes if axis.get_subplotspec().is_first_col()]
    assert [axis.get_ylabel() for axis in left] == ["Loss (nats per token)", GAP]
    assert {axis.get_xlabel() for axis in drawing.figure.axes} == {"", "Tokens seen"}
    plt.close(drawing.figure)


@pytest.mark.parametrize("name", ["fig13", "fig14", "fig16", "fig17", "fig19a", "fig19b", "fig25"])
def test_intervals_that_the_tables_hold_are_drawn(data, drawn, name):
    frame = pd.read_csv(drawn / "figures" / f"{name}.csv")
    assert frame[["low", "high"]].notna().all(axis=None)
    assert "interval" in about(drawn, name)["note"]


def test_a_heat_map_tells_half_of_each_interval(data):
    drawing = routing.diagnostics(data)
    texts = [text.get_text() for text in drawing.figure.axes[0].texts]
    assert len(texts) == 4 and all(re.fullmatch(r"\d\.\d\d\n±0\.02", text) for text in texts)
    plt.close(drawing.figure)


def test_bands_end_where_the_intervals_do(data):
    drawing = attention.token_overlap(data)
    frame = drawing.frame[(drawing.frame["scale"] == "xs") & (drawing.frame["kind"] == "top1")]
    own, control = (collection.get_paths()[0].vertices for collection in drawing.figure.axes[0].collections)
    assert own[:, 1].max() == pytest.approx(frame["high"].max())
    assert own[:, 1].min() == pytest.approx(frame["low"].min())
    assert control[:, 1].max() == pytest.approx(frame["control_high"].max())
    plt.close(drawing.figure)


def test_a_vector_picture_knows_both_pages(drawn):
    svg = (drawn / "figures" / "fig03.svg").read_text()
    assert "prefers-color-scheme: dark" in svg
    # Each structural colour that is drawn has a counterpart, and nothing paints a white page.
    used = set(re.findall(r"(?:fill|stroke): (#[0-9a-f]{6})", svg.partition("</style>")[2]))
    assert {BLUE, RED, INK, GREY} <= used and used <= set(_DARK)


def test_one_scale_is_not_drawn_twice(study, data):
    one = replace(study, scales={"xs": study.scales["xs"]}, ablations={})
    single = copy.copy(data)
    single.study, single.scales = one, ["xs"]
    with pytest.raises(NotMeasured, match="one scale, whose curves are all in figure 20"):
        training.two_cells(single)
    with pytest.raises(NotMeasured, match="has 1 scale and this figure is for scale 2"):
        training.scale_1(single)
    for ablation, table in (("span", ablations.span), ("depth", ablations.depth), ("loops", ablations.loops)):
        with pytest.raises(NotMeasured, match=f"plans no ablation of the {ablation}"):
            table(single)


def test_the_same_database_gives_the_same_bytes(data, tmp_path):
    for folder in ("a", "b"):
        Report(data, tmp_path / folder).figure("fig03")
    for kind in ("svg", "png", "csv", "json"):
        one, two = (tmp_path / folder / "figures" / f"fig03.{kind}" for folder in ("a", "b"))
        assert one.read_bytes() == two.read_bytes(), kind


@pytest.mark.parametrize(("low", "high"), [(1, 1e6), (2e11, 1.1e13), (1e5, 2e5), (0.31, 0.33), (5, 5.2)])
def test_log_ticks_are_few_and_inside(low, high):
    ticks = log_ticks(low, high)
    assert 2 <= len(ticks) <= 6
    assert ticks == sorted(ticks) and low <= ticks[0] and ticks[-1] <= high


def test_powers_are_written_short():
    assert [power_label(v) for v in (1e12, 3e11, 2.5e-3)] == ["10¹²", "3·10¹¹", "2.5·10⁻³"]


def test_another_studys_database_is_refused(study, tmp_path):
    with pytest.raises(SmeltError, match="does not exist"):
        Data(study, tmp_path / "results.duckdb")
    path = tmp_path / "other.duckdb"
    path.write_bytes(b"no database")
    with pytest.raises(SmeltError, match="build it again"):
        Data(study, path)
    with duckdb.connect(str(tmp_path / "empty.duckdb")):
        pass
    with pytest.raises(SmeltError, match="not a database of this version"):
        Data(study, tmp_path / "empty.duckdb")


def test_an_unknown_figure_is_refused(data, tmp_path):
    with pytest.raises(SmeltError, match="no 'fig99'; it has fig01a"):
        Report(data, tmp_path).figure("fig99")


def test_a_long_training_log_is_drawn_in_few_points(study, tmp_path):
    folder = Synthetic(study, tmp_path, sources=2, log_points=4000).write()
    build_database(study, folder, folder / "results.duckdb")
    long = Data(study, folder / "results.duckdb")
    drawing = training.scale_0(long)
    drawn = {len(line.get_xdata()) for axis in drawing.figure.axes for line in axis.lines}
    plt.close(drawing.figure)
    assert max(drawn) < 200 and len(drawing.frame) < 1000
