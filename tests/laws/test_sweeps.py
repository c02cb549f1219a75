"""Sweeps and controls: doubt at the edges, noise of one run, pairing by seed, stronger Baselines."""

import numpy as np
import pytest

from smelt.laws.ablations import ablation_tables
from smelt.laws.inputs import load_results
from smelt.laws.noise import SCATTER_BASIS, SEEDS_BASIS, run_spread
from smelt.laws.referees import referee_tables
from smelt.laws.surfaces import SurfaceAnalysis

UNFITTED = SurfaceAnalysis((), reason="not fitted")


class Analysis:
    """Surfaces whose scatter is 0.03 nats for the Baseline and 0.04 for SMELT, with 18 degrees of freedom."""

    class _Fit:
        n = 24

        def __init__(self, noise):
            self.rmse = noise * np.sqrt(18 / 24)

    fits = (_Fit(0.03), _Fit(0.04))


@pytest.fixture
def made(lab, tmp_path):
    """Return tables of a study with the planted losses of its last horizon, by run."""

    def build(make, losses, analysis=UNFITTED, name="grid", seeds=1, skip=()):
        study = lab(name, seeds=seeds)
        last = study.study.training.horizons[-1]
        planted = {run: losses(point) for run, point in study.points.items()}
        study.write(skip=skip, losses={(run, last): loss for run, loss in planted.items()})
        tables = make(load_results(study.study, tmp_path, partial=True), analysis)
        contrasts = {row["contrast"]: row for row in tables["law_contrasts"]}
        return contrasts, {row["analysis"]: row for row in tables["law_notes"]}

    return build


def best_at(looped, baseline):
    """Losses whose sweeps of physical depth are lowest at the given depths."""

    def loss(point):
        return 2.0 + 0.1 * abs(point.layers - (looped if point.loop_count > 1 else baseline))

    return loss


@pytest.mark.parametrize(
    ("looped", "baseline", "doubted"),
    [
        (6, 4, ()),
        (8, 4, ()),  # best at the deepest looped point: beyond it the shift would only be larger
        (8, 8, ("Baseline",)),  # both fall to the end of the sweep: the shift is the grid's
        (6, 3, ("Baseline",)),
        (3, 4, ("looped",)),
        (3, 8, ("looped", "Baseline")),
    ],
)
def test_a_best_depth_at_the_edge_of_its_sweep_is_doubted(made, looped, baseline, doubted):
    found, _ = made(ablation_tables, best_at(looped, baseline), Analysis())
    row = found["depth_shift:85"]
    # Losses differ by three standard deviations a layer, so the interval exists whatever it is worth.
    assert row["low"] <= row["value"] <= row["high"]
    assert ("edge" in row["note"]) == bool(doubted)
    for side in ("looped", "Baseline"):
        assert (side in row["note"]) == (side in doubted)


def test_the_spread_of_one_run_is_right_under_effects_of_points_and_seeds():
    rng = np.random.default_rng(0)
    noise, squares = 0.01, []
    for _ in range(400):
        sweeps = []
        for points in (4, 3):
            losses_ps = (
                rng.normal(0, 1, (points, 1)) + rng.normal(0, 0.5, 3) + rng.normal(0, noise, (points, 3))
            )
            sweeps.append({point: dict(enumerate(row)) for point, row in enumerate(losses_ps)})
        spread = run_spread(sweeps, UNFITTED)
        assert (spread.freedom, spread.basis) == (3 * 2 + 2 * 2, SEEDS_BASIS)
        squares.append(spread.deviation**2)
    # 4,000 degrees of freedom in all: the mean square is known to 2.2%.
    assert np.mean(squares) == pytest.approx(noise**2, rel=0.07)


def test_only_seeds_that_all_points_have_count_towards_the_spread():
    sweep = {3: {0: 2.0, 1: 2.2, 5: 9.0}, 4: {1: 2.1, 0: 1.8}}
    spread = run_spread([sweep], UNFITTED)
    # Residuals of the two by two table are +-0.025.
    assert (spread.freedom, spread.deviation) == (1, pytest.approx(0.05))


