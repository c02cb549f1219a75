"""Compute-optimal frontier in closed form (docs/paper.md section 5).

At compute C = F D the loss is minimal at F* = (a A (1-S)^b C^c / (c K))^(1/(a+c)), D* = C / F*. Both
reducible terms then fall as C^-gamma, so the frontier is E + Q C^-gamma and can be inverted without a search.
"""

from __future__ import annotations

import numpy as np

from smelt.laws.surface import Surface

FLOPS_PER_PARAMETER = 6.0


def frontier_optimum(
    law: Surface, compute: np.ndarray, sparsity: np.ndarray
) -> tuple[np.ndarray, np.ndarray]:
    """Return F* (FLOPs per token) and D* (tokens) at `compute` training FLOPs."""
    log_compute = np.log(np.asarray(compute, dtype=float))
    log_flops = (
        np.log(law.a)
        + np.log(law.A)
        + law.b * np.log1p(-np.asarray(sparsity, dtype=float))
        + law.c * log_compute
        - np.log(law.c)
        - np.log(law.K)
    ) / (law.a + law.c)
    return np.exp(log_flops), np.exp(log_compute - log_flops)


def frontier_loss(law: Surface, compute: np.ndarray, sparsity: np.ndarray) -> np.ndarray:
    """Return the lowest loss in nats per token that `compute` training FLOPs buy."""
    flops, tokens = frontier_optimum(law, compute, sparsity)
    return law.loss(flops, sparsity, tokens)


def ce_gain(target: Surface, reference: Surface, compute: np.ndarray, sparsity: np.ndarray) -> np.ndarray:
    """Return the compute-efficiency gain 1 - C_target / C_ref as a fraction.

    C_ref is what the reference needs for the loss that the target reaches with `compute`. Where the
    reference's irreducible loss already lies above that loss no compute is enough and the gain is 1.
    """
    loss = frontier_loss(target, compute, sparsity)
    # log Q of the reference, from its frontier at the same compute: Q = (L - E) C^gamma.
    log_reducible = np.log(frontier_loss(reference, compute, sparsity) - reference.E)
    wanted = loss - reference.E
    with np.errstate(divide="ignore", invalid="ignore"):
        log_ratio = (np.log(wanted) - log_reducible) / reference.gamma
    return np.where(wanted > 0, -np.expm1(np.where(wanted > 0, log_ratio, 0.0)), 1.0)


def tokens_per_parameter(law: Surface, compute: np.ndarray, sparsity: np.ndarray) -> np.ndarray:
    """Return TPP = D* / (F* / 6) at `compute` training FLOPs (table 8 is at 1e21)."""
    flops, tokens = frontier_optimum(law, compute, sparsity)
    return FLOPS_PER_PARAMETER * tokens / flops
