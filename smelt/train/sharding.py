"""Parameters spread over processes: FSDP2 on each block, the stacks of experts by expert."""

from __future__ import annotations

import torch
from torch import Tensor, nn
from torch.distributed.device_mesh import DeviceMesh
from torch.distributed.fsdp import fully_shard, register_fsdp_forward_method
from torch.distributed.tensor import DTensor, distribute_tensor

from smelt.model.init import initial_value


def shard(model: nn.Module, mesh: DeviceMesh, seed: int) -> None:
    """Shard a `LoopedLM` made on the meta device over `mesh`, then give it its initial weights.

    Every tensor is cut along its first dimension: experts, vocabulary or rows. No process ever holds more
    than one whole tensor. Weights are gathered in float32 and cast where they are used, as in a single
    process, so that the router stays in float32.
    """
    for layer in model.layers:
        fully_shard(layer, mesh=mesh)
    fully_shard(model, mesh=mesh)
    # Losses are computed without the logits as a whole, so training enters the model by this method.
    register_fsdp_forward_method(model, "loss")
    model.to_empty(device=mesh.device_type)
    with torch.no_grad():
        for name, parameter in model.named_parameters():
            value = initial_value(model.config, name, parameter.shape, seed).to(parameter.device)
            parameter.copy_(distribute_tensor(value, mesh, parameter.placements, src_data_rank=None))


def local(tensor: Tensor) -> Tensor:
    """Return this process's part of a possibly sharded tensor, sharing its memory."""
    return tensor.to_local() if isinstance(tensor, DTensor) else tensor


def whole(tensor: Tensor) -> Tensor:
    """Return a possibly sharded tensor as a whole; every process must take part."""
    return tensor.full_tensor() if isinstance(tensor, DTensor) else tensor
