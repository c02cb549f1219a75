"""Memory in the plan against what the model keeps, and the placement on devices."""

from __future__ import annotations

import pytest
import torch

from smelt.budget.accounting import parameters
from smelt.budget.plan import (
    MACHINES,
    MICRO_TOKENS,
    Machine,
    activation_bytes,
    choose_machine,
    corpus_bytes,
    placement,
)
from smelt.errors import SmeltError
from smelt.model import LoopedLM, ModelConfig
from smelt.study import Geometry, load_study

FLAT = Geometry(hidden=64, layers=3, heads=2, kv_heads=1, head_dim=32, experts=16, top_k=8, expert_dim=24)
LOOPED = Geometry(**{**FLAT.to_dict(), "loop_start": 1, "loop_length": 1, "loop_count": 3})
BIG = Geometry(
    hidden=2304, layers=30, heads=18, kv_heads=2, head_dim=128, experts=336, top_k=8, expert_dim=768
)


def kept_bytes(geometry: Geometry, rows: int, tokens: int) -> int:
    """Return bytes of distinct storages, other than weights, that autograd keeps for the stack."""
    model = LoopedLM(ModelConfig(geometry, vocab=32))
    weights = {parameter.untyped_storage().data_ptr() for parameter in model.parameters()}
    kept = {}

    def keep(tensor: torch.Tensor) -> torch.Tensor:
        kept[tensor.untyped_storage().data_ptr()] = tensor
        return tensor

    inputs_bt = torch.zeros(rows, tokens, dtype=torch.int64)
    with torch.autograd.graph.saved_tensors_hooks(keep, lambda tensor: tensor):
        model.hidden(inputs_bt, model.context(inputs_bt))
    return sum(t.untyped_storage().nbytes() for key, t in kept.items() if key not in weights)


@pytest.mark.parametrize("geometry", [FLAT, LOOPED], ids=["flat", "looped"])
def test_activations_equal_what_autograd_keeps(geometry):
    # The difference of two lengths leaves out what does not grow with the tokens.
    kept = (kept_bytes(geometry, 4, 96) - kept_bytes(geometry, 4, 32)) / (4 * 64)
    assert activation_bytes(geometry, "fp32") == pytest.approx(kept, rel=0.15)


def test_placement_holds_the_run_and_one_device_less_does_not():
    stored, machine = parameters(BIG).total, MACHINES["h200"]
    place = placement(BIG, stored, "bf16", machine, 4096)
    assert place.devices > 1
    assert place.memory <= 0.9 * machine.memory
    halved = 16 * stored / (place.devices / 2) + 4096 * activation_bytes(BIG, "bf16")
    assert halved > 0.9 * machine.memory - 10 * stored / BIG.layers
    assert 4096 <= place.micro_tokens <= MICRO_TOKENS


def test_smaller_devices_take_smaller_pieces():
    stored = parameters(BIG).total
    large = placement(BIG, stored, "bf16", Machine("large", 1e15, 0.3, 2e12), 4096)
    small = placement(BIG, stored, "bf16", MACHINES["a100"], 4096)
    assert (large.devices, large.micro_tokens) == (1, MICRO_TOKENS)
    assert small.devices > large.devices


def test_corpus_bytes_follow_vocabulary_and_epochs():
    study = load_study("paper")
    # Trunk and one branch of tokens, two bytes each.
    tokens = (196_075 + 9_537) * 256 * 4096 + study.evaluation.validation_tokens
    assert corpus_bytes(study) == pytest.approx(2 * tokens)


def test_machine_follows_the_precision():
    assert choose_machine(load_study("paper"), None, None) == MACHINES["h200"]
    assert choose_machine(load_study("nano"), None, None) == MACHINES["core"]
    assert choose_machine(load_study("nano"), "h100", 0.5).mfu == 0.5
    for mfu in (0.0, -0.1, 1.01):
        with pytest.raises(SmeltError, match="--mfu"):
            choose_machine(load_study("nano"), None, mfu)
