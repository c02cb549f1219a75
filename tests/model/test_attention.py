"""Attention by blocks of queries against a plain softmax."""

from __future__ import annotations

import pytest
import torch

from smelt.model.attention import QUERY_BLOCK, Attention
from smelt.model.config import ModelConfig
from smelt.model.context import attention_mask
from smelt.study import Geometry
from tests.model.conftest import SIZES


def plain(q_bthd, k_bsgd, v_bsgd, mask):
    """Return the attention-weighted values by the formula, in float64."""
    repeat = q_bthd.shape[2] // k_bsgd.shape[2]
    q, k, v = (x.double() for x in (q_bthd, k_bsgd, v_bsgd))
    k, v = k.repeat_interleave(repeat, 2), v.repeat_interleave(repeat, 2)
    scores_bhts = torch.einsum("bthd,bshd->bhts", q, k) / q.shape[-1] ** 0.5 + mask
    return torch.einsum("bhts,bshd->bthd", scores_bhts.softmax(-1), v)


@pytest.mark.parametrize("length", [QUERY_BLOCK + 1, 2 * QUERY_BLOCK, 150])
@pytest.mark.parametrize("kv_heads", [1, 2, 4])
@pytest.mark.parametrize(
    ("dtype", "tolerance"), [(torch.float64, 1e-14), (torch.float32, 2e-6), (torch.bfloat16, 0.02)]
)
def test_blocks_of_queries_and_their_gradients(length, kv_heads, dtype, tolerance):
    generator = torch.Generator().manual_seed(length)
    attention = Attention(ModelConfig(Geometry(**SIZES | {"kv_heads": kv_heads}), vocab=64))
    shapes = [(2, length, heads, 8) for heads in (4, kv_heads, kv_heads)]
    inputs = [torch.randn(shape, generator=generator).to(dtype).requires_grad_() for shape in shapes]
    segments_bt = (torch.arange(length) // torch.tensor([[40], [length]])).contiguous()
    mask = attention_mask(segments_bt, segments_bt)
    found, wanted = attention.attend(*inputs, mask), plain(*inputs, mask)
    assert torch.equal(found, attention.attend(*inputs, mask == 0))
    grad = torch.randn(wanted.shape, generator=generator)
    pairs = zip(
        [found, *torch.autograd.grad(found, inputs, grad.to(dtype))],
        [wanted, *torch.autograd.grad(wanted, inputs, grad.double())],
        strict=True,
    )
    for ours, exact in pairs:
        assert ours.dtype == dtype
        assert (ours.double() - exact).abs().max() / exact.abs().max() < tolerance
