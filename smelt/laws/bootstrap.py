"""Cell bootstrap of both surfaces (section 5): cells are resampled, never single endpoints of a run."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from smelt.laws.fit import Design, Fit, SurfaceModel, fit_many
from smelt.laws.surface import PARAMETERS, Surface

# Starts of each draw beside the point estimate itself.
EXTRA_STARTS = 2
LEVELS = (2.5, 97.5)


@dataclass(frozen=True)
class Draws:
    """Surfaces of both architectures refitted on the same resampled cells.

    `degenerate` marks draws in which a surface is not determined (one scale or one sparsity level drawn,
    too few endpoints) or ends on a bound; intervals leave them out and `law_notes` counts them.
    """

    baseline: Surface
    smelt: Surface
    degenerate: np.ndarray

    def usable(self) -> tuple[Surface, Surface]:
        """Return both architectures' surfaces without the degenerate draws."""
        return self.baseline.draw(~self.degenerate), self.smelt.draw(~self.degenerate)


def cell_weights(design: Design, draws: int, seed: int) -> np.ndarray:
    """Return how often each endpoint counts [draws, n] when the cells are resampled with replacement."""
    return label_weights(design.cell, draws, seed)


def label_weights(labels: np.ndarray, draws: int, seed: int) -> np.ndarray:
    """Return how often each entry counts [draws, n] when the distinct labels are resampled."""
    cells, index = np.unique(labels, return_inverse=True)
    generator = np.random.default_rng(seed)
    counts = generator.multinomial(len(cells), np.full(len(cells), 1.0 / len(cells)), size=draws)
    return counts[:, index].astype(float)


def undetermined(design: Design, weights_pn: np.ndarray) -> np.ndarray:
    """Return which draws [p] hold fewer than two scales or sparsity levels, or too few endpoints."""
    present = weights_pn > 0
    few = present.sum(axis=1) < len(PARAMETERS)
    for labels in (design.scale, design.level):
        levels = [present[:, labels == value].any(axis=1) for value in np.unique(labels)]
        few |= np.sum(levels, axis=0) < 2
    return few


def bootstrap(designs: tuple[Design, Design], fits: tuple[Fit, Fit], draws: int, seed: int = 0) -> Draws:
    """Refit both surfaces on `draws` resamples of the cells; equal seeds give equal draws."""
    baseline, smelt = designs
    weights = cell_weights(baseline, draws, seed)
    bad = undetermined(baseline, weights) | undetermined(smelt, weights)
    surfaces = []
    for design, fit in zip(designs, fits, strict=True):
        # A draw that determines nothing is still fitted, to keep one row a draw, but it counts for nothing.
        surface, _, on_bound = refit(design, np.log(design.loss)[None], weights, np.zeros(draws, int), fit)
        bad |= on_bound
        surfaces.append(surface)
    return Draws(surfaces[0], surfaces[1], bad)


def refit(
    design: Design, log_loss_rn: np.ndarray, weights_pn: np.ndarray, row_p: np.ndarray, fit: Fit
) -> tuple[Surface, np.ndarray, np.ndarray]:
    """Fit every weighted problem from the point estimate and a few spread starts."""
    model = SurfaceModel(design, log_loss_rn, row_p)
    starts = np.concatenate([model.parameters(fit.law)[None], model.starts(EXTRA_STARTS, seed=1)])
    starts = np.broadcast_to(starts, (len(weights_pn), *starts.shape))
    return fit_many(design, log_loss_rn, weights_pn, row_p, starts)


def interval(values: np.ndarray, axis: int = 0) -> tuple[np.ndarray, np.ndarray]:
    """Return the 2.5% and 97.5% points."""
    low, high = np.percentile(values, LEVELS, axis=axis)
    return low, high


def widen(value: float, low: float, high: float, factor: float) -> tuple[float, float]:
    """Return the interval with both arms about `value` stretched by `factor`.

    The arms are taken from `value`, or from the nearer end where the percentile interval excludes it.
    """
    centre = min(max(value, low), high)
    return centre - factor * (centre - low), centre + factor * (high - centre)
