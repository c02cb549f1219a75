"""What the fits and their intervals are worth: losses simulated from known surfaces on a given design."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from smelt.laws.bootstrap import cell_weights, interval, undetermined
from smelt.laws.fit import Design, SurfaceModel, fit_many
from smelt.laws.quantities import Question, quantities
from smelt.laws.surface import Surface

NOISES = ("independent", "cell")
NOMINAL = 0.95
BLIND_STARTS = 4


@dataclass(frozen=True)
class Truth:
    """A surface and the standard deviation of the loss about it, in nats."""

    law: Surface
    noise: float


@dataclass(frozen=True)
class Coverage:
    """How one quantity fares over the repeats.

    `bias` is the median estimate minus the truth, `spread` the estimates' standard deviation, `coverage` the
    share of 95% percentile intervals that hold the truth, `factor` how far their arms must be stretched to
    hold it in 95% of the repeats, `positive` the share of estimates above 0.
    """

    truth: float
    median: float
    bias: float
    spread: float
    coverage: float
    factor: float
    positive: float
    repeats: int


def simulate_losses(
    design: Design, truth: Truth, repeats: int, generator: np.random.Generator, noise: str = "independent"
) -> np.ndarray:
    """Return losses [repeats, n]: the surface plus normal noise.

    `independent` noise is drawn for each endpoint; `cell` noise has half of its variance in common within a
    cell, as when the six branches of one trunk share the trunk's luck.
    """
    mean_n = truth.law.loss(design.flops, design.sparsity, design.tokens)
    own = generator.normal(size=(repeats, len(design)))
    if noise == "cell":
        cells, index = np.unique(design.cell, return_inverse=True)
        shared = generator.normal(size=(repeats, len(cells)))[:, index]
        own = np.sqrt(0.5) * (own + shared)
    return mean_n + truth.noise * own


def estimates(
    designs: tuple[Design, Design], losses: tuple[np.ndarray, np.ndarray]
) -> tuple[Surface, Surface]:
    """Return the surfaces [repeats] fitted to rows of simulated losses, from starts that know no truth."""
    fitted = []
    for design, loss_rn in zip(designs, losses, strict=True):
        log_loss_rn, rows = np.log(loss_rn), np.arange(len(loss_rn))
        start_kd = SurfaceModel(design, log_loss_rn, rows).starts(BLIND_STARTS, seed=2)
        starts = np.broadcast_to(start_kd, (len(rows), *start_kd.shape))
        fitted.append(fit_many(design, log_loss_rn, np.ones(loss_rn.shape), rows, starts)[0])
    return fitted[0], fitted[1]


def coverage_study(
    designs: tuple[Design, Design],
    truths: tuple[Truth, Truth],
    question: Question,
    repeats: int,
    draws: int,
    seed: int = 0,
    noise: str = "independent",
) -> dict[str, Coverage]:
    """Simulate, fit and bootstrap `repeats` times; return how each quantity's interval covers its truth.

    Every draw is fitted from its repeat's point estimate; draws that determine nothing are left out, as in
    the analysis itself.
    """
    generator = np.random.default_rng([seed, repeats, draws])
    losses = tuple(
        simulate_losses(design, truth, repeats, generator, noise)
        for design, truth in zip(designs, truths, strict=True)
    )
    points = estimates(designs, losses)
    true_values = quantities(truths[0].law, truths[1].law, question)
    values = quantities(*points, question)
    ends = {name: np.full((repeats, 2), np.nan) for name in values}
    for repeat in range(repeats):
        drawn = _draw_once(designs, points, losses, repeat, draws, seed)
        for name, sample in quantities(*drawn, question).items():
            ends[name][repeat] = interval(sample) if len(sample) > 1 else (np.nan, np.nan)
    return {
        name: _summarise(float(true_values[name]), np.asarray(values[name]), ends[name]) for name in values
    }


def _draw_once(designs, points, losses, repeat, draws, seed) -> tuple[Surface, Surface]:
    weights = cell_weights(designs[0], draws, seed=seed * 1_000_003 + repeat)
    usable = np.ones(draws, dtype=bool)
    surfaces = []
    for design, point, loss_rn in zip(designs, points, losses, strict=True):
        usable &= ~undetermined(design, weights)
        log_loss_rn, rows = np.log(loss_rn[repeat])[None], np.zeros(draws, dtype=int)
        start_d = SurfaceModel(design, log_loss_rn, rows).parameters(point.draw(repeat))
        starts = np.broadcast_to(start_d, (draws, 1, 6))
        surface, _, on_bound = fit_many(design, log_loss_rn, weights, rows, starts)
        usable &= ~on_bound
        surfaces.append(surface)
    return surfaces[0].draw(usable), surfaces[1].draw(usable)


def _summarise(truth: float, values: np.ndarray, ends: np.ndarray) -> Coverage:
    finite = np.isfinite(ends).all(axis=1) & np.isfinite(values)
    values, (low, high) = values[finite], ends[finite].T
    centre = np.clip(values, low, high)
    arm = np.where(truth < centre, centre - low, high - centre)
    stretch = np.abs(truth - centre) / np.maximum(arm, 1e-300)
    return Coverage(
        truth=truth,
        median=float(np.median(values)),
        bias=float(np.median(values)) - truth,
        spread=float(values.std(ddof=1)),
        coverage=float(((low <= truth) & (truth <= high)).mean()),
        factor=float(max(1.0, np.quantile(stretch, NOMINAL))),
        positive=float((values > 0).mean()),
        repeats=len(values),
    )
