"""The analysis of sections 5: fits, draws, CE gain, TPP and the contrasts read off them, as table rows."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

import numpy as np

from smelt.errors import SmeltError
from smelt.laws.bootstrap import Draws, bootstrap, interval, widen
from smelt.laws.fit import Design, Fit, fit_surface
from smelt.laws.inputs import ARCHS, listing
from smelt.laws.profiles import open_profiles, profile_rows
from smelt.laws.quantities import Question, choose_question, quantities
from smelt.laws.recovery import coverage_rows
from smelt.laws.simulate import Coverage, Truth, coverage_study
from smelt.laws.surface import PARAMETERS, Surface

# Parquet and SQL name the exponents apart from A, E, K.
COLUMNS = dict(zip(PARAMETERS, ("E", "A", "K", "exp_a", "exp_b", "exp_c"), strict=True))
SEED = 0
BASIS = "cell bootstrap"
CALIBRATION_REPEATS = 200
CALIBRATION_DRAWS = 100
# Share of degenerate draws from which on the intervals are doubted.
MAX_DEGENERATE = 0.05


@dataclass
class SurfaceAnalysis:
    """Everything that later analyses need of the aggregate fits; `fits` is empty where none is possible."""

    designs: tuple[Design, Design]
    fits: tuple[Fit, ...] = ()
    draws: Draws | None = None
    question: Question | None = None
    coverage: dict[str, Coverage] = field(default_factory=dict)
    reason: str = ""

    @property
    def note(self) -> str:
        """Why single coefficients should not be believed, or an empty string."""
        return joined(_collect(self.fits, lambda fit: fit.note), self._odd_draws())

    @cached_property
    def profiles(self) -> tuple[list[dict[str, Any]], ...]:
        """The rows of `law_profiles` of each fit."""
        parts = zip(ARCHS, self.designs, self.fits, strict=False)
        return tuple(profile_rows(arch, design, fit) for arch, design, fit in parts)

    @property
    def doubt(self) -> str:
        """Why the surfaces or their intervals should not be believed at all, or an empty string."""
        return joined(_collect(self.fits, lambda fit: "" if fit.converged else fit.note), self._odd_draws())

    def _odd_draws(self) -> str:
        """Say that too many draws are degenerate: the rest are no longer a sample of what could have been."""
        if self.draws is None or self.draws.degenerate.mean() <= MAX_DEGENERATE:
            return ""
        return f"{self.draws.degenerate.mean():.0%} of the bootstrap draws determine no surface"


def joined(*parts: str) -> str:
    """Return the parts that are not empty as one text."""
    return "; ".join(part for part in parts if part)


def _collect(fits: tuple[Fit, ...], tell: Callable[[Fit], str]) -> str:
    """Return what is told of the fits, said once where it is the same of both."""
    told = [tell(fit) for fit in fits]
    if told and told[0] == told[-1]:
        return told[0]
    return "; ".join(f"{arch}: {text}" for arch, text in zip(ARCHS, told, strict=False) if text)


def analyse(
    designs: tuple[Design, Design], sparsities: list[int], starts: int, draws: int
) -> SurfaceAnalysis:
    """Fit both surfaces, bootstrap them and calibrate the intervals by simulation on the same design."""
    try:
        fits = tuple(fit_surface(design, starts, SEED) for design in designs)
    except SmeltError as error:
        return SurfaceAnalysis(designs, reason=str(error))
    compute = np.concatenate([design.flops * design.tokens for design in designs])
    levels = np.concatenate([design.level for design in designs])
    measured = np.concatenate([design.sparsity for design in designs])
    means = {percent: float(measured[levels == percent].mean()) for percent in np.unique(levels).tolist()}
    question = choose_question(compute, sparsities, means)
    drawn = bootstrap(designs, fits, draws, SEED)
    if (~drawn.degenerate).sum() < 2:
        analysis = SurfaceAnalysis(designs, fits, None, question)
        analysis.reason = joined(analysis.note, "hardly a bootstrap draw determines both surfaces")
        return analysis
    analysis = SurfaceAnalysis(designs, fits, drawn, question)
    if analysis.doubt:
        # Simulating from coefficients that are not identified would calibrate nothing.
        return analysis
    truths = tuple(Truth(fit.law, noise_level(fit)) for fit in fits)
    repeats, inner = min(CALIBRATION_REPEATS, draws), min(CALIBRATION_DRAWS, draws)
    analysis.coverage = coverage_study(designs, truths, question, repeats, inner, SEED)
    return analysis


def noise_level(fit: Fit) -> float:
    """Return the residual standard deviation in nats with the fitted parameters taken off the count."""
    return fit.rmse * np.sqrt(fit.n / max(fit.n - len(PARAMETERS), 1))


def fit_rows(analysis: SurfaceAnalysis) -> list[dict[str, Any]]:
    """Return the rows of `law_fits` for the aggregate."""
    rows = []
    for i, arch in enumerate(ARCHS):
        row = {"arch": arch, "subset": "all", "n": len(analysis.designs[i])}
        if analysis.fits:
            fit = analysis.fits[i]
            row |= coefficients(fit.law) | {
                "rmse": fit.rmse,
                "condition": fit.condition,
                "converged": fit.converged,
                "note": joined(fit.note, open_profiles(analysis.profiles[i])),
            }
        else:
            row |= dict.fromkeys(COLUMNS.values()) | {"rmse": None, "condition": None, "converged": False}
            row["note"] = analysis.reason
        rows.append(row)
    return rows


def coefficients(law: Surface) -> dict[str, float]:
    """Return a surface's coefficients under their column names."""
    return {COLUMNS[name]: float(value) for name, value in law.columns().items()}