def test_with_one_seed_one_run_has_half_the_variance_of_a_difference():
    spread = run_spread([{3: {0: 2.0}, 4: {0: 2.1}}], Analysis())
    assert spread.deviation == pytest.approx(0.05 / np.sqrt(2))
    assert (spread.freedom, spread.basis) == (18, SCATTER_BASIS)
    assert run_spread([{3: {0: 2.0}, 4: {0: 2.1}}], UNFITTED).deviation is None


def test_the_interval_of_the_shift_grows_with_the_spread_over_seeds(made):
    rows = []
    for size in (1e-4, 0.1):

        def losses(point, size=size):
            return best_at(6, 4)(point) + size * (-1) ** (point.layers // 2 + point.seed)

        found, _ = made(ablation_tables, losses, seeds=2)
        rows.append(found["depth_shift:85"])
    sure, unsure = rows
    assert sure["basis"] == unsure["basis"] == SEEDS_BASIS
    assert sure["low"] == sure["value"] == sure["high"] == 5
    assert unsure["value"] == 5
    assert unsure["low"] < 5 < unsure["high"]


def test_margins_pair_runs_of_the_same_seed_whatever_is_missing(made):
    def losses(point):
        # A seed moves every run alike by far more than the margin.
        return 2.0 + point.seed + 0.1 * (point.group == "span")

    skip = ("s-s85-smelt", "s-s85-span2-seed2")
    found, _ = made(ablation_tables, losses, name="tiny", seeds=4, skip=skip)
    row = found["span_margin:85:2"]
    assert (row["value"], row["n"]) == (pytest.approx(0.1), 2)
    assert (row["low"], row["high"]) == (pytest.approx(0.1), pytest.approx(0.1))


def referee_losses(best_depth):
    def losses(point):
        loss = 2.0 + point.seed
        if point.arch == "control":
            return loss + {85: 0.26, 95: 0.04}[point.sparsity]
        if point.arch == "baseline" and point.sparsity == 85:
            return loss - 0.3 + 0.1 * abs(point.layers - best_depth)
        return loss

    return losses


def test_stronger_baselines_are_compared_with_smelt_of_the_same_cell_and_seed(made):
    found, notes = made(referee_tables, referee_losses(6), seeds=2, skip=("B-s95-control",))
    assert found.keys() == {
        "loss_gap_control:B-s85",
        "loss_gap_control:B-s95",
        "loss_gap_best_depth:B-s85",
    }
    assert found["loss_gap_control:B-s85"]["value"] == pytest.approx(0.26)
    assert found["loss_gap_control:B-s85"]["n"] == 2
    # The first seed of this control is missing; the second is compared with SMELT's second.
    assert (found["loss_gap_control:B-s95"]["value"], found["loss_gap_control:B-s95"]["n"]) == (
        pytest.approx(0.04),
        1,
    )
    best = found["loss_gap_best_depth:B-s85"]
    assert best["value"] == pytest.approx(-0.3)
    assert "Baseline of 6 layers, the best of 3, 4, 6, 8, chosen by the same losses" in best["basis"]
    assert best["note"] == ""
    assert all(notes[name]["ok"] for name in ("loss_gap_control", "loss_gap_best_depth"))


def test_the_gap_to_the_best_depth_is_measured_against_the_scatter_with_one_seed(made):
    found, _ = made(referee_tables, referee_losses(3), Analysis())
    row = found["loss_gap_best_depth:B-s85"]
    # t quantile with 18 degrees of freedom times the 0.05 nats of a difference.
    assert row["high"] - row["value"] == pytest.approx(2.1009 * 0.05, rel=1e-3)
    assert "3 layers" in row["note"]
    assert "edge" in row["note"]


def test_absent_controls_are_named(made):
    skip = ("B-s85-control", "B-s95-control", "B-s85-flat3", "B-s85-flat6")
    found, notes = made(referee_tables, referee_losses(6), skip=skip)
    assert found.keys() == {"loss_gap_best_depth:B-s85"}
    assert "B-s85 lacks its control" in notes["loss_gap_control"]["reason"]
    assert "B-s85-flat6" in found["loss_gap_best_depth:B-s85"]["note"]
    assert not notes["loss_gap_best_depth"]["ok"]


def test_without_the_smelt_run_there_is_no_gap(made):
    found, notes = made(referee_tables, referee_losses(6), skip=("B-s85-smelt", "B-s95-smelt"))
    assert not found
    assert "B-s85 lacks its SMELT run" in notes["loss_gap_best_depth"]["reason"]
