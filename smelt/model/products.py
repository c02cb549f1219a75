"""The products of each expert's matrices with its rows, and their gradients.

Two ways: one grouped product for each matrix, and expert by expert into place, in chunks of experts whose
rows fit the cache of a processor.

Shapes: n tokens, m rows sorted by expert, c rows of a chunk, e experts, d hidden, i expert size, f = 2 i.
`token_m` is the token of each row, `ends_e` where each expert's rows end, `weight_m` each row's weight.
"""

from __future__ import annotations

from collections.abc import Iterator

import torch
from torch import Tensor
from torch.nn import functional as F

from smelt.model.swiglu import swiglu, swiglu_backward

# With one thread the rows of a chunk and their products stay in or near the second-level cache.
CHUNK_BYTES = 9 << 18


def grouped(
    x_nd: Tensor, token_m: Tensor, ends_e: Tensor, w13_efd: Tensor, w2_edi: Tensor
) -> tuple[Tensor, Tensor]:
    """Return the gate and up products `[m, f]` and the experts' outputs `[m, d]`."""
    f_mf = F.grouped_mm(x_nd.index_select(0, token_m), w13_efd.mT, offs=ends_e)
    return f_mf, F.grouped_mm(swiglu(f_mf), w2_edi.mT, offs=ends_e)


def grouped_backward(
    grad_nd: Tensor,
    x_nd: Tensor,
    token_m: Tensor,
    ends_e: Tensor,
    w13_efd: Tensor,
    w2_edi: Tensor,
    weight_m: Tensor,
    f_mf: Tensor,
) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """Return the gradients of the rows `[m, d]`, of both matrices and of the rows' weights `[m]`."""
    dy_md = grad_nd.index_select(0, token_m)
    df_mf, h_mi, dweight_m = swiglu_backward(f_mf, F.grouped_mm(dy_md, w2_edi, offs=ends_e), weight_m)
    dw2_edi = F.grouped_mm(dy_md.T, h_mi, offs=ends_e)
    dw13_efd = F.grouped_mm(df_mf.T, x_nd.index_select(0, token_m), offs=ends_e)
    return F.grouped_mm(df_mf, w13_efd, offs=ends_e), dw13_efd, dw2_edi, dweight_m


def chunked(
    x_nd: Tensor, token_m: Tensor, ends_e: Tensor, w13_efd: Tensor, w2_edi: Tensor
) -> tuple[Tensor, Tensor]:
    """Return the same as `grouped`, in any type."""
    f_mf = x_nd.new_empty(len(token_m), w13_efd.shape[1])
    y_md = x_nd.new_empty(len(token_m), x_nd.shape[1])
    for experts, rows, counts in _chunks(ends_e, w13_efd):
        _multiply(x_nd.index_select(0, token_m[rows]), w13_efd[experts].mT, counts, f_mf[rows])
        _multiply(swiglu(f_mf[rows]), w2_edi[experts].mT, counts, y_md[rows])
    return f_mf, y_md


def chunked_backward(
    grad_nd: Tensor,
    x_nd: Tensor,
    token_m: Tensor,
    ends_e: Tensor,
    w13_efd: Tensor,
    w2_edi: Tensor,
    weight_m: Tensor,
    f_mf: Tensor,
) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """Return the same as `grouped_backward`, in any type."""
    dw13_efd, dw2_edi = torch.empty_like(w13_efd), torch.empty_like(w2_edi)
    dx_md = x_nd.new_empty(len(token_m), x_nd.shape[1])
    dweight_m = torch.empty_like(weight_m)
    for experts, rows, counts in _chunks(ends_e, w13_efd):
        dy_cd = grad_nd.index_select(0, token_m[rows])
        dh_ci = dy_cd.new_empty(len(dy_cd), w2_edi.shape[2])
        _multiply(dy_cd, w2_edi[experts], counts, dh_ci)
        df_cf, h_ci, dweight_m[rows] = swiglu_backward(f_mf[rows], dh_ci, weight_m[rows])
        _multiply_columns(dy_cd, h_ci, counts, dw2_edi[experts])
        _multiply_columns(df_cf, x_nd.index_select(0, token_m[rows]), counts, dw13_efd[experts])
        _multiply(df_cf, w13_efd[experts], counts, dx_md[rows])
    return dx_md, dw13_efd, dw2_edi, dweight_m


def _chunks(ends_e: Tensor, w13_efd: Tensor) -> Iterator[tuple[slice, slice, list[int]]]:
    """Yield runs of experts of about `CHUNK_BYTES`: experts, rows, and each expert's number of rows.

    One run of everything where several threads share each product.
    """
    ends = ends_e.tolist()
    counts = [end - start for start, end in zip([0, *ends], ends, strict=False)]
    if torch.get_num_threads() > 1:
        yield slice(None), slice(None), counts
        return
    row_bytes = (w13_efd.shape[2] + 3 * w13_efd.shape[1] // 2) * w13_efd.element_size()
    first, start = 0, 0
    for expert, end in enumerate(ends):
        # The last chunk takes the experts without rows at the end with it: they have a gradient too.
        if expert == len(ends) - 1 or ((end - start) * row_bytes >= CHUNK_BYTES and end < ends[-1]):
            yield slice(first, expert + 1), slice(start, end), counts[first : expert + 1]
            first, start = expert + 1, end


def _multiply(a_cp: Tensor, b_epq: Tensor, counts: list[int], out_cq: Tensor) -> None:
    """Write each expert's rows times its matrix."""
    parts = zip(a_cp.split(counts), b_epq.unbind(), out_cq.split(counts), strict=True)
    for a_p, b_pq, out_q in parts:
        torch.mm(a_p, b_pq, out=out_q)


def _multiply_columns(a_cp: Tensor, b_cq: Tensor, counts: list[int], out_epq: Tensor) -> None:
    """Write the sum over each expert's rows of the outer products, 0 where it has no row."""
    parts = zip(a_cp.T.split(counts, dim=1), b_cq.split(counts), out_epq.unbind(), strict=True)
    for a_p, b_q, out_pq in parts:
        torch.mm(a_p, b_q, out=out_pq)
