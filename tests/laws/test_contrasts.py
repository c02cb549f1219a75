"""Contrasts with a planted answer: wins, gaps, sweeps, domains, lengths, demonstrations."""

import itertools

import numpy as np
import pytest

from smelt.corpus import LENGTH_BOUNDS
from smelt.laws import ablations, lengths, pairs, shots, subsets
from smelt.laws.inputs import designs, load_results
from smelt.laws.pairs import binomial_interval
from smelt.laws.shots import holm, permutation_p
from smelt.laws.surfaces import analyse
from smelt.results.parquet import read_rows, write_table
from smelt.study import load_study
from tests.laws.conftest import STUDIES

TINY = str(STUDIES / "tiny.yaml")


@pytest.fixture
def study_results(lab, tmp_path):
    def build(prepare=lambda made: None, change=None, **options):
        made = lab(**options)
        prepare(made)
        made.write(**options.pop("write", {}))
        if change:
            for folder in (tmp_path / "evaluate").iterdir():
                rows = read_rows(folder / "endpoints.parquet")
                for row in rows:
                    change(row)
                write_table(folder, "endpoints", rows)
        return load_results(made.study, tmp_path)

    return build


@pytest.fixture
def analysis():
    def build(results):
        *both, _ = designs(results)
        return analyse(tuple(both), [85, 95, 97], 4, 12)

    return build


def values(tables):
    return {row["contrast"]: row for row in tables["law_contrasts"]}


def test_exact_binomial_interval():
    assert binomial_interval(1.0, 16) == pytest.approx((0.025 ** (1 / 16), 1.0))
    assert binomial_interval(0.0, 10) == pytest.approx((0.0, 1 - 0.025 ** (1 / 10)))
    # 5 of 10: the textbook interval.
    assert binomial_interval(0.5, 10) == pytest.approx((0.1871, 0.8129), abs=1e-4)


def test_wins_count_lower_completion_and_higher_core_and_mmlu_above_the_floor(study_results):
    def change(row):
        looped = row["run"].endswith("smelt")
        row["completion"] = 2.0 - 0.1 * looped
        row["core"] = 0.2 - 0.1 * looped
        row["mmlu"] = (0.4 if row["run"].startswith("D") else 0.26) + 0.01 * looped

    found = values(pairs.win_tables(study_results(change=change)))
    assert found["wins:completion"]["value"] == 1
    assert found["wins:completion"]["n"] == 96
    assert found["wins:core"]["value"] == 0
    # Only scale D has Baselines at least 10 points above chance: 4 cells, 24 endpoints.
    assert found["wins:mmlu"]["value"] == 1
    assert found["wins:mmlu"]["n"] == 24
    assert found["wins:mmlu"]["low"] == pytest.approx(0.025 ** (1 / 4))


def test_ties_count_half_and_an_absent_score_is_told(study_results):
    def change(row):
        row["completion"], row["core"] = 2.0, None

    tables = pairs.win_tables(study_results(change=change))
    assert values(tables)["wins:completion"]["value"] == 0.5
    reasons = {row["analysis"]: row["reason"] for row in tables["law_notes"]}
    assert reasons["wins:core"] == "the suite has no core score"


def test_gaps_are_baseline_minus_smelt_at_the_last_horizon(study_results, analysis):
    results = study_results(noise=0.004)
    found = values(pairs.gap_tables(results, analysis(results)))
    ends = results.endpoints
    expected = ends["C-s95-baseline", 500]["val_loss"] - ends["C-s95-smelt", 500]["val_loss"]
    assert found["loss_gap:C-s95"]["value"] == pytest.approx(expected)
    assert len(found) == 16
    width = found["loss_gap:C-s95"]["high"] - found["loss_gap:C-s95"]["low"]
    assert width / 2 == pytest.approx(2 * 0.004 * np.sqrt(2), rel=0.3)


def sweep_losses(made, best_span, best_visits, best_depths):
    losses = {}
    for run, point in made.points.items():
        # Grid runs belong to the sweeps too: the depth sweep's own runs reach lower than those.
        loss = 2.0
        if point.group == "span" or (point.scale == "B" and run.endswith(("baseline", "smelt"))):
            loss += 0.1 * abs(point.loop_length - best_span)
        if point.group == "loops":
            loss = 2.0 + 0.1 * abs(point.loop_count - best_visits)
        if point.group == "depth":
            target = best_depths["looped" if point.loop_count > 1 else "baseline"]
            loss = 1.9 + 0.1 * abs(point.layers - target)
        losses[run, 500] = loss
    return losses


