"""Grouped-query attention with rotary embedding and optional normalisation of queries and keys.

Shapes: b rows, t tokens, s keys, h query heads, g key and value heads, d head size.
"""

from __future__ import annotations

import functools
import math

import torch
from torch import Tensor, nn
from torch.nn import functional as F
from torch.nn.attention.flex_attention import BlockMask, flex_attention

from smelt.model.config import ModelConfig
from smelt.model.context import Context, Mask, rotary_factors
from smelt.model.norm import RMSNorm

QUERY_BLOCK = 64


class Attention(nn.Module):
    """Attention of one layer, in three public steps so that each can be looked at."""

    def __init__(self, config: ModelConfig) -> None:
        super().__init__()
        sizes = config.geometry
        self.head_dim, self.rope_base = sizes.head_dim, config.rope_base
        query, key = sizes.heads * sizes.head_dim, sizes.kv_heads * sizes.head_dim
        self.q = nn.Linear(sizes.hidden, query, bias=False)
        self.k = nn.Linear(sizes.hidden, key, bias=False)
        self.v = nn.Linear(sizes.hidden, key, bias=False)
        self.o = nn.Linear(query, sizes.hidden, bias=False)
        if config.qk_norm:
            self.q_norm = RMSNorm(sizes.head_dim)
            self.k_norm = RMSNorm(sizes.head_dim)
        else:
            self.q_norm = self.k_norm = None

    def qkv(
        self, x_btd: Tensor, positions_bt: Tensor, rotation: tuple[Tensor, Tensor] | None = None
    ) -> tuple[Tensor, Tensor, Tensor]:
        """Return rotated queries `[b, t, h, d]`, rotated keys and values `[b, t, g, d]`.

        `rotation` is `rotary_factors` of the positions, where the caller has it already.
        """
        if rotation is None:
            rotation = rotary_factors(positions_bt, self.head_dim, self.rope_base)
        q_bthd, k_btgd, v_btgd = (
            layer(x_btd).unflatten(-1, (-1, self.head_dim)) for layer in (self.q, self.k, self.v)
        )
        if self.q_norm is not None:
            q_bthd, k_btgd = self.q_norm(q_bthd), self.k_norm(k_btgd)
        return rotate(q_bthd, rotation), rotate(k_btgd, rotation), v_btgd

    def attend(self, q_bthd: Tensor, k_bsgd: Tensor, v_bsgd: Tensor, mask: Mask) -> Tensor:
        """Return the attention-weighted values of each head, `[b, t, h, d]`."""
        q_bhtd, k_bgsd, v_bgsd = (x.transpose(1, 2) for x in (q_bthd, k_bsgd, v_bsgd))
        grouped = q_bhtd.shape[1] != k_bgsd.shape[1]
        if isinstance(mask, BlockMask):
            flex = _compiled_flex() if q_bhtd.is_cuda else flex_attention
            pv_bhtd = flex(q_bhtd, k_bgsd, v_bgsd, block_mask=mask, enable_gqa=grouped)
        elif mask is not None and mask.shape[-1] == mask.shape[-2] > QUERY_BLOCK and not q_bhtd.is_cuda:
            pv_bhtd = _BlockAttention.apply(q_bhtd, k_bgsd, v_bgsd, _added(mask, q_bhtd.dtype))
        else:
            pv_bhtd = F.scaled_dot_product_attention(
                q_bhtd, k_bgsd, v_bgsd, attn_mask=mask, is_causal=mask is None, enable_gqa=grouped
            )
        return pv_bhtd.transpose(1, 2)

    def write(self, pv_bthd: Tensor) -> Tensor:
        """Return what the heads write to the residual stream, `[b, t, hidden]`, before the loop's factor."""
        return self.o(pv_bthd.flatten(2))

    def forward(self, x_btd: Tensor, context: Context) -> Tensor:
        """Return the write of the normed input `[b, t, hidden]`."""
        q_bthd, k_bsgd, v_bsgd = self.qkv(x_btd, context.positions_bt, context.rotation)
        if context.slot is not None:
            start = context.cache.length - x_btd.shape[1]
            k_bsgd, v_bsgd = context.slot.extend(start, k_bsgd, v_bsgd)
        return self.write(self.attend(q_bthd, k_bsgd, v_bsgd, context.mask))


def rotate(x_bthd: Tensor, rotation: tuple[Tensor, Tensor]) -> Tensor:
    """Turn each pair (i, i + d/2) of a head by its angle, paired as HF transformers does."""
    own, partner = (factor.to(x_bthd.dtype) for factor in rotation)
    return torch.addcmul(x_bthd * own, x_bthd.roll(x_bthd.shape[-1] // 2, -1), partner)


def _added(mask: Tensor, dtype: torch.dtype) -> Tensor:
    """Return the mask as the kernel takes it: added to the scores, in float32 or wider."""
    dtype = torch.promote_types(dtype, torch.float32)
    if mask.dtype == torch.bool:
        return torch.zeros(mask.shape, dtype=dtype, device=mask.device).masked_fill_(~mask, -math.inf)
    return mask.to(dtype)


class _BlockAttention(torch.autograd.Function):
    """Attention block by block of queries, each to the keys up to its end.

    The processor's kernel does not skip what a mask hides. The gradients of a block's keys and values are
    added into place, without the whole tensors of zeros that autograd makes of each slice.
    """

    @staticmethod
    def forward(ctx, q_bhtd, k_bgtd, v_bgtd, mask):
        kernel = torch.ops.aten._scaled_dot_product_flash_attention_for_cpu
        blocks = [
            kernel(
                q_bhtd[:, :, rows], k_bgtd[:, :, seen], v_bgtd[:, :, seen], attn_mask=mask[:, :, rows, seen]
            )
            for rows, seen in _blocks(q_bhtd.shape[2])
        ]
        pv_blocks, lse_blocks = zip(*blocks, strict=True)
        ctx.save_for_backward(q_bhtd, k_bgtd, v_bgtd, mask, *pv_blocks, *lse_blocks)
        return torch.cat(pv_blocks, dim=2)

    @staticmethod
    def backward(ctx, grad_bhtd):
        q_bhtd, k_bgtd, v_bgtd, mask, *kept = ctx.saved_tensors
        kernel = torch.ops.aten._scaled_dot_product_flash_attention_for_cpu_backward
        dq_bhtd, dk_bgtd, dv_bgtd = (torch.zeros_like(tensor) for tensor in (q_bhtd, k_bgtd, v_bgtd))
        for index, (rows, seen) in reversed(list(enumerate(_blocks(q_bhtd.shape[2])))):
            operands = grad_bhtd[:, :, rows], q_bhtd[:, :, rows], k_bgtd[:, :, seen], v_bgtd[:, :, seen]
            pv, lse = kept[index], kept[len(kept) // 2 + index]
            dq, dk, dv = kernel(*operands, pv, lse, 0.0, False, attn_mask=mask[:, :, rows, seen])
            dq_bhtd[:, :, rows] = dq
            dk_bgtd[:, :, seen] += dk
            dv_bgtd[:, :, seen] += dv
        return dq_bhtd, dk_bgtd, dv_bgtd, None


def _blocks(length: int) -> list[tuple[slice, slice]]:
    starts = range(0, length, QUERY_BLOCK)
    return [(slice(start, start + QUERY_BLOCK), slice(start + QUERY_BLOCK)) for start in starts]


@functools.cache
def _compiled_flex():
    # Uncompiled, flex attention materialises every score.
    return torch.compile(flex_attention, dynamic=False)
