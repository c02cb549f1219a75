"""Loss surface, its fit and uncertainty, compute-optimal frontier, calibration and contrasts (no torch)."""

from smelt.laws.frontier import ce_gain, frontier_loss, frontier_optimum, tokens_per_parameter
from smelt.laws.surface import PARAMETERS, Surface, published_surface

__all__ = [
    "PARAMETERS",
    "Surface",
    "ce_gain",
    "frontier_loss",
    "frontier_optimum",
    "published_surface",
    "tokens_per_parameter",
]
