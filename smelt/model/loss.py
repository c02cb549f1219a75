"""Cross entropy without the whole logits, and the router's auxiliary losses.

Shapes: n tokens, c tokens of a chunk, d hidden, v vocabulary, x executions, e experts.
"""

from __future__ import annotations

import torch
from torch import Tensor, distributed
from torch.nn import functional as F

from smelt.model.context import RouterRecord
from smelt.study import Geometry

IGNORE = -100
# Elements of one chunk of logits: 4 MiB of float32 stay in cache, and a large vocabulary costs no memory.
CHUNK_ELEMENTS = 1 << 20


def _rows(vocab: int) -> int:
    return max(64, CHUNK_ELEMENTS // vocab)


def cross_entropy(x_nd: Tensor, weight_vd: Tensor, targets_n: Tensor) -> Tensor:
    """Return the mean cross entropy of the targets that are not `IGNORE`, in nats; 0 where there is none."""
    total = x_nd.new_zeros((), dtype=torch.float32)
    for x_cd, targets_c in zip(
        x_nd.split(_rows(weight_vd.shape[0])), targets_n.split(_rows(weight_vd.shape[0])), strict=True
    ):
        logits_cv = F.linear(x_cd, weight_vd).float()
        total = total + F.cross_entropy(logits_cv, targets_c, ignore_index=IGNORE, reduction="sum")
    return total / (targets_n != IGNORE).sum().clamp(min=1)


def token_losses(x_nd: Tensor, weight_vd: Tensor, targets_n: Tensor) -> Tensor:
    """Return the cross entropy of each target in nats, float32, 0 where it is `IGNORE`."""
    rows = _rows(weight_vd.shape[0])
    return torch.cat(
        [
            F.cross_entropy(
                F.linear(x_cd, weight_vd).float(), targets_c, ignore_index=IGNORE, reduction="none"
            )
            for x_cd, targets_c in zip(x_nd.split(rows), targets_n.split(rows), strict=True)
        ]
    )


def auxiliary_losses(records: list[RouterRecord], geometry: Geometry) -> tuple[Tensor, Tensor, Tensor]:
    """Return balance loss, z-loss and the counts `[x, e]` of all ranks.

    The balance loss of an execution is `E sum_e f_e P_e` with `f_e` the fraction of token slots and `P_e` the
    mean probability of expert e (Fedus et al. 2021). `f` is that of the whole batch on all ranks and takes no
    gradient, `P` that of this rank: the mean of the gradients over ranks is the gradient of the whole batch.
    """
    mean_xe = torch.stack([record.mean_e for record in records])
    counts_xe = torch.stack([record.count_e for record in records])
    if distributed.is_available() and distributed.is_initialized():
        distributed.all_reduce(counts_xe)
    fraction_xe = counts_xe / counts_xe.sum(1, keepdim=True)
    balance = geometry.experts * (fraction_xe * mean_xe).sum(1).mean()
    return balance, torch.stack([record.z for record in records]).mean(), counts_xe
