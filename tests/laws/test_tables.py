"""The command end to end on result folders with a known truth, whole and damaged."""

import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

from smelt.errors import SmeltError
from smelt.laws import published_surface
from smelt.laws.__main__ import TABLES, analyses
from smelt.laws.inputs import load_results
from smelt.report.claims import ledger
from smelt.results.parquet import read_rows, write_table
from smelt.study import load_study

STUDIES = Path(__file__).parent / "studies"


@pytest.fixture
def tables(lab, tmp_path):
    def build(name="grid", write=None, **options):
        made = lab(name, **options)
        made.write(**(write(made) if write else {}))
        return analyses(load_results(made.study, tmp_path, partial=True))

    return build


def by(rows, *keys):
    return {tuple(row[key] for key in keys): row for row in rows}


def notes(rows):
    return {row["analysis"]: row for row in rows["law_notes"]}


def test_a_whole_study_gives_back_the_surfaces_it_was_made_of(tables):
    rows = tables()
    for arch in ("baseline", "smelt"):
        truth = published_surface(arch)[0]
        fit = by(rows["law_fits"], "arch", "subset")[arch, "all"]
        assert (fit["exp_a"], fit["exp_b"], fit["exp_c"]) == pytest.approx(
            (truth.a, truth.b, truth.c), rel=1e-4
        )
        assert fit["converged"]
        assert fit["n"] == 72
    gain = by(rows["ce_gain"], "budget", "sparsity", "subset")
    assert gain[1e21, 95, "all"]["gain"] == pytest.approx(0.1568, abs=2e-3)
    assert not gain[1e21, 95, "all"]["extrapolated"]
    assert gain[1e22, 95, "all"]["extrapolated"]
    assert by(rows["tpp"], "sparsity", "arch")[85, "baseline"]["tpp"] == pytest.approx(56, abs=1)
    assert len(rows["law_draws"]) == 32
    assert all(note["ok"] for name, note in notes(rows).items() if "mmlu" not in name)


def test_a_constant_added_to_every_loss_of_a_category_changes_e_alone(tables):
    rows = by(tables()["law_fits"], "arch", "subset")
    whole, code, finance = (rows["smelt", name] for name in ("all", "category:Code", "category:Finance"))
    assert code["exp_a"] == whole["exp_a"]
    # Sources s0 and s5 are Code, with 0 and 0.25 nats on top; s1 alone is Finance, with 0.05.
    assert code["E"] - finance["E"] == pytest.approx(0.075, abs=2e-3)
    assert finance["A"] == pytest.approx(code["A"], rel=2e-3)


def test_one_missing_run_is_named_and_everything_else_still_runs(tables):
    rows = tables(write=lambda made: {"skip": ("B-s95-smelt", "B-s85-span3")})
    note = notes(rows)
    assert "B-s95-smelt" in note["pairs"]["reason"]
    assert "B-s85-span3" in note["ablations"]["reason"]
    assert note["span_margin"]["ok"]
    assert "B-s95" in note["loss_gap"]["reason"]
    assert by(rows["law_fits"], "arch", "subset")["smelt", "all"]["n"] == 66
    assert by(rows["law_fits"], "arch", "subset")["smelt", "all"]["converged"]
    assert by(rows["law_contrasts"], "contrast").keys() >= {("loss_gap:B-s85",), ("exponent:a",)}


def test_a_loss_that_is_not_positive_is_named_and_left_out(tables):
    rows = tables(write=lambda made: {"losses": {("A-s85-smelt", 60): 0.0}})
    assert "A-s85-smelt at horizon 60" in notes(rows)["pairs"]["reason"]
    assert by(rows["law_fits"], "arch", "subset")["baseline", "all"]["n"] == 71


def test_a_study_of_two_horizons_is_fitted_but_says_that_it_should_not_be_believed(tables):
    rows = tables("tiny", noise=0.005)
    note = notes(rows)
    assert not note["surface"]["ok"]
    assert "2 token horizons" in note["surface"]["reason"]
    assert "degenerate" in note["bootstrap"]["reason"]
    for row in rows["law_fits"] + rows["ce_gain"] + rows["tpp"]:
        assert row["note"]
    gaps = [row for row in rows["law_contrasts"] if row["contrast"].startswith("loss_gap:")]
    assert len(gaps) == 4
    # One seed and no fit that can be believed: there is no yardstick, so there is no interval.
    assert all(row["low"] is None and "no yardstick" in row["basis"] for row in gaps)


