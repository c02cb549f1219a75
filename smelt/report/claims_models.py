"""From numbers of separately trained models to verdicts: `claims_rules.MODELS_RULE` (claims C16 to C22)."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from statistics import mean, stdev

from scipy.stats import t as student

from smelt.report.claims_rules import (
    CONTRADICTED,
    INCONCLUSIVE,
    MIN_MODELS,
    REPRODUCED,
    Component,
    Finding,
    judge,
    not_measured,
    sentence,
)

ALPHA = 0.025


@dataclass(frozen=True)
class Family:
    """One quantity in separately trained models.

    Attributes:
        label: the quantity, as a reader should see it.
        parts: by model, its number with an interval over documents.
    """

    label: str
    parts: dict[str, Component]

    def margins(self) -> dict[str, float]:
        """Return each model's distance from the threshold on the side of the claim."""
        return {run: part.sign * (part.value - part.threshold) for run, part in self.parts.items()}

    def mean(self) -> Component:
        """Return the mean over models with its t interval, or without one for too few models."""
        parts, count = list(self.parts.values()), len(self.parts)
        values = [part.value for part in parts]
        label = f"{self.label}, mean of {count} trained model{'s' if count > 1 else ''}"
        whole = replace(parts[0], label=label, value=mean(values), low=None, high=None, freedom=count - 1)
        if count < MIN_MODELS:
            return replace(whole, basis=f"a verdict needs at least {MIN_MODELS} trained models")
        if any(part.margins() is None for part in parts):
            return replace(whole, basis="a model has no interval over documents")
        spread = student.ppf(1 - ALPHA, count - 1) * stdev(values) / count**0.5
        # All models are read on the same documents, whose luck a mean over models does not take away.
        arm = max(spread, mean((part.high - part.low) / 2 for part in parts))
        low, high = whole.value - arm, whole.value + arm
        return replace(whole, low=low, high=high, basis="t interval over separately trained models")

    def counterexamples(self, tests: int) -> list[str]:
        """Return the models below zero by more than the others differ, each tested at 0.025 / `tests`."""
        found, margins = [], self.margins()
        if len(margins) < MIN_MODELS:
            return found
        for run, value in margins.items():
            others = [margin for name, margin in margins.items() if name != run]
            arm = student.ppf(1 - ALPHA / tests, len(others) - 1) * stdev(others)
            ends = self.parts[run].margins()
            if ends is not None and ends[2] < 0 and value + arm < 0:
                found.append(run)
        return found


def judge_models(families: Sequence[Family]) -> Finding:
    """Judge a claim about trained models in general: the mean of every family decides."""
    if not all(family.parts for family in families):
        return not_measured("Not measured: the study has no trained model that this claim is about.")
    return judge([family.mean() for family in families])


def judge_every_model(families: Sequence[Family]) -> Finding:
    """Judge a claim about every cell; the value is the share of models in which all quantities hold."""
    finding = judge_models(families)
    if finding.component is None:
        return finding
    runs = sorted(set().union(*(family.parts for family in families)))
    margins = [family.margins() for family in families]
    held = [run for run in runs if all(margin.get(run, 0.0) > 0 for margin in margins)]
    shown = Component(
        f"the share of {len(runs)} trained models in which it holds", len(held) / len(runs), None, None
    )
    shown = replace(shown, basis=finding.component.basis, doubt=finding.component.doubt)
    tally = f"It holds in {len(held)} of {len(runs)} models."
    tests = sum(len(family.parts) for family in families)
    against = {run: family.label for family in families for run in family.counterexamples(tests)}
    if finding.verdict != CONTRADICTED and against:
        run, label = next(iter(against.items()))
        reason = f"{label} of {run} lies below its threshold by more than the other models differ"
        return Finding(CONTRADICTED, f"{sentence(reason)} {tally}", shown)
    if finding.verdict == REPRODUCED and len(held) < len(runs):
        return Finding(INCONCLUSIVE, f"The means hold, but not every model does. {tally}", shown)
    return Finding(finding.verdict, f"{finding.reason} {tally}", shown)
