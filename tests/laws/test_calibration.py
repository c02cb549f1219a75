"""The monotone sigmoid from loss to a benchmark."""

import numpy as np
import pytest
from scipy.special import expit

from smelt.errors import SmeltError
from smelt.laws.bootstrap import label_weights
from smelt.laws.calibration import fit_sigmoid, refit_sigmoid

LOSS = np.random.default_rng(0).uniform(1.6, 2.4, 96)


@pytest.mark.parametrize(
    ("direction", "b", "a", "alpha", "tau"),
    [(1, 1.8, 2.0, 3.0, 2.2), (-1, 0.1, 0.4, 6.0, 1.9), (-1, 0.25, 0.4, 30.0, 1.75)],
)
def test_exact_values_give_the_parameters_back(direction, b, a, alpha, tau):
    curve = fit_sigmoid(LOSS, b + a * expit(direction * alpha * (LOSS - tau)), direction)
    assert (curve.b, curve.a, curve.alpha, curve.tau) == pytest.approx((b, a, alpha, tau), rel=1e-4)
    assert curve.r2 == pytest.approx(1)


def test_noise_lowers_r2_to_what_it_must_be():
    clean = 0.1 + 0.4 * expit(-6 * (LOSS - 1.9))
    noise = 0.02 * np.random.default_rng(1).normal(size=96)
    curve = fit_sigmoid(LOSS, clean + noise, -1)
    expected = 1 - noise.var() / (clean + noise).var()
    assert curve.r2 == pytest.approx(expected, abs=0.02)
    assert curve.a > 0
    assert curve.alpha > 0


def test_residuals_are_positive_for_the_better_model():
    accuracy = fit_sigmoid(LOSS, 0.1 + 0.4 * expit(-6 * (LOSS - 1.9)), -1)
    entropy = fit_sigmoid(LOSS, 1.8 + 2 * expit(3 * (LOSS - 2.2)), 1)
    assert accuracy.residual(2.0, accuracy(2.0) + 0.01) == pytest.approx(0.01)
    assert entropy.residual(2.0, entropy(2.0) - 0.01) == pytest.approx(0.01)


@pytest.mark.parametrize(
    ("loss", "value", "message"),
    [
        (LOSS[:4], LOSS[:4], "4 Baseline endpoints"),
        (LOSS, np.full(96, 0.3), "same value"),
        (np.full(96, 2.0), LOSS, "same loss"),
        (LOSS, np.where(np.arange(96) == 5, np.nan, LOSS), "finite"),
    ],
)
def test_data_that_determine_no_curve_are_refused(loss, value, message):
    with pytest.raises(SmeltError, match=message):
        fit_sigmoid(loss, value, -1)


def test_a_curve_through_noise_is_doubted():
    random = np.random.default_rng(2)
    doubted = [bool(fit_sigmoid(LOSS[:5], random.normal(size=5), -1).note) for _ in range(40)]
    assert np.mean(doubted) > 0.8
    clean = 0.1 + 0.4 * expit(-6 * (LOSS - 1.9))
    assert not fit_sigmoid(LOSS, clean + 0.02 * random.normal(size=96), -1).note
    # A straight line sits on the bound of the slope and is as good a reference as any.
    assert not fit_sigmoid(LOSS, 3.0 + 0.4 * LOSS, 1).note


def test_a_step_is_doubted():
    assert "step" in fit_sigmoid(LOSS, np.where(LOSS > 2.0, 0.2, 0.5), -1).note


def test_refits_spread_as_repeated_experiments_do():
    """The curve's error by resampling against its error over new noise, at one loss."""
    random, place = np.random.default_rng(3), np.array([2.0])
    clean = 0.1 + 0.4 * expit(-6 * (LOSS - 1.9))
    truth = [
        float(fit_sigmoid(LOSS, clean + 0.02 * random.normal(size=96), -1)(place)[0]) for _ in range(100)
    ]
    value = clean + 0.02 * random.normal(size=96)
    curve = fit_sigmoid(LOSS, value, -1)
    one = refit_sigmoid(curve, LOSS, value, np.ones((1, 96)))
    assert one(place)[0, 0] == pytest.approx(curve(place)[0], abs=1e-6)
    drawn = refit_sigmoid(curve, LOSS, value, label_weights(np.arange(96), 200, 0))(place)
    assert drawn.shape == (200, 1)
    assert drawn.std() == pytest.approx(np.std(truth), rel=0.35)
