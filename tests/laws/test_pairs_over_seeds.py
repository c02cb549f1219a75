"""Claim C1 with two training seeds: differences on identical tokens, their pooled spread, the verdict."""

import itertools

import numpy as np
import pytest

from smelt.laws.inputs import Results
from smelt.laws.noise import SEEDS_BASIS, difference_spread, margin_spread
from smelt.laws.pairs import gap_tables
from smelt.laws.surfaces import SurfaceAnalysis
from smelt.report.claims_evidence import Evidence
from smelt.report.claims_scaling import lower_loss
from smelt.study import load_study, run_points
from tests.laws.conftest import STUDIES

UNFITTED = SurfaceAnalysis((), reason="not fitted")
REPEATS, VERDICTS = 200, 40
# Spread in nats of a single run's own luck, and of what the order of the tokens does to a whole pair.
OWN, ORDER = 0.02, 0.3
STUDY = load_study(str(STUDIES / "grid.yaml"))
POINTS = {run: point for run, point in run_points(STUDY, seeds=2).items() if point.group == "grid"}
RUNS = {
    run: {
        "run": run,
        "cell": point.cell,
        "scale": point.scale,
        "sparsity": point.sparsity,
        "seed": point.seed,
    }
    | {"arch": point.arch, "grouping": point.group, "baseline": point.baseline}
    for run, point in POINTS.items()
}
CELLS = sorted({point.cell for point in POINTS.values()})


def simulated(random, gaps, shared=0.0):
    """Results at the last horizon with the given gaps by cell; `shared` moves all gaps of a seed together."""
    order = {(cell, seed): random.normal(0, ORDER) for cell in CELLS for seed in range(2)}
    together = [random.normal(0, shared) for _ in range(2)]
    ends = {}
    for run, point in POINTS.items():
        loss = 3.0 + order[point.cell, point.seed] + random.normal(0, OWN)
        if point.arch == "smelt":
            loss += together[point.seed] - gaps[point.cell]
        ends[run, STUDY.training.horizons[-1]] = {"val_loss": loss}
    return Results(STUDY, RUNS, [], ends, {}, {})


def contrasts(results):
    return {row["contrast"]: row for row in gap_tables(results, UNFITTED)["law_contrasts"]}


def verdict(results):
    evidence = Evidence(STUDY, "nowhere")
    evidence.__dict__ |= {"contrasts": contrasts(results), "notes": {}}
    return lower_loss(evidence).verdict


@pytest.mark.parametrize("shared", [0.0, 0.02])
def test_intervals_of_the_gaps_hold_the_truth_as_often_as_they_say(shared):
    random = np.random.default_rng(1)
    gaps = dict(zip(CELLS, np.linspace(-0.1, 0.1, len(CELLS)), strict=True))
    held, widths = [], []
    for _ in range(REPEATS):
        rows = contrasts(simulated(random, gaps, shared))
        assert {row["basis"] for row in rows.values()} == {SEEDS_BASIS}
        held += [
            rows[f"loss_gap:{cell}"]["low"] < gap < rows[f"loss_gap:{cell}"]["high"]
            for cell, gap in gaps.items()
        ]
        widths.append(rows[f"loss_gap:{CELLS[0]}"]["high"] - rows[f"loss_gap:{CELLS[0]}"]["low"])
    assert 0.90 < np.mean(held) < 0.97
    # Sixteen cells lend each other their spread: one cell alone would have a t quantile of 12.7, and without
    # the pairing the order of the tokens would be in it.
    if not shared:
        assert np.median(widths) / 2 == pytest.approx(2.13 * OWN, rel=0.1)


@pytest.mark.parametrize(
    ("first", "others", "expected", "least", "most"),
    [
        (0.12, 0.12, "reproduced", 0.97, 1.0),
        (-0.12, -0.12, "contradicted", 0.97, 1.0),
        # A single cell on the other side contradicts a claim about every cell.
        (-0.12, 0.12, "contradicted", 0.97, 1.0),
        (0.0, 0.0, "inconclusive", 0.93, 1.0),
        (0.0, 0.12, "reproduced", 0.0, 0.06),
    ],
)
def test_the_verdict_on_planted_gaps_is_right(first, others, expected, least, most):
    random = np.random.default_rng(2)
    gaps = dict.fromkeys(CELLS, others) | {CELLS[0]: first}
    found = [verdict(simulated(random, gaps)) for _ in range(VERDICTS)]
    assert least <= np.mean([one == expected for one in found]) <= most


def test_groups_that_move_together_tell_less_than_their_number():
    alone = {0: {0: 0.3, 1: 0.1}}
    assert difference_spread(alone, UNFITTED).freedom == 1
    alike = {group: {0: 0.3, 1: 0.1} for group in range(9)}
    assert difference_spread(alike, UNFITTED).freedom == 1
    random = np.random.default_rng(3)
    apart = {group: dict(enumerate(random.normal(size=3))) for group in range(40)}
    spread = difference_spread(apart, UNFITTED)
    assert 55 < spread.freedom <= 80
    assert spread.deviation == pytest.approx(1.0, rel=0.2)


def test_a_group_with_one_seed_lends_nothing_and_takes_nothing():
    groups = {0: {0: 0.3, 1: 0.1}, 1: {0: 0.7, 1: 0.8}, 2: {1: 9.0}}
    with_it, without = (
        difference_spread(groups, UNFITTED),
        difference_spread({0: groups[0], 1: groups[1]}, UNFITTED),
    )
    assert (with_it.deviation, with_it.freedom) == (pytest.approx(without.deviation), without.freedom)


def test_seeds_that_agree_to_the_last_digit_have_no_spread():
    groups = {group: {0: 0.1 + group / 3, 1: 0.1 + group / 3} for group in range(5)}
    assert difference_spread(groups, UNFITTED).deviation == 0


def test_margins_that_share_the_recipe_s_run_have_honest_intervals():
    random = np.random.default_rng(4)
    held = []
    for _ in range(600):
        losses_ps = random.normal(0, OWN, (5, 2)) + random.normal(0, ORDER, 2)
        sweep = {point: dict(enumerate(losses)) for point, losses in enumerate(losses_ps)}
        spread = margin_spread([sweep], UNFITTED)
        assert spread.freedom == 4
        for point, seeds in itertools.product(range(1, 5), [2]):
            ends = spread.ends(float((losses_ps[point] - losses_ps[0]).mean()), seeds)
            held.append(ends.low < 0 < ends.high)
    assert 0.93 < np.mean(held) < 0.97
