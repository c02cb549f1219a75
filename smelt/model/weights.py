"""Weights in files, and how many there are."""

from __future__ import annotations

import errno
from collections.abc import Mapping
from pathlib import Path

from safetensors import SafetensorError, safe_open
from safetensors.torch import save_file
from torch import Tensor

from smelt.errors import SmeltError
from smelt.files import atomic_path
from smelt.model.config import ModelConfig
from smelt.model.lm import LoopedLM
from smelt.study import RunSpec

GROUPS = ("attention", "experts", "router", "norms", "qk_norm", "final_norm", "embedding")


def save_weights(path: Path | str, weights: Mapping[str, Tensor]) -> None:
    """Write a model's state dict as safetensors, atomically; the same weights give the same bytes."""
    tensors = {name: tensor.detach().cpu().contiguous() for name, tensor in sorted(weights.items())}
    with atomic_path(path) as temporary:
        write_tensors(tensors, temporary, {"format": "pt"})


def write_tensors(
    tensors: dict[str, Tensor], path: Path | str, metadata: dict[str, str] | None = None
) -> None:
    """Write a safetensors file; a failure is an OSError, as of every other file."""
    try:
        save_file(tensors, path, metadata=metadata)
    except SafetensorError as error:
        raise OSError(errno.EIO, str(error), str(path)) from None


def read_weights(path: Path | str, config: ModelConfig) -> dict[str, Tensor]:
    """Read a state dict written by `save_weights` and check its names and shapes against a configuration.

    Raises:
        SmeltError: the file is missing, damaged or of another model.
    """
    expected = LoopedLM(config, device="meta").state_dict()
    try:
        with safe_open(path, framework="pt") as stream:
            # Matrices inside the file's memory are not aligned as PyTorch's own, and products would round
            # differently.
            weights = {name: stream.get_tensor(name).clone() for name in stream.keys()}  # noqa: SIM118
    except FileNotFoundError:
        raise SmeltError(f"{path} does not exist") from None
    except SafetensorError as error:
        raise SmeltError(f"{path} is not a whole safetensors file: {error}") from None
    for name in sorted(expected.keys() | weights.keys()):
        found = tuple(weights[name].shape) if name in weights else "absent"
        wanted = tuple(expected[name].shape) if name in expected else "absent"
        if found != wanted:
            raise SmeltError(f"{path}: {name} is {found}; the run's specification makes it {wanted}")
    return weights


def load_model(path: Path | str, spec: RunSpec) -> LoopedLM:
    """Return the model of a run with the weights of a safetensors file, in evaluation mode."""
    config = ModelConfig.from_spec(spec)
    model = LoopedLM(config, device="meta")
    model.load_state_dict(read_weights(path, config), assign=True)
    return model.requires_grad_(True).eval()


def count_parameters(config: ModelConfig) -> dict[str, int]:
    """Return how many parameters each group has, counted on the meta device.

    `attention + experts + router + norms` is the `N` of section 3: `attention` is the four projections,
    `norms` the two norms of each layer. `qk_norm` (the norms of query and key heads), `final_norm` and
    `embedding` (embedding and head) are groups of their own and belong to no `N`.
    """
    counts = dict.fromkeys(GROUPS, 0)
    for name, parameter in LoopedLM(config, device="meta").named_parameters():
        counts[_group(name)] += parameter.numel()
    return counts


def _group(name: str) -> str:
    if "layers" not in name:
        return "final_norm" if name == "norm.weight" else "embedding"
    if name.endswith(("q_norm.weight", "k_norm.weight")):
        return "qk_norm"
    if "norm" in name:
        return "norms"
    if "router" in name:
        return "router"
    return "experts" if ".moe." in name else "attention"