def test_margins_and_depth_shift_of_planted_sweeps(lab, tmp_path, analysis):
    made = lab(noise=0.002)
    made.write(losses=sweep_losses(made, 2, 2, {"looped": 6, "baseline": 3}))
    results = load_results(made.study, tmp_path)
    tables = ablations.ablation_tables(results, analysis(results))
    found = values(tables)
    assert found["span_margin:85:3"]["value"] == pytest.approx(0.1)
    assert found["span_margin:95:0"]["value"] == pytest.approx(0.2)
    assert not any(name.endswith(":2") for name in found if name.startswith(("span", "loops")))
    assert found["loops_margin:85:3"]["value"] == pytest.approx(0.1)
    # Best looped depth 6 executes 9 layers, the best Baseline 3.
    assert found["depth_shift:85"]["value"] == 6
    rows = {(r["ablation"], r["sparsity"], r["arch"], r["value"]): r for r in tables["ablation_results"]}
    assert rows["depth", 85, "looped", 6]["effective_layers"] == 9
    assert rows["span", 85, "looped", 2]["run"] == "B-s85-smelt"
    assert rows["span", 85, "looped", 2]["val_loss_se_training"] is None


def test_core_error_over_evaluation_seeds_adds_the_tasks_errors(study_results, analysis):
    def prepare(made):
        made.accuracy = lambda run, task, shots, seed, loss: 0.5 + (0.1 if task == "dyck" else 0.0) * seed

    results = study_results(prepare)
    row = next(
        row
        for row in ablations.ablation_tables(results, analysis(results))["ablation_results"]
        if row["run"] == "B-s85-smelt"
    )
    # Dyck has 0.5 and 0.6 under its two seeds: standard error 0.05, divided by four tasks.
    assert row["core_se_evaluation"] == pytest.approx(0.05 / 4)


def test_demonstrations_that_move_all_trainings_alike_are_not_averaged_away_over_them(
    study_results, analysis
):
    def prepare(made):
        made.accuracy = lambda run, task, shots, seed, loss: 0.5 + (0.1 if task == "dyck" else 0.0) * seed

    def change(row):
        row["core"] = 0.2 + 0.02 * row["run"].endswith("seed1")

    results = study_results(prepare, change, seeds=2)
    rows = ablations.ablation_tables(results, analysis(results))["ablation_results"]
    assert {row["seeds"] for row in rows} == {2}
    assert all(row["core_se_evaluation"] == pytest.approx(0.05 / 4) for row in rows)
    # Two trainings with 0.20 and 0.22.
    assert all(row["core_se_training"] == pytest.approx(0.01) for row in rows)


def test_the_category_that_gains_most_is_found(lab, tmp_path, analysis):
    class CodeGains(type(lab())):
        def write_run(self, run, losses, scores):
            super().write_run(run, losses, scores)
            folder = self.folder / "evaluate" / run
            rows = read_rows(folder / "validation.parquet")
            for row in rows:
                if row["category"] == "Code" and self.points[run].loop_count > 1:
                    row["loss_sum"] -= 0.03 * row["tokens"]
            write_table(folder, "validation", rows)

    made = CodeGains(tmp_path, noise=0.002)
    results = load_results(made.write().study, tmp_path)
    tables = subsets.subset_tables(results, analysis(results))
    found = values(tables)
    assert {name for name in found if name.startswith("code_margin")} == {
        f"code_margin:{category}" for category in ("Finance", "Knowledge", "Math/STEM", "Web")
    }
    assert all(row["low"] > 0 for row in found.values())
    subsets_seen = {row["subset"] for row in tables["ce_gain"]}
    assert {"quartile:1", "quartile:4", "source:s5", "category:Web"} <= subsets_seen


def test_planted_length_profiles_give_their_ratios(lab, tmp_path):
    class Long(type(lab())):
        def bucket_loss(self, run, loss, bucket):
            point = self.points[run]
            position = LENGTH_BOUNDS.index(bucket)
            gain = 0.05 * (1.5 if position >= 4 else 1.0) * (point.loop_count > 1)
            scale = list(self.study.scales).index(point.scale)
            return 3.0 - gain - 0.1 * scale - 0.002 * point.sparsity

    made = Long(tmp_path).write()
    tables = lengths.length_tables(load_results(made.study, tmp_path))
    found = values(tables)
    assert found["length_ratio:smelt"]["value"] == pytest.approx(1.5)
    assert found["length_ratio:experts"]["value"] == pytest.approx(1.0)
    assert found["length_margin:parameters"]["value"] == pytest.approx(0.5)
    assert found["length_margin:parameters"]["low"] == pytest.approx(0.5)
    profile = {(r["family"], r["bucket"]): r for r in tables["length_profile"]}
    assert profile["smelt", 32]["normalised"] == pytest.approx(0.8)
    assert profile["smelt", 4096]["normalised"] == pytest.approx(1.2)
    assert sum(profile["smelt", b]["normalised"] for b in LENGTH_BOUNDS) == pytest.approx(8)
    assert profile["experts", 32]["contrasts"] == 12


