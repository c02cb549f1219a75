"""The parts of the path on a GPU that a processor can run too: bfloat16 and compiled blocks."""

from dataclasses import replace

import pytest
import torch
from torch._dynamo.utils import counters

from smelt.errors import SmeltError
from smelt.model import LoopedLM, ModelConfig
from smelt.model.weights import read_weights
from smelt.results.parquet import read_rows
from smelt.train.data import Share, Updates
from smelt.train.engine import compile_blocks, train
from smelt.train.hardware import plan
from smelt.train.schedule import Itinerary
from tests.train.tiny import RandomCorpus, tiny_spec


def test_bfloat16_trains_float32_weights_to_almost_the_same_losses(finished, tmp_path):
    spec = tiny_spec(precision="bf16")
    train(spec, RandomCorpus(), tmp_path, plan(spec))
    rows, expected = (read_rows(folder / "train_log.parquet") for folder in (tmp_path, finished))
    differences = [abs(row["loss"] - other["loss"]) for row, other in zip(rows, expected, strict=True)]
    assert 1e-5 < max(differences) < 0.1
    weights = read_weights(tmp_path / "endpoints/h7.safetensors", ModelConfig.from_spec(spec))
    assert {tensor.dtype for tensor in weights.values()} == {torch.float32}


@pytest.mark.slow
def test_compiled_blocks_are_one_graph_for_each_scale_and_compute_the_same():
    spec = tiny_spec()
    data = Updates(spec, RandomCorpus(), Itinerary(spec), 0, Share())
    plain, compiled = (LoopedLM(ModelConfig.from_spec(spec), 0) for _ in range(2))
    counters.clear()
    compile_blocks(compiled, backend="aot_eager")
    for number in range(3):
        piece = data[number][2][0]
        losses = []
        for model in (plain, compiled):
            out = model.loss(**piece)
            (out.ce + 0.1 * out.balance).backward()
            losses.append(out.ce.item())
        assert losses[0] == pytest.approx(losses[1], abs=1e-6)
    for one, other in zip(plain.parameters(), compiled.parameters(), strict=True):
        torch.testing.assert_close(one.grad, other.grad)
    assert counters["stats"]["unique_graphs"] == 2  # inside the span and outside
    assert not counters["graph_break"]
    assert list(compiled.state_dict()) == list(plain.state_dict())


def test_bf16_is_chosen_where_there_is_a_gpu(monkeypatch):
    spec = tiny_spec(precision="auto")
    assert plan(spec).precision == "fp32"
    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
    monkeypatch.setattr(torch.cuda, "get_device_name", lambda: "NVIDIA H200")
    hardware = plan(spec, leased=4, sharded=True)
    assert (hardware.precision, hardware.name, hardware.sharded) == ("bf16", "4 x NVIDIA H200", True)
    assert hardware.peak == 4 * 989e12


def test_sizes_that_bf16_cannot_take_are_refused():
    spec = tiny_spec(precision="bf16")
    odd = replace(spec, geometry=replace(spec.geometry, hidden=28))
    with pytest.raises(SmeltError, match="run xs-s85-smelt cannot train in bf16: hidden is 28"):
        plan(odd)
