"""Cross entropy without the whole logits, and the router's auxiliary losses.

Shapes: n tokens, c tokens of a chunk, d hidden, v vocabulary, x executions, e experts.
"""

from __future__ import annotations

from collections.abc import Iterator

import torch
from torch import Tensor, distributed
from torch.nn import functional as F
from torch.utils.flop_counter import register_flop_formula

from smelt.model.context import RouterRecord
from smelt.study import Geometry

IGNORE = -100
# Elements of one chunk of logits: on a processor they stay in the cache, on a GPU they fill it.
CHUNK_ELEMENTS = {"cpu": 1 << 18, "cuda": 1 << 28}


def cross_entropy(x_nd: Tensor, weight_vd: Tensor, targets_n: Tensor) -> Tensor:
    """Return the mean cross entropy of the targets that are not `IGNORE`, in nats; 0 where there is none.

    Logits are taken in the type that autocast asks for, their softmax in float32.
    """
    targets = (targets_n != IGNORE).sum().clamp(min=1)
    if not torch.is_grad_enabled():
        return token_losses(x_nd, weight_vd, targets_n).sum() / targets
    device = x_nd.device.type
    if torch.is_autocast_enabled(device):
        dtype = torch.get_autocast_dtype(device)
        x_nd, weight_vd = x_nd.to(dtype), weight_vd.to(dtype)
    total, _, _ = _cross_entropy(x_nd, weight_vd, targets_n)
    return total / targets


def token_losses(x_nd: Tensor, weight_vd: Tensor, targets_n: Tensor) -> Tensor:
    """Return the cross entropy of each target in nats, float32, 0 where it is `IGNORE`."""
    losses = [
        F.cross_entropy(F.linear(x_cd, weight_vd).float(), targets_c, ignore_index=IGNORE, reduction="none")
        for x_cd, targets_c, _ in _chunks(x_nd, weight_vd, targets_n)
    ]
    return torch.cat(losses)


def _chunks(x_nd: Tensor, weight_vd: Tensor, targets_n: Tensor) -> Iterator[tuple[Tensor, Tensor, slice]]:
    rows = max(64, CHUNK_ELEMENTS.get(x_nd.device.type, 1 << 28) // weight_vd.shape[0])
    for start in range(0, len(x_nd), rows):
        part = slice(start, min(start + rows, len(x_nd)))
        yield x_nd[part], targets_n[part], part


@torch.library.custom_op("smelt::cross_entropy", mutates_args=())
def _cross_entropy(x_nd: Tensor, weight_vd: Tensor, targets_n: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """Return the summed cross entropy and, for want of logits later, its gradients at once."""
    total = x_nd.new_zeros((), dtype=torch.float32)
    dx_nd = torch.empty_like(x_nd)
    dweight_vd = torch.zeros_like(weight_vd, dtype=torch.float32)
    for x_cd, targets_c, part in _chunks(x_nd, weight_vd, targets_n):
        counted_c = targets_c != IGNORE
        index_c1 = torch.where(counted_c, targets_c, 0).unsqueeze(1)
        logits_cv = (x_cd @ weight_vd.T).float()
        p_cv = logits_cv.softmax(-1)
        # The largest probability is exp(max - logsumexp): one exponential of each logit is enough.
        lse_c1 = logits_cv.amax(-1, keepdim=True) - p_cv.amax(-1, keepdim=True).log()
        total += ((lse_c1 - logits_cv.gather(1, index_c1)).squeeze(1) * counted_c).sum()
        # From here on the chunk holds its own gradient: softmax less one at the target.
        p_cv.scatter_add_(1, index_c1, -torch.ones_like(lse_c1))
        dlogits_cv = p_cv.mul_(counted_c.unsqueeze(1)).to(x_nd.dtype)
        dx_nd[part] = dlogits_cv @ weight_vd
        dweight_vd += dlogits_cv.T @ x_cd
    return total, dx_nd, dweight_vd.to(weight_vd.dtype)


@_cross_entropy.register_fake
def _(x_nd, weight_vd, targets_n):
    return x_nd.new_empty((), dtype=torch.float32), torch.empty_like(x_nd), torch.empty_like(weight_vd)


def _setup_context(ctx, inputs, output):
    ctx.mark_non_differentiable(*output[1:])
    ctx.set_materialize_grads(False)
    ctx.save_for_backward(*output[1:])


def _backward(ctx, grad, *_):
    if grad is None:
        return None, None, None
    dx_nd, dweight_vd = ctx.saved_tensors
    return dx_nd * grad, dweight_vd * grad, None


_cross_entropy.register_autograd(_backward, setup_context=_setup_context)


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


@register_flop_formula(torch.ops.smelt.cross_entropy)
def _flops(x_nd, weight_vd, targets_n, *_, **__) -> int:
    # The forward product and both of the gradient, which is taken at once.
    return 6 * x_nd[0] * weight_vd[0] * weight_vd[1]