def test_training_seeds_make_no_further_contrasts_of_lengths(lab, tmp_path):
    class Seeds(type(lab())):
        def bucket_loss(self, run, loss, bucket):
            point = self.points[run]
            gain = (0.04 + 0.02 * point.seed) * (point.loop_count > 1) * (1 + (bucket > 256))
            return 3.0 - gain

    tables = lengths.length_tables(load_results(Seeds(tmp_path, "tiny", seeds=2).write().study, tmp_path))
    pairs = {
        (row["scale"], row["sparsity"]) for row in load_results(load_study(TINY), tmp_path).grid_runs("smelt")
    }
    row = values(tables)["length_ratio:smelt"]
    assert (row["value"], row["n"]) == (pytest.approx(2.0), len(pairs))
    profile = {r["bucket"]: r for r in tables["length_profile"] if r["family"] == "smelt"}
    assert profile[32]["improvement"] == pytest.approx(0.05)
    assert profile[32]["contrasts"] == len(pairs)


def test_a_ratio_over_short_documents_that_gain_nothing_has_no_value(lab, tmp_path):
    class Worse(type(lab())):
        def bucket_loss(self, run, loss, bucket):
            return 3.0 + 0.05 * (self.points[run].loop_count > 1)

    tables = lengths.length_tables(load_results(Worse(tmp_path).write().study, tmp_path))
    row = values(tables)["length_ratio:smelt"]
    assert row["value"] is None
    assert "no meaning" in row["note"]
    assert {r["excluded"] for r in tables["length_profile"] if r["family"] == "smelt"} == {16}


def test_in_context_gaps_dyck_and_tests_of_a_planted_gain(lab, tmp_path):
    class Shots(type(lab())):
        evaluation_seeds = 6

        def accuracy(self, run, task, shots, seed, loss):
            looped = self.points[run].loop_count > 1
            gain = 0.02 if shots == 0 else 0.05
            gain += 0.10 * (task == "dyck") * (shots == 8)
            return (
                0.3 + 0.01 * np.sin(hash((task, shots, seed)) % 7) + looped * (gain if task != "copy" else 0)
            )

    tables = shots.shot_tables(load_results(Shots(tmp_path).write().study, tmp_path))
    found = values(tables)
    assert found["icl_gap:0"]["value"] == pytest.approx(0.02 * 2 / 3)
    # Over k = 1, 2, 4, 8 and three tasks: 0.05 for two of them, and 0.10 more for Dyck at k = 8.
    assert found["icl_gap:shots"]["value"] == pytest.approx(0.05 * 2 / 3 + 0.10 / 12)
    assert found["dyck_gap:8"]["value"] == pytest.approx(0.15)
    assert found["dyck_gap:8"]["low"] == pytest.approx(0.15)
    tests = {row["task"]: row for row in tables["shot_tests"]}
    assert tests["dyck"]["p_value"] == tests["dyck"]["smallest_p"] == pytest.approx(2 / 64)
    assert tests["dyck"]["significant"]
    assert tests["dyck"]["p_holm"] == pytest.approx(3 * 2 / 64)
    assert tests["copy"]["p_value"] == 1
    assert not tests["copy"]["significant"]
    curve = {(r["arch"], r["task"], r["shots"]): r for r in tables["shot_curves"]}
    assert curve["smelt", "mean", 0]["low"] is None
    assert curve["smelt", "dyck", 8]["seeds"] == 6
    assert ("smelt", "which", 0) not in curve


def test_permutation_p_is_the_share_of_sign_patterns():
    differences = np.array([0.3, 0.1, -0.05, 0.2])
    patterns = np.array(list(itertools.product((1, -1), repeat=4)))
    expected = np.mean(np.abs(patterns @ differences) >= abs(differences.sum()) - 1e-12)
    assert permutation_p(differences) == pytest.approx(expected)
    assert permutation_p(np.full(10, 0.01)) == pytest.approx(2 / 1024)
    assert permutation_p(np.zeros(5)) == 1


def test_many_seeds_are_permuted_at_random_but_repeatably():
    differences = np.random.default_rng(0).normal(0.5, 1.0, 30)
    assert permutation_p(differences) == permutation_p(differences)
    assert 0 < permutation_p(differences) < 0.2


def test_holm_steps_down_and_never_decreases():
    assert holm([0.01, 0.04, 0.03]) == pytest.approx([0.03, 0.06, 0.06])
    assert holm([0.5, 0.9]) == pytest.approx([1.0, 1.0])
