"""FLOPs that PyTorch counts in a built model against the budgets' formula."""

from __future__ import annotations

import pytest
from torch.utils.flop_counter import FlopCounterMode

from smelt.budget.accounting import flops_per_token, head_flops
from tests.model.conftest import LOOP, build


@pytest.mark.parametrize("backend", ["auto", "reference"])
@pytest.mark.parametrize("loop", [{}, LOOP], ids=["baseline", "looped"])
def test_counted_flops_are_those_of_the_budget(tokens_bt, loop, backend):
    model = build(**loop)
    for layer in model.layers:
        layer.moe.backend = backend
    with FlopCounterMode(display=False) as counter:
        model.loss(tokens_bt, tokens_bt).ce.backward()
    # Of attention only the score products are left out: the counter takes the kernel's own recomputation.
    kinds = counter.get_flop_counts()["Global"]
    counted = sum(count for kind, count in kinds.items() if "attention" not in str(kind))
    weights = flops_per_token(model.config.geometry, 0) + head_flops(
        model.config.geometry, model.config.vocab
    )
    assert counted == tokens_bt.numel() * weights
