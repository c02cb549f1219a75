"""The experts of one layer as one differentiable operation.

Shapes: n tokens, k chosen experts, m = n k rows sorted by expert, c rows of a chunk, e experts, d hidden,
i expert size, f = 2 i. Weights are in the layout of HF transformers: `w13_efd` holds the gate rows, then the
up rows, of each expert; `w2_edi` the down matrix.

The forward pass keeps the gate and up products and the sorted order; SwiGLU and the gathered rows are taken
again in the backward pass, and the router's gradient is taken before the down matrix, so that the experts'
outputs are never kept.
"""

from __future__ import annotations

from collections.abc import Iterator

import torch
from torch import Tensor
from torch.nn import functional as F
from torch.utils.flop_counter import register_flop_formula

from smelt.errors import SmeltError
from smelt.model.swiglu import swiglu, swiglu_backward

BACKENDS = ("auto", "reference", "grouped", "cpu", "liger")

# With one thread the rows of a chunk and their products stay in or near the second-level cache.
CHUNK_BYTES = 9 << 18


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
            `cpu` (the same in chunks of experts that fit the cache), `liger` (the Triton kernels of
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
    token_m = order_m // ids_nk.shape[1]
    f_mf = x_nd.new_empty(len(order_m), w13_efd.shape[1])
    y_md = x_nd.new_empty(len(order_m), x_nd.shape[1])
    for experts, rows, ends in _chunks(ends_e, w13_efd, chunked):
        f_cf = _grouped_mm(x_nd.index_select(0, token_m[rows]), w13_efd[experts].mT, ends)
        f_mf[rows] = f_cf
        y_md[rows] = _grouped_mm(swiglu(f_cf), w2_edi[experts].mT, ends)
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
    dw13_efd, dw2_edi = torch.empty_like(w13_efd), torch.empty_like(w2_edi)
    dx_md = x_nd.new_empty(len(order_m), x_nd.shape[1])
    dweight_m = torch.empty_like(weight_m)
    for experts, rows, ends in _chunks(ends_e, w13_efd, chunked):
        dy_cd = grad_nd.index_select(0, token_m[rows])
        dh_ci = _grouped_mm(dy_cd, w2_edi[experts], ends)
        df_cf, h_ci, dweight_m[rows] = swiglu_backward(f_mf[rows], dh_ci, weight_m[rows])
        dw2_edi[experts] = _grouped_mm(dy_cd.T, h_ci, ends)
        dw13_efd[experts] = _grouped_mm(df_cf.T, x_nd.index_select(0, token_m[rows]), ends)
        dx_md[rows] = _grouped_mm(df_cf, w13_efd[experts], ends)
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


def _chunks(ends_e: Tensor, w13_efd: Tensor, chunked: bool) -> Iterator[tuple[slice, slice, Tensor]]:
    """Yield runs of experts of about `CHUNK_BYTES`: experts, rows, and the ends within these rows.

    One run of everything, without looking at the counts, where it is not to be chunked or several threads
    share the work.
    """
    if not chunked or torch.get_num_threads() > 1:
        yield slice(None), slice(None), ends_e
        return
    ends, row_bytes = ends_e.tolist(), (w13_efd.shape[2] + 3 * w13_efd.shape[1] // 2) * w13_efd.element_size()
    first, start = 0, 0
    for expert, end in enumerate(ends):
        # The last chunk takes the experts without rows at the end with it: they have a gradient too.
        if expert == len(ends) - 1 or ((end - start) * row_bytes >= CHUNK_BYTES and end < ends[-1]):
            yield slice(first, expert + 1), slice(start, end), ends_e[first : expert + 1] - start
            first, start = expert + 1, end


def _grouped_mm(a: Tensor, b: Tensor, ends_e: Tensor) -> Tensor:
    """Multiply the rows (or, of two matrices, the columns and rows) of each expert."""
    if a.dtype != torch.float64:
        return F.grouped_mm(a, b, offs=ends_e)
    # The product of PyTorch refuses float64, which only checks of the gradient use.
    bounds = [0, *ends_e.tolist()]
    parts = [slice(start, stop) for start, stop in zip(bounds[:-1], bounds[1:], strict=True)]
    if b.ndim == 3:
        return torch.cat([a[part] @ b[expert] for expert, part in enumerate(parts)])
    return torch.stack([a[:, part] @ b[part] for part in parts])


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
