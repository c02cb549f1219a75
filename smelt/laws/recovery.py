"""What the paper's own grid can tell: coverage of its intervals and certainty of its signs, by simulation."""

from __future__ import annotations

from typing import Any

import numpy as np

from smelt.laws.published import published_designs, published_truths
from smelt.laws.quantities import PAPER_BUDGETS, PAPER_WINDOW, Question
from smelt.laws.simulate import NOISES, Coverage, Truth, coverage_study, estimates, simulate_losses

COVERAGE_REPEATS, COVERAGE_DRAWS, SIGN_REPEATS = 200, 100, 500
EXPONENTS = ("a", "b", "c", "gamma")
PAPER = Question(PAPER_BUDGETS, (85, 95, 97), PAPER_WINDOW)


def recovery_tables(draws: int) -> dict[str, list[dict[str, Any]]]:
    """Return `law_coverage` of the paper's design and `law_signs`; a study of few draws repeats less."""
    repeats, inner = min(COVERAGE_REPEATS, draws), min(COVERAGE_DRAWS, draws)
    return {
        "law_coverage": paper_coverage(repeats, inner),
        "law_signs": sign_certainty(min(SIGN_REPEATS, draws)),
    }


def paper_coverage(repeats: int, draws: int, seed: int = 0) -> list[dict[str, Any]]:
    """Return rows of `law_coverage` for the paper's endpoints, coefficients and RMSE."""
    rows = []
    for noise in NOISES:
        study = coverage_study(published_designs(), published_truths(), PAPER, repeats, draws, seed, noise)
        rows.extend(coverage_rows("paper", noise, draws, study))
    return rows


def coverage_rows(design: str, noise: str, draws: int, study: dict[str, Coverage]) -> list[dict[str, Any]]:
    """Return rows of `law_coverage`, one a quantity; `design` is `paper` or `study`."""
    common = {"design": design, "noise": noise, "draws": draws}
    return [common | {"quantity": name} | result.__dict__ for name, result in study.items()]


def sign_certainty(repeats: int, seed: int = 0) -> list[dict[str, Any]]:
    """Return rows of `law_signs`: how sure the signs of table 6's differences in exponents are.

    `spread` is the standard deviation of the estimated difference when table 6 is true, `right` how often its
    sign then comes out as printed. `p_value` is how often a difference at least as large as the printed one
    appears, either way, when both architectures have the same exponents (the mean of the two).
    """
    designs, truths = published_designs(), published_truths()
    rows = []
    for noise in NOISES:
        true = _differences(designs, truths, repeats, seed, noise)
        null = _differences(designs, _shared_exponents(truths), repeats, seed + 1, noise)
        for name in EXPONENTS:
            printed = float(getattr(truths[1].law, name) - getattr(truths[0].law, name))
            rows.append(
                {
                    "exponent": name,
                    "noise": noise,
                    "printed": printed,
                    "spread": float(true[name].std(ddof=1)),
                    "right": float(np.mean(np.sign(true[name]) == np.sign(printed))),
                    "p_value": float(np.mean(np.abs(null[name]) >= abs(printed))),
                    "repeats": repeats,
                }
            )
    return rows


def _shared_exponents(truths: tuple[Truth, Truth]) -> tuple[Truth, Truth]:
    """Return truths with common exponents, A and K chosen to keep both losses in the middle of the window."""
    first, second = (truth.law for truth in truths)
    mean = {name: 0.5 * (getattr(first, name) + getattr(second, name)) for name in "abc"}
    flops, tokens, rest = 2.4e9, 8e10, 0.05
    shared = []
    for truth in truths:
        law = truth.law
        size = law.A * rest**law.b / flops**law.a
        data = law.K / tokens**law.c
        A, K = size * flops ** mean["a"] / rest ** mean["b"], data * tokens ** mean["c"]
        shared.append(Truth(law.with_columns(A=A, K=K, **mean), truth.noise))
    return shared[0], shared[1]


def _differences(designs, truths, repeats: int, seed: int, noise: str) -> dict[str, np.ndarray]:
    generator = np.random.default_rng([seed, repeats])
    losses = tuple(
        simulate_losses(design, truth, repeats, generator, noise)
        for design, truth in zip(designs, truths, strict=True)
    )
    baseline, smelt = estimates(designs, losses)
    return {name: getattr(smelt, name) - getattr(baseline, name) for name in EXPONENTS}
