"""Small models that the tests of the model share."""

from __future__ import annotations

import pytest
import torch

from smelt.model import LoopedLM, ModelConfig
from smelt.study import Geometry

SIZES = {
    "hidden": 32, "layers": 4, "heads": 4, "kv_heads": 2, "head_dim": 8, "experts": 12, "top_k": 3,
    "expert_dim": 16,
}  # fmt: skip
LOOP = {"loop_start": 1, "loop_length": 2, "loop_count": 2}


# On a busy machine two threads mostly wait for each other.
torch.set_num_threads(1)


def build(qk_norm: bool = True, seed: int = 0, **sizes) -> LoopedLM:
    """Return a model whose weights are large enough for every part to matter."""
    config = ModelConfig(Geometry(**{**SIZES, **sizes}), vocab=64, qk_norm=qk_norm, init_std=0.2)
    return LoopedLM(config, seed)


@pytest.fixture
def baseline() -> LoopedLM:
    return build()


@pytest.fixture
def looped() -> LoopedLM:
    return build(**LOOP)


@pytest.fixture
def tokens_bt() -> torch.Tensor:
    return torch.randint(0, 64, (3, 24), generator=torch.Generator().manual_seed(7))


@pytest.fixture
def segments_bt() -> torch.Tensor:
    """Documents of 1 to 15 tokens."""
    starts = torch.zeros(3, 24, dtype=torch.int64)
    for row, cuts in enumerate([(5, 6, 21), (12,), (1, 16)]):
        starts[row, list(cuts)] = 1
    return starts.cumsum(1)
