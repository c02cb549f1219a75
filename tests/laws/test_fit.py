"""The robust fit: exact recovery and derivatives, no worse than L-BFGS-B, refusals and warnings."""

import numpy as np
import pytest
from scipy.optimize import check_grad, minimize

from smelt.errors import SmeltError
from smelt.laws.fit import DELTA, Design, SurfaceModel, fit_surface
from smelt.laws.optimise import huber, minimise
from smelt.laws.profiles import open_profiles, profile_rows
from smelt.laws.published import published_designs, published_truths
from smelt.laws.surface import PARAMETERS


def noisy(index, seed):
    design, truth = published_designs()[index], published_truths()[index]
    noise = truth.noise * np.random.default_rng(seed).normal(size=len(design))
    return design.with_loss(design.loss + noise)


def test_the_published_grid_has_the_papers_window_and_cells():
    for design in published_designs():
        compute = design.flops * design.tokens
        assert len(design) == 72
        assert len(set(design.cell)) == 12
        assert compute.min() == pytest.approx(1.3e19, rel=0.03)
        assert compute.max() == pytest.approx(2.2e21, rel=0.03)


@pytest.mark.parametrize("index", [0, 1])
def test_noiseless_losses_give_the_coefficients_back(index):
    fit = fit_surface(published_designs()[index], starts=8)
    truth = published_truths()[index].law
    for name in PARAMETERS:
        assert getattr(fit.law, name) == pytest.approx(getattr(truth, name), rel=1e-6)
    assert fit.converged
    assert fit.note == ""
    assert fit.rmse < 1e-9


def objective(model, x, count):
    residual, jacobian = model(x[None], np.zeros(1, dtype=int))
    slope = np.clip(residual[0], -DELTA, DELTA)
    return huber(residual[0], DELTA).mean(), slope @ jacobian[0] / count


def test_derivatives_are_exact():
    design = noisy(0, 1)
    model = SurfaceModel(design, np.log(design.loss)[None], np.zeros(1, dtype=int))
    for x in model.starts(4, seed=5):
        error = check_grad(
            lambda p: objective(model, p, 72)[0], lambda p: objective(model, p, 72)[1], x, epsilon=1e-7
        )
        assert error < 1e-6


@pytest.mark.parametrize(("index", "seed"), [(0, 1), (1, 2)])
def test_no_start_of_scipy_finds_a_lower_objective(index, seed):
    design = noisy(index, seed)
    fit = fit_surface(design, starts=16)
    model = SurfaceModel(design, np.log(design.loss)[None], np.zeros(1, dtype=int))
    bounds = list(zip(*model.bounds(), strict=True))
    best = min(
        minimize(
            lambda x: tuple(1e6 * np.asarray(v) for v in objective(model, x, 72)),
            start,
            jac=True,
            method="L-BFGS-B",
            bounds=bounds,
            options={"maxiter": 2000, "ftol": 1e-14, "gtol": 1e-10},
        ).fun
        for start in model.starts(6, seed=9)
    )
    assert fit.objective <= best / 1e6 * (1 + 1e-9)


def test_the_optimum_depends_neither_on_the_starts_nor_on_the_order_of_the_endpoints():
    design = noisy(1, 3)
    first, second = fit_surface(design, 16, seed=0), fit_surface(design, 24, seed=11)
    order = np.random.default_rng(0).permutation(len(design))
    third = fit_surface(design.subset(order), 16, seed=0)
    for other in (second, third):
        for name in "abc":
            assert getattr(other.law, name) == pytest.approx(getattr(first.law, name), abs=1e-5)


def test_one_wild_endpoint_moves_the_robust_fit_little():
    design = published_designs()[0]
    loss = design.loss.copy()
    loss[10] += 0.5
    law = fit_surface(design.with_loss(loss), 8).law
    assert law.a == pytest.approx(published_truths()[0].law.a, rel=0.02)


def test_huber_is_quadratic_inside_and_linear_outside():
    assert huber(np.array([0.5, -2.0]), 1.0) == pytest.approx([0.125, 1.5])


def test_minimise_respects_its_box_and_reports_convergence():
    def model(x_pd, which):
        return x_pd - np.array([3.0, -1.0]), np.tile(np.eye(2), (len(x_pd), 1, 1))

    start = np.zeros((2, 2))
    solution = minimise(model, start, np.ones((2, 2)), np.array([-5.0, 0.0]), np.array([2.0, 5.0]))
    assert solution.x_pd == pytest.approx(np.array([[2.0, 0.0]] * 2))
    assert solution.converged_p.all()