def draw_rows(analysis: SurfaceAnalysis) -> list[dict[str, Any]]:
    """Return the rows of `law_draws`."""
    if analysis.draws is None:
        return []
    rows = []
    for arch in ARCHS:
        law = getattr(analysis.draws, arch)
        for i, degenerate in enumerate(analysis.draws.degenerate):
            row = {"arch": arch, "draw": i, "degenerate": bool(degenerate)}
            rows.append(row | coefficients(law.draw(i)))
    return rows


def intervals(analysis: SurfaceAnalysis, draws: int | None = None) -> dict[str, dict[str, Any]]:
    """Return value, percentile interval and calibrated interval of every quantity by name.

    `draws` limits the number of usable draws, as the paper does for TPP.
    """
    if analysis.draws is None:
        return {}
    baseline, smelt = analysis.draws.usable()
    if draws is not None:
        baseline, smelt = baseline.draw(slice(draws)), smelt.draw(slice(draws))
    values = quantities(analysis.fits[0].law, analysis.fits[1].law, analysis.question)
    sampled = quantities(baseline, smelt, analysis.question)
    rows = {}
    for name, value in values.items():
        low, high = (float(end) for end in interval(sampled[name]))
        calibrated = (None, None)
        if name in analysis.coverage:
            calibrated = widen(float(value), low, high, analysis.coverage[name].factor)
        rows[name] = {
            "value": float(value),
            "low": low,
            "high": high,
            "low_calibrated": calibrated[0],
            "high_calibrated": calibrated[1],
            "n": len(sampled[name]),
        }
    return rows


_ENDS = ("low", "high", "low_calibrated", "high_calibrated")


def gain_rows(analysis: SurfaceAnalysis) -> list[dict[str, Any]]:
    """Return the rows of `ce_gain` for the aggregate (table 7); gains are fractions."""
    rows = []
    for name, row in intervals(analysis).items():
        if not name.startswith("ce_gain:"):
            continue
        budget, sparsity = float(name.split(":")[1]), int(name.split(":")[2])
        # A name holds the budget to six digits; the column holds it whole.
        budget = min(analysis.question.budgets, key=lambda known: abs(known - budget))
        rows.append(
            {"budget": budget, "sparsity": sparsity, "subset": "all", "gain": row["value"]}
            | {end: row[end] for end in _ENDS}
            | {"extrapolated": analysis.question.extrapolated(budget), "note": analysis.doubt}
        )
    return rows


def tpp_rows(analysis: SurfaceAnalysis, draws: int) -> list[dict[str, Any]]:
    """Return the rows of `tpp` (table 8) with intervals from the first `draws` usable draws."""
    rows = []
    for name, row in intervals(analysis, draws).items():
        if name.startswith("tpp:"):
            _, arch, sparsity = name.split(":")
            rows.append(
                {"sparsity": int(sparsity), "arch": arch, "budget": analysis.question.main_budget}
                | {"tpp": row["value"], "note": analysis.doubt}
                | {end: row[end] for end in _ENDS}
            )
    return rows


_UNITS = {"exponent": "", "gain_growth": "fraction", "tpp_ratio": "ratio"}


def contrast_rows(analysis: SurfaceAnalysis) -> list[dict[str, Any]]:
    """Return the rows of `law_contrasts` that come from the two aggregate surfaces."""
    notes = {"exponent": analysis.note}
    return [
        {"contrast": name, "unit": _UNITS[kind], "basis": BASIS, "freedom": None}
        | row
        | {"note": notes.get(kind, analysis.doubt)}
        for name, row in intervals(analysis).items()
        if (kind := name.split(":")[0]) in _UNITS
    ]


def profile_table(analysis: SurfaceAnalysis) -> list[dict[str, Any]]:
    """Return the rows of `law_profiles`."""
    return [row for rows in analysis.profiles for row in rows]


def coverage_table(analysis: SurfaceAnalysis, draws: int) -> list[dict[str, Any]]:
    """Return the rows of `law_coverage` on the study's own design, none where its fits are not believed."""
    return coverage_rows("study", "independent", min(CALIBRATION_DRAWS, draws), analysis.coverage)


def note_rows(analysis: SurfaceAnalysis, dropped: list[str]) -> list[dict[str, Any]]:
    """Return the rows of `law_notes`: whether the surface can be believed, dropped endpoints, odd draws."""
    reason = analysis.reason or analysis.note
    ok = not (analysis.reason or analysis.doubt)
    rows = [{"analysis": "surface", "ok": ok, "reason": reason}]
    rows.append({"analysis": "pairs", "ok": not dropped, "reason": listing(dropped)})
    if analysis.draws is not None:
        count, bad = len(analysis.draws.degenerate), int(analysis.draws.degenerate.sum())
        rows.append(
            {
                "analysis": "bootstrap",
                "ok": bad <= MAX_DEGENERATE * count,
                "reason": f"{bad} of {count} draws are degenerate and left out",
            }
        )
    return rows
