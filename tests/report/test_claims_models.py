"""Verdicts about trained models and stretched intervals: the same yardstick in both directions."""

import numpy as np
import pytest
from scipy.stats import t as student

from smelt.report.claims_models import Family, judge_every_model, judge_models
from smelt.report.claims_rules import Component, judge

OPPOSITE = {"reproduced": "contradicted", "contradicted": "reproduced", "inconclusive": "inconclusive"}


def family(values, arm=0.01):
    parts = {f"run{i}": Component("q", value, value - arm, value + arm) for i, value in enumerate(values)}
    return Family("q", parts)


@pytest.mark.parametrize(
    ("values", "verdict"),
    [
        ([0.1], "inconclusive"),
        ([0.1, 0.11], "inconclusive"),
        ([0.1, 0.11, 0.12], "inconclusive"),
        ([0.1, 0.11, 0.12, 0.09], "reproduced"),
        ([0.1, 0.3, 0.2, -0.05, 0.2, 0.15], "reproduced"),
        ([0.9, 0.1, 0.1, 0.15], "inconclusive"),
        ([0.1] * 15 + [-0.9], "inconclusive"),
    ],
)
def test_a_claim_about_models_in_general_has_mirrored_verdicts(values, verdict):
    assert judge_models([family(values)]).verdict == verdict
    assert judge_models([family([-value for value in values])]).verdict == OPPOSITE[verdict]


@pytest.mark.parametrize(
    ("values", "verdict"),
    [
        ([0.1, 0.11, 0.12], "inconclusive"),
        ([-0.1, -0.11, -0.12], "inconclusive"),
        ([0.1, 0.11, 0.12, 0.09], "reproduced"),
        ([-0.1, -0.11, -0.12, -0.09], "contradicted"),
        # One model that lies far below what the others' differences explain.
        ([0.1 + 0.001 * i for i in range(15)] + [-0.9], "contradicted"),
        ([-0.9, -0.1, -0.1, -0.15], "contradicted"),
        # The mean holds, one model does not by less than the models differ.
        ([0.1, 0.3, 0.2, -0.05, 0.2, 0.15], "inconclusive"),
        # Below zero, but not by more than the documents explain.
        ([0.1, 0.11, 0.12, 0.1, -0.005], "inconclusive"),
    ],
)
def test_a_claim_about_every_model_needs_all_and_falls_with_one(values, verdict):
    finding = judge_every_model([family(values)])
    assert finding.verdict == verdict
    assert finding.component.value == pytest.approx(np.mean(np.array(values) > 0))


def test_a_model_counts_only_where_all_of_its_quantities_hold():
    finding = judge_every_model([family([0.1, 0.11, 0.12, 0.09]), family([0.3, 0.2, -0.001, 0.25])])
    assert finding.component.value == pytest.approx(3 / 4)
    assert "It holds in 3 of 4 models" in finding.reason


def test_the_mean_is_never_surer_than_the_documents_that_all_models_share():
    assert judge_models([family([0.1, 0.1, 0.1, 0.1], arm=0.2)]).verdict == "inconclusive"
    assert judge_models([family([0.1, 0.1, 0.1, 0.1], arm=0.05)]).verdict == "reproduced"


def test_no_direction_is_found_more_often_than_its_level_where_models_only_scatter():
    random = np.random.default_rng(0)
    verdicts = [judge_models([family(random.normal(size=4), arm=0.0)]).verdict for _ in range(2000)]
    for verdict in ("reproduced", "contradicted"):
        assert verdicts.count(verdict) / 2000 == pytest.approx(0.025, abs=0.011)
    every = [judge_every_model([family(random.normal(size=4), arm=0.0)]).verdict for _ in range(2000)]
    assert every.count("reproduced") / 2000 < 0.036
    # The mean or one of four models: each at 0.025.
    assert every.count("contradicted") / 2000 < 0.065


def test_t_intervals_are_stretched_by_t_quantiles():
    """Sixteen gaps of three seeds each, none truly below zero: a wrong contradiction in 2.5% of studies."""
    random, wrong = np.random.default_rng(1), 0
    quantile = student.ppf(0.975, 2)
    for _ in range(2000):
        draws = random.normal(size=(16, 3))
        arms = quantile * draws.std(axis=1, ddof=1) / np.sqrt(3)
        means = draws.mean(axis=1)
        parts = [Component("gap", m, m - a, m + a, freedom=2) for m, a in zip(means, arms, strict=True)]
        wrong += judge(parts).verdict == "contradicted"
    assert wrong / 2000 == pytest.approx(0.025, abs=0.01)
