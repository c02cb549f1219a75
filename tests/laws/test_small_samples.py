"""Intervals of three or four cells, and levels whose measured sparsity is not their label."""

from dataclasses import replace

import numpy as np
import pytest

from smelt.laws import published_surface, shots, subsets
from smelt.laws.frontier import ce_gain
from smelt.laws.inputs import designs, load_results
from smelt.laws.lengths import _ratio, _row
from smelt.laws.noise import Spread
from smelt.laws.quantities import choose_question, quantities
from smelt.laws.surfaces import analyse, contrast_rows, note_rows


@pytest.mark.parametrize("count", [3, 4, 16])
def test_a_mean_over_few_cells_excludes_zero_as_often_as_it_says(count):
    random = np.random.default_rng(count)
    found = [shots._mean_ends([random.normal(size=count)]).low > 0 for _ in range(4000)]
    assert np.mean(found) == pytest.approx(0.025, abs=0.008)


def test_a_mean_over_cells_and_tasks_counts_both():
    random = np.random.default_rng(0)
    found = []
    for _ in range(3000):
        gap_tc = random.normal(size=(4, 1)) + random.normal(size=(1, 5)) + random.normal(size=(4, 5))
        found.append(shots._mean_ends([gap_tc.mean(axis=0), gap_tc.mean(axis=1)]).low > 0)
    assert 0.005 < np.mean(found) < 0.03


@pytest.mark.parametrize("count", [4, 8])
def test_a_length_ratio_excludes_one_as_often_as_it_says(count):
    random = np.random.default_rng(count)
    rows = [
        _row("length_ratio:smelt", _ratio(random.normal(0.1, 0.02, size=(count, 8)), 8)) for _ in range(2000)
    ]
    assert not any(row["note"] for row in rows)
    assert np.mean([row["low"] > 1 for row in rows]) == pytest.approx(0.025, abs=0.015)
    assert all(row["freedom"] == count - 1 for row in rows)


def test_a_length_ratio_over_short_documents_that_may_gain_nothing_is_doubted():
    random = np.random.default_rng(1)
    values = random.normal(0.1, 0.02, size=(6, 8))
    values[:, :4] = random.normal(size=(6, 1)) + 0.3
    assert "upper limit" in _row("x", _ratio(values, 8))["note"]


def test_a_t_interval_carries_its_degrees_of_freedom():
    assert Spread(1.0, 7, "").ends(0.0, 4) == pytest.approx((-1.1823, 1.1823, 7), abs=1e-4)
    assert Spread(None, 0, "").ends(0.0, 4) == (None, None, None)


def test_a_level_is_evaluated_at_the_sparsity_its_cells_have():
    baseline, smelt = (published_surface(arch)[0] for arch in ("baseline", "smelt"))
    question = choose_question(np.array([1.3e19, 2.2e21]), [85, 95], {85: 0.83})
    found = quantities(baseline, smelt, question)
    assert found["ce_gain:1e+21:85"] == pytest.approx(float(ce_gain(smelt, baseline, 1e21, 0.83)))
    assert found["ce_gain:1e+21:95"] == pytest.approx(float(ce_gain(smelt, baseline, 1e21, 0.95)))


@pytest.fixture
def fitted(lab, tmp_path):
    made = lab(noise=0.002).write()
    results = load_results(made.study, tmp_path)
    *both, _ = designs(results)
    both = tuple(replace(d, sparsity=np.where(d.level == 85, 0.83, d.sparsity)) for d in both)
    return results, analyse(both, [85, 95, 97], 4, 12)


def test_the_study_s_own_sparsities_are_taken_from_its_endpoints(fitted):
    _, analysis = fitted
    assert analysis.question.fraction(85) == pytest.approx(0.83)
    assert analysis.question.fraction(97) == pytest.approx(0.97)


def test_too_many_degenerate_draws_doubt_every_claim_that_rests_on_them(fitted):
    _, analysis = fitted
    analysis.draws.degenerate[:] = False
    assert not analysis.doubt
    analysis.draws.degenerate[:2] = True
    assert "17% of the bootstrap draws" in analysis.doubt
    assert all("17%" in row["note"] for row in contrast_rows(analysis))
    surface = note_rows(analysis, [])[0]
    assert not surface["ok"]
    assert "17%" in surface["reason"]


def test_a_subset_whose_coefficient_ends_on_a_bound_is_doubted_and_so_is_its_margin(fitted, monkeypatch):
    results, analysis = fitted
    analysis.draws.degenerate[:] = False
    calls, whole = [], subsets.fit_many

    def bound_in_the_first(*arguments):
        surface, objective, on_bound = whole(*arguments)
        calls.append(1)
        return surface, objective, on_bound | (len(calls) == 1)

    monkeypatch.setattr(subsets, "fit_many", bound_in_the_first)
    tables = subsets.subset_tables(results, analysis)
    fits = {(row["arch"], row["subset"]): row for row in tables["law_fits"]}
    # Subsets come in order; the first is Code.
    assert not fits["baseline", "category:Code"]["converged"]
    assert "on a bound" in fits["baseline", "category:Code"]["note"]
    assert fits["smelt", "category:Code"]["converged"]
    assert fits["baseline", "category:Web"]["converged"]
    assert all("on a bound" in row["note"] for row in tables["law_contrasts"])


def test_a_doubt_about_the_aggregate_is_said_once_of_what_is_made_of_several_subsets(fitted, monkeypatch):
    results, analysis = fitted
    analysis.draws.degenerate[:] = False
    analysis.draws.degenerate[:2] = True
    calls, whole = [], subsets.fit_many

    def bound_in_one(*arguments):
        surface, objective, on_bound = whole(*arguments)
        calls.append(1)
        return surface, objective, on_bound | (len(calls) == 1)

    monkeypatch.setattr(subsets, "fit_many", bound_in_one)
    # The six sources of the fixture make four quartiles, the first subset is Code.
    tables = subsets.subset_tables(results, analysis)
    notes = [row["note"] for row in tables["ce_gain"] + tables["law_contrasts"]]
    assert len(notes) > 10
    assert all(note.count("17% of the bootstrap draws") == 1 for note in notes)
    assert any("on a bound" in note for note in notes)
