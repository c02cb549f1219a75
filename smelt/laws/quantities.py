"""What the paper reads off two fitted surfaces, computed for point estimates, draws and simulations alike."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

import numpy as np

from smelt.laws.frontier import ce_gain, tokens_per_parameter
from smelt.laws.surface import Surface

# The paper's window in training FLOPs and the budgets of table 7, of which table 8 uses the second.
PAPER_WINDOW = (1.3e19, 2.2e21)
PAPER_BUDGETS = (1e20, 1e21, 1e22)


@dataclass(frozen=True)
class Question:
    """Budgets in training FLOPs (low, high, extrapolated) and sparsity levels in percent.

    A level is a label; `measured` holds the sparsity that its cells really have, as a fraction, where that
    is known. At small scales the two differ by more than a percent.
    """

    budgets: tuple[float, ...]
    sparsities: tuple[int, ...]
    window: tuple[float, float]
    measured: Mapping[int, float] = field(default_factory=dict)

    def fraction(self, percent: int) -> float:
        """Return the sparsity as a fraction at which a level is evaluated: its cells' mean where known."""
        return self.measured.get(percent, percent / 100.0)

    @property
    def main_budget(self) -> float:
        """The budget of table 8 and of figure 10: the higher one inside the window."""
        return self.budgets[1]

    def extrapolated(self, budget: float) -> bool:
        """Return whether `budget` lies outside the window of the endpoints."""
        return not self.window[0] <= budget <= self.window[1]


def choose_question(
    compute: np.ndarray, sparsities: list[int], measured: Mapping[int, float] | None = None
) -> Question:
    """Return the paper's budgets where the endpoints' window holds its two inner ones, else their analogues.

    The analogues lie at the same relative positions of the study's own logarithmic window, to two digits.
    """
    low, high = float(compute.min()), float(compute.max())
    if low <= PAPER_BUDGETS[0] and high >= PAPER_BUDGETS[1]:
        budgets = PAPER_BUDGETS
    else:
        start, width = np.log(PAPER_WINDOW[0]), np.log(PAPER_WINDOW[1] / PAPER_WINDOW[0])
        places = [(np.log(budget) - start) / width for budget in PAPER_BUDGETS]
        budgets = tuple(float(f"{low * (high / low) ** place:.1e}") for place in places)
    return Question(budgets, tuple(sorted(sparsities)), (low, high), measured or {})


def quantities(baseline: Surface, smelt: Surface, question: Question) -> dict[str, np.ndarray]:
    """Return each quantity by name; arrays where the surfaces hold draws.

    `ce_gain:<budget>:<S>` fractions; `gain_growth:<S>` gain at the second budget minus the first;
    `tpp:<arch>:<S>` tokens per parameter at the main budget and `tpp_ratio:<S>`, SMELT over Baseline;
    `exponent:<a|b|c|gamma>` SMELT minus Baseline.
    """
    values: dict[str, np.ndarray] = {}
    for percent in question.sparsities:
        sparsity = question.fraction(percent)
        for budget in question.budgets:
            values[f"ce_gain:{budget:g}:{percent}"] = ce_gain(smelt, baseline, budget, sparsity)
        first, second = (values[f"ce_gain:{budget:g}:{percent}"] for budget in question.budgets[:2])
        values[f"gain_growth:{percent}"] = second - first
        for arch, law in (("baseline", baseline), ("smelt", smelt)):
            values[f"tpp:{arch}:{percent}"] = tokens_per_parameter(law, question.main_budget, sparsity)
        values[f"tpp_ratio:{percent}"] = values[f"tpp:smelt:{percent}"] / values[f"tpp:baseline:{percent}"]
    for name in ("a", "b", "c", "gamma"):
        values[f"exponent:{name}"] = getattr(smelt, name) - getattr(baseline, name)
    return values