def make(**changes):
    design = published_designs()[0]
    values = {name: getattr(design, name).copy() for name in design.__dataclass_fields__}
    return Design(**(values | changes))


@pytest.mark.parametrize(
    ("keep", "message"),
    [
        (lambda d: np.arange(72) < 5, "5 endpoints for 6 parameters"),
        (lambda d: d.level == 85, "1 sparsity level only"),
        (lambda d: d.scale == "200M", "1 scale only"),
        (lambda d: d.tokens == d.tokens[0], "1 token horizon only"),
    ],
)
def test_designs_that_determine_nothing_are_refused(keep, message):
    design = published_designs()[0]
    with pytest.raises(SmeltError, match=message):
        fit_surface(design.subset(keep(design)), 4)


@pytest.mark.parametrize(("name", "value"), [("flops", 1e9), ("sparsity", 0.9)])
def test_identical_budgets_are_refused(name, value):
    with pytest.raises(SmeltError, match="all endpoints have the same"):
        fit_surface(make(**{name: np.full(72, value)}), 4)


@pytest.mark.parametrize("bad", [np.nan, np.inf, 0.0, -1.0])
def test_losses_that_are_no_losses_are_named(bad):
    loss = published_designs()[0].loss.copy()
    loss[3] = bad
    with pytest.raises(SmeltError, match=f"loss contains {bad}"):
        make(loss=loss)


def test_two_horizons_are_fitted_but_not_believed():
    design = published_designs()[0]
    tokens = np.unique(design.tokens)[:2]
    fit = fit_surface(design.subset(np.isin(design.tokens, tokens)), 8)
    assert not fit.converged
    assert "2 token horizons" in fit.note
    assert "ill-conditioned" in fit.note


def test_an_exponent_on_its_bound_is_reported():
    # Losses that rise with D: no positive c describes them.
    design = published_designs()[0]
    fit = fit_surface(design.with_loss(1.5 + 0.05 * np.log(design.tokens / 1e10)), 8)
    assert not fit.converged
    assert "bound" in fit.note


def test_a_vanished_floor_is_told_but_the_surface_can_still_be_read():
    design, law = published_designs()[0], published_truths()[0].law
    floorless = law.with_columns(E=1e-9)
    loss = floorless.loss(design.flops, design.sparsity, design.tokens)
    fit = fit_surface(design.with_loss(loss), 8)
    assert fit.converged
    assert "E has vanished" in fit.note
    assert fit.rmse < 1e-3


def test_the_profile_is_lowest_at_the_optimum_and_holds_the_truth():
    design, truth = noisy(0, 4), published_truths()[0].law
    fit = fit_surface(design, 8)
    for name in "abc":
        rows = [row for row in profile_rows("baseline", design, fit) if row["exponent"] == name]
        best = min(rows, key=lambda row: row["objective"])
        assert best["value"] == pytest.approx(getattr(fit.law, name), rel=1e-6)
        assert best["statistic"] == pytest.approx(0, abs=1e-6)
        inside = [row["value"] for row in rows if row["inside"]]
        assert min(inside) - 0.05 < getattr(truth, name) < max(inside) + 0.05
        assert len(inside) < len(rows)


def test_an_exponent_near_zero_is_profiled_widely_enough_to_find_its_region():
    design, law = published_designs()[0], published_truths()[0].law
    flat = law.with_columns(b=0.01, A=law.A / 5)
    noise = 0.002 * np.random.default_rng(1).normal(size=len(design))
    loss = flat.loss(design.flops, design.sparsity, design.tokens) + noise
    changed = design.with_loss(loss)
    rows = profile_rows("baseline", changed, fit_surface(changed, 8))
    inside = [row["inside"] for row in rows if row["exponent"] == "b"]
    assert any(inside)
    assert not inside[0]
    assert not inside[-1]
    assert open_profiles(rows) == ""


def test_an_exponent_that_the_losses_leave_open_is_named():
    design = published_designs()[0]
    # Nearly no size term: its exponents can be anything.
    law = published_truths()[0].law.with_columns(A=0.05)
    noise = 0.01 * np.random.default_rng(3).normal(size=len(design))
    changed = design.with_loss(law.loss(design.flops, design.sparsity, design.tokens) + noise)
    told = open_profiles(profile_rows("baseline", changed, fit_surface(changed, 8)))
    assert told.startswith("hardly identified by its profile: a (")
    assert " c (" not in told
