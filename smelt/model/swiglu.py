"""SwiGLU of fused gate and up products and its gradient (Shazeer 2020).

Shapes: c rows, i expert size, f = 2 i: the gate columns, then the up columns. On CUDA both functions are
compiled, since one by one their steps would read and write the rows ten times over.
"""

from __future__ import annotations

import functools
from collections.abc import Callable

import torch
from torch import Tensor
from torch.nn import functional as F


def swiglu(f_cf: Tensor) -> Tensor:
    """Return `silu(gate) * up`, `[c, i]`."""
    return (_compiled(_swiglu) if f_cf.is_cuda else _swiglu)(f_cf)


def swiglu_backward(f_cf: Tensor, dh_ci: Tensor, weight_c: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """Return `df_cf`, the weighted rows `h_ci` and `dweight_c` of the output `weight_c * W2 swiglu(f_cf)`.

    `dh_ci` is the gradient of that output times W2, not yet weighted; it is overwritten.
    """
    function = _compiled(_swiglu_backward) if f_cf.is_cuda else _swiglu_backward
    return function(f_cf, dh_ci, weight_c)


def _swiglu(f_cf: Tensor) -> Tensor:
    gate_ci, up_ci = f_cf.chunk(2, dim=-1)
    # Transcendental functions of strided rows are not vectorised on a processor; a copy is.
    return F.silu(gate_ci.contiguous()).mul_(up_ci)


def _swiglu_backward(f_cf: Tensor, dh_ci: Tensor, weight_c: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    gate_ci, up_ci = f_cf.chunk(2, dim=-1)
    gate_ci, weight_c1 = gate_ci.contiguous(), weight_c[:, None]
    silu_ci = F.silu(gate_ci)
    h_ci = silu_ci * up_ci
    dweight_c = (dh_ci * h_ci).sum(-1, dtype=weight_c.dtype)
    # In place from here on: few buffers stay in the cache.
    dup_ci = silu_ci.mul_(dh_ci.mul_(weight_c1))
    dgate_ci = torch.ops.aten.silu_backward(dh_ci.mul_(up_ci), gate_ci)
    return torch.cat([dgate_ci, dup_ci], dim=-1), h_ci.mul_(weight_c1), dweight_c


@functools.cache
def _compiled(function: Callable) -> Callable:
    return torch.compile(function, dynamic=True)
