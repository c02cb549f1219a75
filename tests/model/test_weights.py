"""Weights in files and parameter counts."""

from __future__ import annotations

import pytest
import torch

from smelt.budget import resolve_run
from smelt.errors import SmeltError
from smelt.model import LoopedLM, ModelConfig, count_parameters, load_model, save_weights
from smelt.study import Geometry, load_study
from tests.model.conftest import LOOP, build


@pytest.fixture(scope="module")
def spec():
    return resolve_run(load_study("smoke"), "xs-s85-smelt")


@pytest.fixture
def file(spec, tmp_path):
    save_weights(tmp_path / "weights.safetensors", LoopedLM(ModelConfig.from_spec(spec), 5).state_dict())
    return tmp_path / "weights.safetensors"


def test_a_loaded_model_computes_the_same_bits(spec, file):
    model, loaded = LoopedLM(ModelConfig.from_spec(spec), 5), load_model(file, spec)
    inputs = torch.arange(40).view(2, 20)
    assert torch.equal(model(inputs), loaded(inputs))
    assert not loaded.training


def test_the_same_weights_give_the_same_bytes(spec, file, tmp_path):
    save_weights(tmp_path / "again.safetensors", load_model(file, spec).state_dict())
    assert (tmp_path / "again.safetensors").read_bytes() == file.read_bytes()


def test_weights_of_another_run_are_refused(file):
    other = resolve_run(load_study("smoke"), "xs-s95-smelt")
    with pytest.raises(SmeltError, match=r"weights.safetensors: embed.weight is \(.*\); the run's"):
        load_model(file, other)


def test_damaged_and_missing_files_are_refused(spec, file):
    whole = file.read_bytes()
    file.write_bytes(whole[: len(whole) // 2])
    with pytest.raises(SmeltError, match="not a whole safetensors file"):
        load_model(file, spec)
    file.unlink()
    with pytest.raises(SmeltError, match="does not exist"):
        load_model(file, spec)


@pytest.mark.parametrize("loop", [{}, LOOP], ids=["baseline", "looped"])
def test_groups_by_hand(loop):
    # hidden 32, 4 layers, 4 + 2 + 2 heads of 8, 12 experts of 16
    assert count_parameters(build(**loop).config) == {
        "attention": 4 * (32 * 32 + 2 * 32 * 16 + 32 * 32),
        "experts": 4 * 12 * 3 * 32 * 16,
        "router": 4 * 32 * 12,
        "norms": 4 * 2 * 32,
        "qk_norm": 4 * 2 * 8,
        "final_norm": 32,
        "embedding": 2 * 64 * 32,
    }


def test_groups_cover_the_model(looped):
    assert sum(count_parameters(looped.config).values()) == sum(p.numel() for p in looped.parameters())


def test_paper_sizes_are_counted_without_memory():
    # 600M scale at S = 85% of table 9; section 3 gives N = L (attention + E expert + router + norms)
    sizes = {
        "hidden": 1792,
        "layers": 20,
        "heads": 14,
        "kv_heads": 2,
        "head_dim": 128,
        "experts": 64,
        "top_k": 8,
    }
    counts = count_parameters(ModelConfig(Geometry(**sizes, expert_dim=600), vocab=65536))
    attention = 2 * 1792 * (14 * 128 + 2 * 128)
    layer = attention + 64 * 3 * 1792 * 600 + 1792 * 64 + 2 * 1792
    assert sum(counts[name] for name in ("attention", "experts", "router", "norms")) == 20 * layer
