"""The rules that turn estimates with intervals into verdicts; the same for every study.

They changed twice. After a first look at smoke, whose models are too short to contradict anything, a
contradiction about trained models had to hold across models; a review then found that `reproduced` had been
left with the easier yardstick, and both directions got the same one, before any study of nano's scale ran.

A claim is a set of components that must all hold. Each component is a number whose sign decides, with a 95%
interval, written so that positive supports the claim.

- `reproduced`: every component's interval lies above zero. Each is tested at its own 95%, because all of them
  must pass (an intersection-union test has the level of its parts).
- `contradicted`: some component's interval lies below zero after its arms are stretched for the number of
  components (Bonferroni, by the quantiles of its own distribution), because one failure among many is
  expected by chance.
- `inconclusive`: anything else, and always where a component has no interval or one without width, where the
  fit behind it is not identified, or where a part of what the claim is about is absent.
- `not measured`: the numbers are absent.

Numbers of separately trained models become components by `MODELS_RULE`.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from math import inf

from scipy.stats import t as student

REPRODUCED, CONTRADICTED = "reproduced", "contradicted"
INCONCLUSIVE, NOT_MEASURED = "inconclusive", "not measured"
VERDICTS = (REPRODUCED, CONTRADICTED, INCONCLUSIVE, NOT_MEASURED)
MIN_MODELS = 4
MODELS_RULE = (
    "One yardstick serves both directions: the t interval of the mean over at least four separately trained "
    "models, never narrower than their own intervals over documents are on average, must lie above zero for "
    "`reproduced` and below zero for `contradicted`. A claim about every cell needs every model above zero "
    "besides, and falls with one model that lies below zero by more than the others differ among themselves "
    "(t quantile, Bonferroni)."
)


class Unmeasured(Exception):
    """The numbers for a claim are absent; the message says why, in one sentence."""


@dataclass(frozen=True)
class Component:
    """One testable part of a claim.

    Attributes:
        label: what it is, as a reader should see it.
        value, low, high: estimate and 95% interval in its own unit; no interval is None, None.
        threshold: the component holds above it (`sign` 1) or below it (`sign` -1).
        doubt: why the number should not be believed, or an empty string.
        basis: what the interval covers.
        freedom: degrees of freedom of a t interval; None for one without (bootstrap, binomial).
    """

    label: str
    value: float
    low: float | None
    high: float | None
    threshold: float = 0.0
    sign: int = 1
    doubt: str = ""
    basis: str = ""
    freedom: int | None = None

    def margins(self) -> tuple[float, float, float] | None:
        """Return estimate, lower and upper end as distances on the side of the claim, or None."""
        if self.low is None or self.high is None:
            return None
        ends = sorted(self.sign * (end - self.threshold) for end in (self.low, self.high))
        return self.sign * (self.value - self.threshold), ends[0], ends[1]


@dataclass(frozen=True)
class Finding:
    """A verdict with the component that is hardest to establish and the reason in one sentence."""

    verdict: str
    reason: str
    component: Component | None


def not_measured(reason: str) -> Finding:
    """Return the finding for absent numbers."""
    return Finding(NOT_MEASURED, reason, None)


def judge(components: Sequence[Component]) -> Finding:
    """Apply the rule of this module to all components of one claim."""
    if not components:
        return not_measured("Not measured: the study has no run or endpoint that this claim is about.")
    weakest = min(components, key=_strength)
    doubted = [part for part in components if part.doubt]
    if doubted:
        return Finding(INCONCLUSIVE, sentence(doubted[0].doubt), doubted[0])
    blind = [part for part in components if part.margins() is None]
    if blind:
        why = f" ({blind[0].basis})" if blind[0].basis else ""
        return Finding(INCONCLUSIVE, sentence(f"{blind[0].label} has no interval{why}"), blind[0])
    flat = [part for part in components if part.low == part.high]
    if flat:
        reason = f"the interval of {flat[0].label} has no width: its units are all alike and tell no spread"
        return Finding(INCONCLUSIVE, sentence(reason), flat[0])
    count = len(components)
    held = sum(part.margins()[1] > 0 for part in components)
    tally = f"; {held} of {count} parts hold" if count > 1 else ""
    failed = [part for part in components if _upper_after_stretch(part, count) < 0]
    if failed:
        worst = min(failed, key=_strength)
        return Finding(CONTRADICTED, _tell(worst, "lies on the other side", tally), worst)
    if held == count:
        return Finding(REPRODUCED, _tell(weakest, "holds with its whole interval", tally), weakest)
    what = "cannot be told from its threshold"
    if weakest.margins()[2] < 0:
        what = "lies on the other side, but among so many parts one may by chance"
    return Finding(INCONCLUSIVE, _tell(weakest, what, tally), weakest)


def partial(finding: Finding, missing: str, every: bool = False) -> Finding:
    """Return the finding, or that it is open since a part of the claim is absent: `missing` says which.

    A claim about every part cannot stand without one of them, but it still falls with one.
    """
    open_to = (REPRODUCED,) if every else (REPRODUCED, CONTRADICTED)
    if missing and finding.verdict in open_to:
        reason = f"what there is would be called {finding.verdict}, but {missing}"
        return Finding(INCONCLUSIVE, sentence(reason), finding.component)
    return finding


def judge_band(components: Sequence[Component], low: float, high: float) -> Finding:
    """Test that every component lies inside `low`..`high`: an equivalence claim.

    Reproduced when all intervals lie inside, contradicted when one lies wholly outside after stretching.
    """
    sides = []
    for part in components:
        for threshold, sign in ((low, 1), (high, -1)):
            sides.append(replace(part, threshold=threshold, sign=sign))
    return judge(sides)


def judge_share(component: Component, paper_share: float, count: int, unit: str) -> Finding:
    """Test a share of wins against one half, and its agreement with the paper's share.

    `component` has threshold 0.5. Wins in more than half are `reproduced` only where the interval reaches the
    paper's share; else the direction agrees but the extent does not, which is `inconclusive`.
    """
    finding = judge([component])
    if finding.verdict == REPRODUCED and component.high < paper_share:
        reason = (
            f"SMELT wins more often than not ({component.value:.0%} of {count} {unit}) but less often than "
            f"in the paper ({paper_share:.0%})"
        )
        return Finding(INCONCLUSIVE, sentence(reason), component)
    return finding


def _strength(part: Component) -> float:
    """Return the margin in units of the interval's lower arm; the least is the hardest to establish."""
    margins = part.margins()
    if margins is None:
        return float("-inf")
    value, low, _ = margins
    return value / max(abs(value - low), 1e-12)


def _upper_after_stretch(part: Component, count: int) -> float:
    value, low, high = part.margins()
    freedom = inf if part.freedom is None else part.freedom
    factor = student.ppf(1 - 0.025 / count, freedom) / student.ppf(0.975, freedom)
    centre = min(max(value, low), high)
    return centre + factor * (high - centre)


def _tell(part: Component, what: str, tally: str) -> str:
    wanted = "above" if part.sign > 0 else "below"
    return sentence(
        f"{part.label} is {part.value:.4g} [{part.low:.4g}, {part.high:.4g}] and must be {wanted} "
        f"{part.threshold:g}: it {what}{tally}"
    )


def sentence(text: str) -> str:
    """Return the text with a capital letter and a full stop."""
    return text[0].upper() + text[1:] + ("" if text.endswith(".") else ".")
