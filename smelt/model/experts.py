"""The experts of one layer as one differentiable operation.

Shapes: n tokens, k chosen experts, m = n k rows sorted by expert, c rows of one expert, e experts, d hidden,
i expert size, f = 2 i. Weights are in the layout of HF transformers: `w13_efd` holds the gate rows, then the
up rows, of each expert; `w2_edi` the down matrix.

The forward pass keeps the gate and up products and the sorted order; SwiGLU and the gathered rows are taken
again in the backward pass, and the router's gradient is taken before the down matrix, so that the experts'
outputs are never kept.
"""

from __future__ import annotations

import torch
from torch import Tensor
from torch.nn import functional as F
from torch.utils.flop_counter import register_flop_formula

from smelt.errors import SmeltError
from smelt.model import products

BACKENDS = ("auto", "reference", "grouped", "cpu", "liger")


def moe_experts(
    x_nd: Tensor, w13_efd: Tensor, w2_edi: Tensor, weights_nk: Tensor, ids_nk: Tensor, backend: str = "auto"
) -> Tensor:
    """Return `sum_k weights_nk * SwiGLU_{ids_nk}(x_nd)`, shape nd, in the type of `x_nd`.

    Args:
        x_nd: normed input, of the same type as the matrices.
        w13_efd: gate and up matrices.
        w2_edi: down matrices.
        weights_nk: router weights, float32 or wider.
        ids_nk: chosen experts.
        backend: `reference` (a loop over experts, any type), `grouped` (one grouped product for each matrix),
            `cpu` (expert by expert, in chunks that fit the cache, any type), `liger` (the Triton kernels of
            liger-kernel), or `auto`: `cpu` on a processor, else `grouped`.

    Raises:
        SmeltError: the backend is unknown or not installed, or the sizes do not fit grouped products.
    """
    if backend not in BACKENDS:
        raise SmeltError(f"experts backend is {backend!r}; it must be one of {BACKENDS}")
    if backend == "auto":
        backend = "cpu" if x_nd.device.type == "cpu" else "grouped"
    if backend == "reference":
        return reference(x_nd, w13_efd, w2_edi, weights_nk, ids_nk)
    if backend == "liger":
        return _liger(x_nd, w13_efd, w2_edi, weights_nk, ids_nk)
    _check_alignment(w13_efd, w2_edi)
    return _experts(x_nd, w13_efd, w2_edi, weights_nk, ids_nk, backend == "cpu")[0]


def reference(x_nd: Tensor, w13_efd: Tensor, w2_edi: Tensor, weights_nk: Tensor, ids_nk: Tensor) -> Tensor:
    """Return the same by a plain loop over experts: what the other backends are held to."""
    out_nd = torch.zeros_like(x_nd)
    for expert in range(w13_efd.shape[0]):
        token_c, slot_c = torch.where(ids_nk == expert)
        gate_ci, up_ci = (x_nd[token_c] @ w13_efd[expert].T).chunk(2, dim=-1)
        y_cd = (F.silu(gate_ci) * up_ci) @ w2_edi[expert].T
        out_nd = out_nd.index_add(0, token_c, y_cd * weights_nk[token_c, slot_c, None].to(y_cd.dtype))
    return out_nd


def _liger(x_nd: Tensor, w13_efd: Tensor, w2_edi: Tensor, weights_nk: Tensor, ids_nk: Tensor) -> Tensor:
    try:
        from liger_kernel.ops.fused_moe import LigerFusedMoEFunction
    except ImportError:
        raise SmeltError("experts backend is 'liger'; that needs the package liger-kernel") from None
    return LigerFusedMoEFunction.apply(x_nd, w13_efd, w2_edi, ids_nk.to(torch.int32), weights_nk)


