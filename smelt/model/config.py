"""Sizes and constants of one model, and the place where impossible ones are refused."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import Any

from smelt.errors import SmeltError
from smelt.study import Geometry, RunSpec

NORM_EPS = 1e-6


@dataclass(frozen=True)
class ModelConfig:
    """Everything that determines the function a model computes, beside its weights.

    Attributes:
        geometry: sizes of the stack and its loop.
        vocab: rows of the embedding and of the head, which are not tied.
        qk_norm: RMSNorm of each query and key head before the rotary embedding.
        rope_base: base of the rotary frequencies.
        init_std: standard deviation of the initial matrices (see `smelt.model.init`).
    """

    geometry: Geometry
    vocab: int
    qk_norm: bool = True
    rope_base: float = 10000.0
    init_std: float = 0.02

    def __post_init__(self) -> None:
        if self.vocab < 2:
            raise SmeltError(f"vocab is {self.vocab}; it must be at least 2")
        if self.rope_base <= 1:
            raise SmeltError(f"rope_base is {self.rope_base}; it must exceed 1")
        if self.init_std <= 0:
            raise SmeltError(f"init_std is {self.init_std}; it must be positive")

    @classmethod
    def from_spec(cls, spec: RunSpec) -> ModelConfig:
        """Return the configuration of a run."""
        return cls(
            geometry=spec.geometry,
            vocab=spec.corpus.vocab,
            qk_norm=spec.model.qk_norm,
            rope_base=spec.model.rope_base,
            init_std=spec.training.init_std,
        )

    def to_dict(self) -> dict[str, Any]:
        """Return plain values for JSON."""
        return asdict(self)

    @classmethod
    def from_dict(cls, raw: dict[str, Any]) -> ModelConfig:
        """Rebuild a configuration from the values of `to_dict`."""
        return cls(**{**raw, "geometry": Geometry(**raw["geometry"])})

    def check_alignment(self, bytes_per_element: int) -> None:
        """Refuse sizes that the grouped products of the `grouped` backend cannot take.

        Rows of an expert's matrices must be whole units of 16 bytes: 4 elements in float32, 8 in bfloat16.

        Raises:
            SmeltError: naming the size.
        """
        unit = 16 // bytes_per_element
        for name in ("hidden", "expert_dim"):
            value = getattr(self.geometry, name)
            if value % unit:
                raise SmeltError(
                    f"{name} is {value}; grouped products of {bytes_per_element}-byte numbers need "
                    f"a multiple of {unit}"
                )
