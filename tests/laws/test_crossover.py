"""Where the gap changes sign: planted crossovers, their intervals, and studies that have none."""

import numpy as np
import pytest

from smelt.laws.crossover import CELLS_BASIS, crossover_tables
from smelt.laws.inputs import Results
from smelt.laws.noise import SEEDS_BASIS
from smelt.study import load_study, run_points
from tests.laws.conftest import STUDIES, TOKENS

STUDY = load_study(str(STUDIES / "grid.yaml"))
HORIZONS = STUDY.training.horizons
LOG_TOKENS = np.log([TOKENS[horizon] for horizon in HORIZONS])
# Tokens at which the planted gap, linear in their logarithm, changes sign; nats for each factor e of tokens.
PLACE, SLOPE = 8e10, 0.03
TRUTH = SLOPE * (LOG_TOKENS - np.log(PLACE))


def results(gap_of, seeds=1, keep=lambda point, horizon: True):
    """Results whose pairs have the gaps `gap_of(cell, seed)` [h], Baseline minus SMELT."""
    points = {run: point for run, point in run_points(STUDY, seeds=seeds).items() if point.group == "grid"}
    runs, ends = {}, {}
    for run, point in points.items():
        runs[run] = {"run": run, "cell": point.cell, "scale": point.scale, "sparsity": point.sparsity}
        runs[run] |= {"seed": point.seed, "arch": point.arch, "grouping": "grid", "baseline": point.baseline}
        gap_h = gap_of(point.cell, point.seed) if point.arch == "smelt" else np.zeros(len(HORIZONS))
        for horizon, gap in zip(HORIZONS, gap_h, strict=True):
            if keep(point, horizon):
                ends[run, horizon] = {"val_loss": 3.0 - float(gap), "tokens": int(TOKENS[horizon])}
    return Results(STUDY, runs, [], ends, {}, {})


def places(tables):
    return {row["subset"]: row for row in tables["crossovers"]}


def test_a_planted_crossover_is_found_between_horizons_with_its_direction():
    offsets = {f"{scale}-s{level}": 0.001 * i for scale in "ABCD" for i, level in enumerate((0, 85, 95, 97))}
    shift = np.mean(list(offsets.values()))
    tables = crossover_tables(results(lambda cell, seed: TRUTH + offsets[cell] - shift))
    found = places(tables)
    assert found.keys() == {"scale:A", "scale:B", "scale:C", "scale:D", "all"}
    for row in found.values():
        assert row["tokens"] == pytest.approx(PLACE, rel=1e-3)
        assert row["low"] < PLACE < row["high"]
        assert (row["changes"], row["ahead_first"], row["ahead_last"]) == (1, False, True)
        assert (row["basis"], row["window_high"]) == (CELLS_BASIS, pytest.approx(2.16e11))
    assert (found["all"]["cells"], found["scale:B"]["cells"]) == (16, 4)
    curve = {row["horizon"]: row for row in tables["gap_curves"] if row["subset"] == "all"}
    assert [curve[horizon]["gap"] for horizon in HORIZONS] == pytest.approx(TRUTH)
    assert curve[HORIZONS[0]]["freedom"] == 15


@pytest.mark.parametrize(("spread", "excluded"), [(0.0001, True), (0.03, False)])
def test_without_a_change_of_sign_zero_may_still_not_be_excluded(spread, excluded):
    offset = {"0": 1, "85": -1, "95": 0.5, "97": -0.5}
    rising = np.linspace(0.002, 0.2, len(HORIZONS))
    tables = crossover_tables(results(lambda cell, seed: rising + spread * offset[cell.split("-s")[1]]))
    for row in places(tables).values():
        assert (row["tokens"], row["changes"], row["ahead_first"], row["ahead_last"]) == (None, 0, True, True)
        if excluded:
            assert (row["low"], row["high"]) == (None, None)
        else:
            # With few tokens the mean gap is no larger than what cells differ by, with many it is.
            assert row["low"] == row["window_low"]
            assert row["window_low"] < row["high"] < row["window_high"]


def test_the_interval_of_a_crossover_over_seeds_holds_the_truth_as_often_as_it_says():
    random = np.random.default_rng(1)

    def noisy(cell, seed):
        # A run's horizons share its trunk; the steps between horizons are the same share of the whole window.
        return TRUTH + random.normal(0, 0.012) + random.normal(0, 0.008, len(HORIZONS))

    scales, whole = [], []
    for _ in range(60):
        found = places(crossover_tables(results(noisy, seeds=2)))
        assert found["scale:A"]["basis"] == SEEDS_BASIS
        scales += [
            found[f"scale:{scale}"]["low"] <= PLACE <= found[f"scale:{scale}"]["high"] for scale in "ABCD"
        ]
        whole.append(found["all"]["low"] <= PLACE <= found["all"]["high"])
    assert 0.91 < np.mean(scales) <= 1.0
    assert 0.88 < np.mean(whole) <= 1.0


def test_cells_without_every_horizon_are_left_out_and_named():
    def keep(point, horizon):
        return point.cell != "B-s95" or horizon != HORIZONS[2]

    tables = crossover_tables(results(lambda cell, seed: TRUTH, keep=keep))
    assert (places(tables)["all"]["cells"], places(tables)["scale:B"]["cells"]) == (15, 3)
    (note,) = tables["law_notes"]
    assert note == {"analysis": "crossover", "ok": False, "reason": "B-s95 has no pair at every horizon"}


def test_a_study_with_no_whole_pair_says_so():
    tables = crossover_tables(
        results(lambda cell, seed: TRUTH, keep=lambda point, horizon: horizon < HORIZONS[-1])
    )
    assert tables.keys() == {"law_notes"}
    assert "A-s0 has no pair at every horizon" in tables["law_notes"][0]["reason"]


def test_a_scale_with_two_cells_and_one_seed_has_a_place_without_an_interval():
    def keep(point, horizon):
        return point.scale != "A" or point.sparsity in (0, 85)

    row = places(crossover_tables(results(lambda cell, seed: TRUTH, keep=keep)))["scale:A"]
    assert row["tokens"] == pytest.approx(PLACE, rel=1e-3)
    assert (row["low"], row["high"], row["basis"]) == (None, None, "")