def _check_alignment(w13_efd: Tensor, w2_edi: Tensor) -> None:
    unit = max(1, 16 // w13_efd.element_size())
    for name, value in (("hidden", w13_efd.shape[2]), ("expert_dim", w2_edi.shape[2])):
        if w13_efd.dtype != torch.float64 and value % unit:
            raise SmeltError(
                f"{name} is {value}; grouped products in {w13_efd.dtype} need a multiple of {unit}"
            )


@torch.library.custom_op("smelt::experts", mutates_args=())
def _experts(
    x_nd: Tensor, w13_efd: Tensor, w2_edi: Tensor, weights_nk: Tensor, ids_nk: Tensor, chunked: bool
) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """Return the output, the gate and up products, the rows' order and the end of each expert's rows."""
    order_m, ends_e = _sort(ids_nk, w13_efd.shape[0])
    product = products.chunked if chunked else products.grouped
    f_mf, y_md = product(x_nd, order_m // ids_nk.shape[1], ends_e, w13_efd, w2_edi)
    # In this sum the order of a token's experts is fixed, unlike in an atomic one.
    weights_nk = weights_nk.to(y_md.dtype)
    place_nk = _inverse(order_m).view_as(ids_nk)
    out_nd = F.embedding_bag(place_nk, y_md, mode="sum", per_sample_weights=weights_nk)
    return out_nd, f_mf, order_m, ends_e


@torch.library.custom_op("smelt::experts_backward", mutates_args=())
def _experts_backward(
    grad_nd: Tensor,
    x_nd: Tensor,
    w13_efd: Tensor,
    w2_edi: Tensor,
    weights_nk: Tensor,
    f_mf: Tensor,
    order_m: Tensor,
    ends_e: Tensor,
    chunked: bool,
) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """Return the gradients of input, both matrices and router weights."""
    token_m = order_m // weights_nk.shape[1]
    weight_m = weights_nk.flatten().index_select(0, order_m)
    product = products.chunked_backward if chunked else products.grouped_backward
    dx_md, dw13_efd, dw2_edi, dweight_m = product(
        grad_nd, x_nd, token_m, ends_e, w13_efd, w2_edi, weight_m, f_mf
    )
    place_nk = _inverse(order_m).view_as(weights_nk)
    dx_nd = F.embedding_bag(place_nk, dx_md, mode="sum")
    return dx_nd, dw13_efd, dw2_edi, dweight_m.index_select(0, place_nk.flatten()).view_as(weights_nk)


def _inverse(order_m: Tensor) -> Tensor:
    place_m = torch.empty_like(order_m)
    place_m[order_m] = torch.arange(len(order_m), dtype=order_m.dtype, device=order_m.device)
    return place_m


def _sort(ids_nk: Tensor, experts: int) -> tuple[Tensor, Tensor]:
    """Return the slots sorted by expert, then token, and where each expert's rows end, both int32."""
    # The narrowest type that holds the ids makes the sort's radix passes few.
    dtype = torch.uint8 if experts <= 256 else torch.int16
    sorted_m, order_m = ids_nk.flatten().to(dtype).sort(stable=True)
    bounds_e = torch.arange(experts, device=ids_nk.device, dtype=torch.int32)
    ends_e = torch.searchsorted(sorted_m.to(torch.int32), bounds_e, right=True, out_int32=True)
    return order_m.to(torch.int32), ends_e


@_experts.register_fake
def _(x_nd, w13_efd, w2_edi, weights_nk, ids_nk, chunked):
    m = ids_nk.numel()
    order_m = ids_nk.new_empty(m, dtype=torch.int32)
    ends_e = ids_nk.new_empty(w13_efd.shape[0], dtype=torch.int32)
    return torch.empty_like(x_nd), x_nd.new_empty(m, w13_efd.shape[1]), order_m, ends_e


@_experts_backward.register_fake
def _(grad_nd, x_nd, w13_efd, w2_edi, weights_nk, f_mf, order_m, ends_e, chunked):
    return tuple(torch.empty_like(tensor) for tensor in (x_nd, w13_efd, w2_edi, weights_nk))


def _setup_context(ctx, inputs, output):
    x_nd, w13_efd, w2_edi, weights_nk, _, ctx.chunked = inputs
    _, f_mf, order_m, ends_e = output
    ctx.mark_non_differentiable(f_mf, order_m, ends_e)
    ctx.set_materialize_grads(False)  # of what is only kept, whole tensors of zeros
    ctx.save_for_backward(x_nd, w13_efd, w2_edi, weights_nk, f_mf, order_m, ends_e)


def _backward(ctx, grad_nd, *_):
    if grad_nd is None:
        return (None,) * 6
    # A gradient may come expanded, which grouped products refuse.
    grads = _experts_backward(grad_nd.contiguous(), *ctx.saved_tensors, ctx.chunked)
    return *grads, None, None


_experts.register_autograd(_backward, setup_context=_setup_context)


@register_flop_formula(torch.ops.smelt.experts)
def _flops(x_nd, w13_efd, w2_edi, weights_nk, ids_nk, *_, **__) -> int:
    return 2 * ids_nk[0] * ids_nk[1] * x_nd[1] * (w13_efd[1] + w2_edi[2])


@register_flop_formula(torch.ops.smelt.experts_backward)
def _backward_flops(grad_nd, x_nd, w13_efd, w2_edi, weights_nk, *_, **__) -> int:
    return 4 * weights_nk[0] * weights_nk[1] * x_nd[1] * (w13_efd[1] + w2_edi[2])
