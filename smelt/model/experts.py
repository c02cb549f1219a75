"""The experts of one layer as one differentiable operation.

Shapes: n tokens, k chosen experts, m = n k rows sorted by expert, e experts, d hidden, i expert size,
f = 2 i.
Weights are in the layout of HF transformers: `w13_efd` holds the gate rows, then the up rows, of each expert;
`w2_edi` the down matrix.
"""

from __future__ import annotations

import torch
from torch import Tensor
from torch.nn import functional as F

from smelt.errors import SmeltError

BACKENDS = ("auto", "reference", "grouped", "cpu")


def moe_experts(
    x_nd: Tensor, w13_efd: Tensor, w2_edi: Tensor, weights_nk: Tensor, ids_nk: Tensor, backend: str = "auto"
) -> Tensor:
    """Return `sum_k weights_nk * SwiGLU_{ids_nk}(x_nd)`, shape nd, in the type of `x_nd`."""
    if backend not in BACKENDS:
        raise SmeltError(f"experts backend is {backend!r}; it must be one of {BACKENDS}")
    if backend == "auto":
        backend = "reference" if x_nd.dtype == torch.float64 else "grouped"
    if backend == "reference":
        return reference(x_nd, w13_efd, w2_edi, weights_nk, ids_nk)
    return _Experts.apply(x_nd, w13_efd, w2_edi, weights_nk, ids_nk)


def reference(x_nd: Tensor, w13_efd: Tensor, w2_edi: Tensor, weights_nk: Tensor, ids_nk: Tensor) -> Tensor:
    """Return the same with a plain loop over experts, in any floating type: what the backends are held to."""
    out_nd = torch.zeros_like(x_nd)
    for expert in range(w13_efd.shape[0]):
        token_m, slot_m = torch.where(ids_nk == expert)
        gate_mi, up_mi = (x_nd[token_m] @ w13_efd[expert].T).chunk(2, dim=-1)
        y_md = (F.silu(gate_mi) * up_mi) @ w2_edi[expert].T
        out_nd = out_nd.index_add(0, token_m, y_md * weights_nk[token_m, slot_m, None].to(y_md.dtype))
    return out_nd


class _Experts(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x_nd, w13_efd, w2_edi, weights_nk, ids_nk):
        n, k = ids_nk.shape
        experts = w13_efd.shape[0]
        order_m = ids_nk.flatten().to(torch.int16).argsort(stable=True)
        sorted_m = ids_nk.flatten()[order_m]
        offsets_e = torch.searchsorted(
            sorted_m, torch.arange(experts, device=x_nd.device), right=True, out_int32=True
        )
        place_nk = torch.empty_like(order_m)
        place_nk[order_m] = torch.arange(n * k, device=x_nd.device)
        place_nk = place_nk.view(n, k)
        rows_md = x_nd.index_select(0, order_m // k)
        f_mf = F.grouped_mm(rows_md, w13_efd.transpose(1, 2), offs=offsets_e)
        h_mi = _swiglu(f_mf)
        y_md = F.grouped_mm(h_mi, w2_edi.transpose(1, 2), offs=offsets_e)
        ctx.save_for_backward(x_nd, w13_efd, w2_edi, weights_nk, f_mf, order_m, place_nk, offsets_e)
        return F.embedding_bag(place_nk, y_md, mode="sum", per_sample_weights=weights_nk.to(y_md.dtype))

    @staticmethod
    def backward(ctx, grad_nd):
        x_nd, w13_efd, w2_edi, weights_nk, f_mf, order_m, place_nk, offsets_e = ctx.saved_tensors
        k = place_nk.shape[1]
        token_m = order_m // k
        grad_md = grad_nd.contiguous().index_select(0, token_m)
        p_m1 = weights_nk.flatten().index_select(0, order_m).unsqueeze(1).to(f_mf.dtype)
        gate_mi, up_mi = f_mf.chunk(2, dim=-1)
        sig_mi = torch.sigmoid(gate_mi)
        silu_mi = gate_mi * sig_mi
        h_mi = silu_mi * up_mi
        dh_mi = F.grouped_mm(grad_md, w2_edi, offs=offsets_e)
        dp_m = (dh_mi * h_mi).sum(-1)
        dh_mi = dh_mi * p_m1
        dw2_edi = F.grouped_mm(grad_md.T, h_mi * p_m1, offs=offsets_e)
        df_mf = torch.cat([dh_mi * up_mi * (sig_mi + silu_mi * (1 - sig_mi)), dh_mi * silu_mi], dim=-1)
        rows_md = x_nd.index_select(0, token_m)
        dw13_efd = F.grouped_mm(df_mf.T, rows_md, offs=offsets_e)
        drows_md = F.grouped_mm(df_mf, w13_efd, offs=offsets_e)
        dx_nd = F.embedding_bag(place_nk, drows_md, mode="sum")
        dweights_nk = dp_m.index_select(0, place_nk.flatten()).view_as(place_nk).to(weights_nk.dtype)
        return dx_nd, dw13_efd, dw2_edi, dweights_nk, None


def _swiglu(f_mf: Tensor) -> Tensor:
    gate_mi, up_mi = f_mf.chunk(2, dim=-1)
    return F.silu(gate_mi) * up_mi
