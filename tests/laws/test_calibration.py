"""The monotone sigmoid from loss to a benchmark."""

import numpy as np
import pytest
from scipy.special import expit

from smelt.errors import SmeltError
from smelt.laws.calibration import fit_sigmoid

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
