"""Pure statistics of two visits, a value a token; nothing here knows the model.

Shape legend: n tokens, d channels, h heads, k chosen items, q query positions, s key positions.
"""

from __future__ import annotations

import math

import torch
from torch import Tensor

from smelt.errors import SmeltError

TOP_TOKENS = 8


def shared_count(ids_a: Tensor, ids_b: Tensor) -> Tensor:
    """Return how many of the last axis's distinct ids two sets share: `[..., k], [..., k] -> [...]`."""
    return (ids_a.unsqueeze(-1) == ids_b.unsqueeze(-2)).sum(dim=(-1, -2))


def hypergeometric(experts: int, top_k: int) -> list[float]:
    """Return the chance that two independent uniform sets of `top_k` of `experts` share 0, 1, ... top_k.

    Its mean is k^2/E, the chance line of figure 12.
    """
    total = math.comb(experts, top_k)
    return [
        math.comb(top_k, shared) * math.comb(experts - top_k, top_k - shared) / total
        for shared in range(top_k + 1)
    ]


def chance_spread(experts: int, top_k: int, level: float = 0.95) -> tuple[int, int]:
    """Return the shared counts between which a token of two random routers lies with at least `level`."""
    tail = (1 - level) / 2
    cumulative, low, high = 0.0, None, top_k
    for shared, mass in enumerate(hypergeometric(experts, top_k)):
        cumulative += mass
        if low is None and cumulative > tail:
            low = shared
        if cumulative >= 1 - tail:
            high = shared
            break
    return low, high


def cosine(a_nd: Tensor, b_nd: Tensor) -> Tensor:
    """Return the cosine over the last axis in float32; 0 where a vector is zero."""
    a_nd, b_nd = a_nd.float(), b_nd.float()
    norms_n = a_nd.norm(dim=-1) * b_nd.norm(dim=-1)
    return (a_nd * b_nd).sum(-1) / norms_n.clamp_min(torch.finfo(torch.float32).tiny)


def rms(x_nd: Tensor) -> Tensor:
    """Return the root mean square over the last axis in float32, one value a token."""
    return x_nd.float().square().mean(-1).sqrt()


def top_tokens(rows_hqs: Tensor, count: int = TOP_TOKENS) -> Tensor:
    """Return the positions with the largest attention, best first: `[..., s] -> [..., count]`.

    Raises:
        SmeltError: the rows have fewer than `count` positions.
    """
    if rows_hqs.shape[-1] < count:
        raise SmeltError(
            f"attention rows have {rows_hqs.shape[-1]} positions; the {count} most attended need "
            f"at least {count}"
        )
    return rows_hqs.topk(count, dim=-1).indices


def mass_overlap(rows_a: Tensor, rows_b: Tensor) -> Tensor:
    """Return the mass that two distributions share, sum of the minimum: `[..., s] -> [...]`."""
    return torch.minimum(rows_a, rows_b).sum(-1)


def control_head(heads: int) -> int | None:
    """Return by how many heads the control is shifted, half the head count; None with a single head."""
    return heads // 2 if heads > 1 else None
