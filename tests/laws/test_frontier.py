"""Closed forms of the frontier, against the printed tables 7 and 8 and against a search."""

import csv

import numpy as np
import pytest
from scipy.optimize import minimize_scalar

from smelt.errors import SmeltError
from smelt.files import ROOT
from smelt.laws import (
    Surface,
    ce_gain,
    frontier_loss,
    frontier_optimum,
    published_surface,
    tokens_per_parameter,
)

BASELINE, SMELT = published_surface("baseline")[0], published_surface("smelt")[0]


def printed(name):
    with open(ROOT / "data" / "paper" / name, newline="", encoding="utf-8") as stream:
        return list(csv.DictReader(stream))


@pytest.mark.parametrize(
    "row", printed("table07_ce_gain.csv"), ids=lambda r: f"{r['budget_flops']}-{r['sparsity']}"
)
def test_table_7_follows_from_table_6(row):
    gain = 100 * ce_gain(SMELT, BASELINE, float(row["budget_flops"]), float(row["sparsity"]))
    assert gain == pytest.approx(float(row["ce_gain_pct"]), abs=0.15)


@pytest.mark.parametrize("row", printed("table08_tpp.csv"), ids=lambda r: f"{r['arch']}-{r['sparsity']}")
def test_table_8_follows_from_table_6(row):
    law = {"baseline": BASELINE, "smelt": SMELT}[row["arch"]]
    assert tokens_per_parameter(law, 1e21, float(row["sparsity"])) == pytest.approx(float(row["tpp"]), abs=1)


def test_frontier_exponents_are_those_of_section_5():
    assert BASELINE.gamma == pytest.approx(0.237, abs=5e-4)
    assert SMELT.gamma == pytest.approx(0.250, abs=5e-4)


@pytest.mark.parametrize("law", [BASELINE, SMELT], ids=["baseline", "smelt"])
@pytest.mark.parametrize("compute", [1e18, 1e21, 1e24])
def test_optimum_is_the_minimum_found_by_search(law, compute):
    def loss(log_flops):
        return law.loss(np.exp(log_flops), 0.95, compute / np.exp(log_flops))

    found = minimize_scalar(loss, bounds=(10, 40), method="bounded", options={"xatol": 1e-10})
    flops, tokens = frontier_optimum(law, compute, 0.95)
    assert flops * tokens == pytest.approx(compute)
    assert np.log(flops) == pytest.approx(found.x, abs=1e-3)
    assert frontier_loss(law, compute, 0.95) <= found.fun + 1e-12


def test_gain_inverts_the_reference_frontier():
    gain = float(ce_gain(SMELT, BASELINE, 1e21, 0.95))
    assert frontier_loss(BASELINE, 1e21 / (1 - gain), 0.95) == pytest.approx(frontier_loss(SMELT, 1e21, 0.95))


def test_gain_over_itself_is_zero_and_swapping_the_two_turns_the_sign():
    assert ce_gain(SMELT, SMELT, 1e21, 0.85) == pytest.approx(0, abs=1e-12)
    assert ce_gain(BASELINE, SMELT, 1e21, 0.85) < 0 < ce_gain(SMELT, BASELINE, 1e21, 0.85)


def test_gain_is_one_where_the_reference_never_gets_there():
    better = BASELINE.with_columns(E=BASELINE.E - 0.5)
    assert ce_gain(better, BASELINE, 1e30, 0.95) == 1.0


def test_arrays_of_draws_give_the_values_of_single_surfaces():
    both = Surface(**{k: np.array([v, getattr(SMELT, k)]) for k, v in BASELINE.columns().items()})
    expected = [float(tokens_per_parameter(law, 1e20, 0.95)) for law in (BASELINE, SMELT)]
    assert tokens_per_parameter(both, 1e20, 0.95) == pytest.approx(expected)


def test_an_unknown_architecture_is_named():
    with pytest.raises(SmeltError, match="'mamba'.*baseline, smelt"):
        published_surface("mamba")
