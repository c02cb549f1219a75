"""Root-mean-square norm (Zhang and Sennrich 2019).

Shapes: d features; any leading dimensions, written n.
"""

from __future__ import annotations

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from smelt.model.config import NORM_EPS


class RMSNorm(nn.Module):
    """Divide by the root of the mean square of the last dimension, then multiply by a weight."""

    def __init__(self, size: int) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.ones(size))

    def forward(self, x_nd: Tensor) -> Tensor:
        """Return the normed input, in the input's type."""
        if x_nd.device.type == "cpu" and x_nd.dtype == self.weight.dtype:
            return _RMSNorm.apply(x_nd, self.weight)
        return F.rms_norm(x_nd, self.weight.shape, self.weight.to(x_nd.dtype), NORM_EPS)


class _RMSNorm(torch.autograd.Function):
    """The norm with few passes over the rows: a processor has no fused kernel for it."""

    @staticmethod
    def forward(ctx, x_nd, weight_d):
        size = x_nd.shape[-1]
        square_n1 = torch.linalg.vector_norm(x_nd, dim=-1, keepdim=True).square_()
        scale_n1 = square_n1.div_(size).add_(NORM_EPS).rsqrt_()
        ctx.save_for_backward(x_nd, weight_d, scale_n1)
        return (x_nd * scale_n1).mul_(weight_d)

    @staticmethod
    def backward(ctx, grad_nd):
        x_nd, weight_d, scale_n1 = ctx.saved_tensors
        size = x_nd.shape[-1]
        inner_nd = grad_nd * x_nd
        dweight_d = inner_nd.reshape(-1, size).T @ scale_n1.reshape(-1)
        # The part of the gradient along x, which the norm removes.
        along_n1 = (inner_nd @ weight_d).unsqueeze(-1) * scale_n1.pow(3).div_(-size)
        return torch.addcmul((grad_nd * weight_d).mul_(scale_n1), x_nd, along_n1), dweight_d