def test_no_endpoints_for_a_fit_leave_nulls_with_the_reason(tables):
    rows = tables(write=lambda made: {"skip": tuple(r for r in made.points if "-s95" in r or "-s97" in r)})
    fit = by(rows["law_fits"], "arch", "subset")["smelt", "all"]
    assert fit["E"] is None
    assert "1 sparsity level only" in fit["note"]
    assert rows["ce_gain"] == rows["tpp"] == rows["law_draws"] == []
    assert not notes(rows)["code_margin"]["ok"]
    assert notes(rows)["loops_margin"]["ok"]
    assert rows["calibration"]
    assert rows["ablation_results"]


def test_the_ledger_says_why_no_surface_could_tell_and_judges_the_rest(tables, tmp_path):
    rows = tables(write=lambda made: {"skip": tuple(r for r in made.points if "-s95" in r or "-s97" in r)})
    for name in TABLES:
        write_table(tmp_path / "laws", name, rows[name])
    found = {row["claim"]: row for row in ledger(load_study(str(STUDIES / "grid.yaml")), tmp_path)}
    for claim in ("C5", "C6", "C7", "C12"):
        assert found[claim]["verdict"] == "not measured"
        assert "1 sparsity level only" in found[claim]["reason"]
        assert found[claim]["value"] is None
    for claim in ("C1", "C4", "C8", "C14"):
        assert found[claim]["verdict"] != "not measured"
        assert found[claim]["value"] is not None


def test_seeds_give_the_yardstick_where_there_are_several(tables):
    rows = tables("tiny", noise=0.003, seeds=3)
    gap = by(rows["law_contrasts"], "contrast")["loss_gap:s-s85",]
    assert gap["n"] == 3
    assert gap["basis"] == "spread over training seeds"
    assert gap["low"] < gap["value"] < gap["high"]
    # The standard error of a mean of three differences of two runs is 0.003 sqrt(2/3).
    assert (gap["high"] - gap["low"]) / 2 == pytest.approx(0.003 * np.sqrt(2 / 3) * 2.3, rel=0.6)
    result = by(rows["ablation_results"], "ablation", "arch", "value")["span", "baseline", 0]
    assert result["seeds"] == 3
    assert result["val_loss_se_training"] > 0


def run(folder, out):
    study = str(STUDIES / "tiny.yaml")
    command = [
        sys.executable,
        "-m",
        "smelt.laws",
        "--study",
        study,
        "--results",
        str(folder),
        "--out",
        str(out),
    ]
    return subprocess.run(command, capture_output=True, text=True, check=False)


def test_the_command_writes_every_table_and_the_same_bytes_again(lab, tmp_path):
    lab("tiny", noise=0.005).write()
    for out in ("first", "second"):
        done = run(tmp_path, tmp_path / out)
        assert done.returncode == 0, done.stderr
        assert "2 token horizons" in done.stdout
    for name in TABLES:
        first = (tmp_path / "first" / f"{name}.parquet").read_bytes()
        assert first == (tmp_path / "second" / f"{name}.parquet").read_bytes()
        read_rows(tmp_path / "first" / f"{name}.parquet")


@pytest.mark.parametrize(
    ("damage", "message"),
    [
        (lambda folder: (folder / "budget" / "runs.parquet").unlink(), "runs.parquet does not exist"),
        (
            lambda folder: (folder / "evaluate" / "xs-s85-smelt" / "endpoints.parquet").unlink(),
            "xs-s85-smelt/endpoints.parquet does not exist; run the same snakemake command again",
        ),
        (
            lambda folder: (folder / "tasks" / "tasks.json").unlink(),
            "tasks.json does not exist; run the same",
        ),
        (lambda folder: (folder / "tasks" / "tasks.json").write_text("[]"), "tasks.json lacks tasks"),
        (
            lambda folder: (folder / "evaluate" / "xs-s85-smelt" / "endpoints.parquet").write_bytes(b"x"),
            "is damaged",
        ),
    ],
)
def test_bad_input_is_one_sentence_and_exit_code_2(lab, tmp_path, damage, message):
    lab("tiny").write()
    damage(tmp_path)
    done = run(tmp_path, tmp_path / "laws")
    assert done.returncode == 2
    assert message in done.stderr
    assert done.stderr.count("\n") == 1
    assert not (tmp_path / "laws").exists()


def test_an_endpoint_table_of_another_run_is_refused(lab, tmp_path):
    lab("tiny").write()
    rows = read_rows(tmp_path / "evaluate" / "xs-s85-smelt" / "endpoints.parquet")
    write_table(tmp_path / "evaluate" / "xs-s85-baseline", "endpoints", rows)
    with pytest.raises(SmeltError, match="holds run 'xs-s85-smelt'.*'xs-s85-baseline'"):
        load_results(load_study(str(STUDIES / "tiny.yaml")), tmp_path)
