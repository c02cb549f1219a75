"""Initial weights: a function of the configuration, the seed and the parameter's name, and of nothing else.

Every matrix is normal with standard deviation `init_std`, the embedding too whatever the depth. The two
matrices that write to the residual stream (`attention.o`, `moe.w2`) are smaller by `1/sqrt(2 L_eff)`, one
write for each sublayer of each execution (Radford et al. 2019), by the same rule for both architectures.
Norms start at 1. A parameter has its own generator, so two models of one seed share the weights of every
parameter of equal name and size.
"""

from __future__ import annotations

import hashlib
import math

import torch
from torch import Tensor, nn

from smelt.model.config import ModelConfig


def init_weights(model: nn.Module, seed: int) -> None:
    """Overwrite the parameters of a `LoopedLM` by their initial values."""
    with torch.no_grad():
        for name, parameter in model.named_parameters():
            parameter.copy_(initial_value(model.config, name, parameter.shape, seed))


def initial_value(config: ModelConfig, name: str, shape: torch.Size, seed: int) -> Tensor:
    """Return the initial float32 value of one parameter."""
    if "norm" in name:
        return torch.ones(shape)
    std = config.init_std
    if name.endswith(("attention.o.weight", "moe.w2")):
        std /= math.sqrt(2 * config.geometry.effective_layers)
    digest = hashlib.sha256(f"{seed}/{name}".encode()).digest()
    generator = torch.Generator().manual_seed(int.from_bytes(digest[:8], "little", signed=True))
    return torch.empty(shape).normal_(std=std, generator=generator)
