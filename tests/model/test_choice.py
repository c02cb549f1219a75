"""The choice of experts against PyTorch's top-k."""

from __future__ import annotations

import pytest
import torch

from smelt.model.choice import _choose, choose


@pytest.mark.parametrize(
    ("experts", "k"),
    [(1, 1), (8, 8), (64, 8), (256, 8), (257, 1), (336, 8), (504, 3), (700, 127), (700, 200)],
)
def test_choice_is_the_top_k(experts, k):
    logits = torch.randn(50, experts, generator=torch.Generator().manual_seed(experts))
    logits[::5] *= 1e-30
    assert torch.equal(choose(logits, k), logits.topk(k).indices)


def test_close_and_equal_logits():
    logits = torch.tensor(
        [[-1.0, 1.0, 1.0 + 2**-23, 1.0, -(2.0**-126), 0.0], [-2.0, -2.0, -2.0, 5.0, -2.0, -3.0]]
    )
    assert choose(logits, 4).tolist() == [[2, 3, 1, 5], [3, 0, 1, 2]]


def test_equal_logits_choose_different_experts():
    for value in (0.0, -0.0, 3.0, -3.0):
        ids = choose(torch.full((4, 20), value), 5)
        assert all(len(set(row)) == 5 for row in ids.tolist())


def test_operation_is_registered_completely():
    torch.library.opcheck(_choose, (torch.randn(5, 7), 3))
