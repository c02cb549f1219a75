"""The norm against PyTorch's."""

from __future__ import annotations

import torch
from torch.nn import functional as F

from smelt.model.norm import RMSNorm


def test_norm_and_gradient():
    norm = RMSNorm(6).double()
    torch.nn.init.normal_(norm.weight)
    x = (3 * torch.randn(2, 5, 6, dtype=torch.float64)).requires_grad_()
    torch.testing.assert_close(norm(x), F.rms_norm(x, (6,), norm.weight, 1e-6))
    torch.autograd.gradcheck(lambda x, _: norm(x), (x, norm.weight))


def test_norm_of_strided_rows():
    norm, x = RMSNorm(6), torch.randn(6, 4, 3).permute(2, 1, 0)
    found = norm(x.requires_grad_())
    torch.testing.assert_close(found, F.rms_norm(x, (6,), norm.weight, 1e-6))


def test_norm_keeps_the_type_of_its_input():
    x = torch.randn(4, 6, dtype=torch.bfloat16)
    assert RMSNorm(6)(x).dtype == torch.bfloat16
