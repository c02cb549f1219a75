"""Cell bootstrap and the simulations that say what its intervals are worth."""

import numpy as np
import pytest

from smelt.laws.bootstrap import bootstrap, cell_weights, interval, undetermined, widen
from smelt.laws.fit import fit_surface
from smelt.laws.frontier import ce_gain
from smelt.laws.published import published_designs, published_truths
from smelt.laws.quantities import PAPER_BUDGETS, Question, choose_question, quantities
from smelt.laws.recovery import sign_certainty
from smelt.laws.simulate import Coverage, coverage_study, estimates, simulate_losses

PAPER = Question(PAPER_BUDGETS, (85, 95, 97), (1.3e19, 2.2e21))


@pytest.fixture(scope="module")
def noisy():
    rng = np.random.default_rng(0)
    designs = tuple(
        d.with_loss(d.loss + t.noise * rng.normal(size=len(d)))
        for d, t in zip(published_designs(), published_truths(), strict=True)
    )
    return designs, tuple(fit_surface(design, 8) for design in designs)


def test_whole_cells_are_resampled_with_replacement():
    design = published_designs()[0]
    weights = cell_weights(design, 50, seed=1)
    assert weights.sum(axis=1) == pytest.approx(72)
    for cell in np.unique(design.cell):
        assert (np.ptp(weights[:, design.cell == cell], axis=1) == 0).all()
    assert (weights == 0).any()


def test_draws_are_deterministic_and_depend_on_the_seed(noisy):
    first, again, other = (bootstrap(*noisy, 20, seed) for seed in (3, 3, 4))
    assert (first.smelt.a == again.smelt.a).all()
    assert (first.smelt.a != other.smelt.a).any()


def test_a_draw_of_all_cells_once_is_the_point_estimate(noisy):
    designs, fits = noisy
    draws = bootstrap(designs, fits, 400, seed=0)
    low, high = interval(draws.baseline.a[~draws.degenerate])
    assert low < fits[0].law.a < high
    assert draws.degenerate.mean() < 0.02


def test_draws_with_one_scale_or_one_sparsity_are_degenerate():
    design = published_designs()[0]
    cells = np.unique(design.cell)
    same_scale = np.isin(design.cell, [cell for cell in cells if cell.startswith("200M")])
    same_level = design.level == 95
    one = design.cell == cells[0]
    weights = np.stack([same_scale, same_level, one, np.ones(72)]).astype(float)
    assert undetermined(design, weights).tolist() == [True, True, True, False]


def test_widening_stretches_both_arms():
    assert widen(1.0, 0.0, 3.0, 2.0) == (-1.0, 5.0)
    assert widen(5.0, 0.0, 3.0, 2.0) == (-3.0, 3.0)


def test_exponents_and_gain_come_back_without_bias():
    designs, truths = published_designs(), published_truths()
    rng = np.random.default_rng(5)
    losses = tuple(simulate_losses(d, t, 50, rng) for d, t in zip(designs, truths, strict=True))
    fitted = estimates(designs, losses)
    for law, truth in zip(fitted, truths, strict=True):
        for name in "abc":
            assert np.median(getattr(law, name)) == pytest.approx(getattr(truth.law, name), rel=0.03)
    gain = np.median(ce_gain(fitted[1], fitted[0], 1e21, 0.95))
    assert gain == pytest.approx(float(ce_gain(truths[1].law, truths[0].law, 1e21, 0.95)), abs=0.02)


def test_cell_noise_has_the_same_variance_and_is_shared_in_a_cell():
    design, truth = published_designs()[0], published_truths()[0]
    rng = np.random.default_rng(0)
    for noise, expected in (("independent", 0.0), ("cell", 0.5)):
        errors = simulate_losses(design, truth, 4000, rng, noise) - design.loss
        assert errors.std() == pytest.approx(truth.noise, rel=0.02)
        same = np.corrcoef(errors[:, 0], errors[:, 1])[0, 1]
        assert same == pytest.approx(expected, abs=0.06)


def test_coverage_counts_what_the_intervals_hold():
    study = coverage_study(published_designs(), published_truths(), PAPER, repeats=20, draws=40, seed=1)
    assert study.keys() == quantities(published_truths()[0].law, published_truths()[1].law, PAPER).keys()
    gain = study["ce_gain:1e+21:95"]
    assert isinstance(gain, Coverage)
    assert gain.repeats == 20
    assert gain.coverage >= 0.7
    assert gain.factor >= 1
    assert gain.truth == pytest.approx(0.1568, abs=1e-3)


def test_signs_of_the_printed_differences_are_no_certainty():
    rows = {(row["exponent"], row["noise"]): row for row in sign_certainty(100)}
    a, c = rows["a", "independent"], rows["c", "independent"]
    assert a["printed"] == pytest.approx(0.0189, abs=1e-6)
    assert c["printed"] == pytest.approx(0.0417, abs=1e-6)
    # The noise of c alone has a standard deviation near 0.05: that of the difference exceeds the difference.
    assert c["spread"] > c["printed"]
    assert 0.5 < a["right"] < 0.95
    assert a["p_value"] > 0.2


def test_budgets_are_the_papers_inside_its_window_and_analogous_elsewhere():
    assert choose_question(np.array([1.3e19, 2.2e21]), [85]).budgets == PAPER_BUDGETS
    small = choose_question(np.array([1e12, 1e14]), [97, 85])
    assert small.sparsities == (85, 97)
    assert 1e12 < small.budgets[0] < small.budgets[1] < 1e14 < small.budgets[2]
    assert [small.extrapolated(budget) for budget in small.budgets] == [False, False, True]
