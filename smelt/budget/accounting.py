"""What one model costs: parameters, training FLOPs per token, KV cache per token, sparsity.

The accounting is that of section 3: SwiGLU experts, a linear router, RMSNorm, no biases. Only the layers
count: the embedding, the output head and the final norm in front of it belong to the vocabulary's end and
are left out of all three budgets. So are the query and key norms (2 d_h elements a layer, where a study has
them): the paper does not say whether it uses them, and they change no printed digit.
"""

from __future__ import annotations

from dataclasses import dataclass

from smelt.study import Geometry

# Bytes of one cached key or value element; with precision `auto` the cache is counted as on a CPU.
ELEMENT_BYTES = {"fp32": 4, "auto": 4, "bf16": 2}


@dataclass(frozen=True)
class Parameters:
    """Trainable elements of all physical layers by group; `active` counts top_k experts a layer."""

    attention: int
    experts: int
    router: int
    norms: int
    active: int

    @property
    def total(self) -> int:
        """Non-embedding parameters N."""
        return self.attention + self.experts + self.router + self.norms


@dataclass(frozen=True)
class Budget:
    """The three quantities that a pair must share.

    Attributes:
        flops: training FLOPs per token, forward and backward, of every executed layer.
        params: non-embedding parameters.
        kv: elements of the KV cache per token.
    """

    flops: float
    params: int
    kv: int

    def ratios(self, target: Budget) -> tuple[float, float, float]:
        """Return FLOPs, parameters and KV cache relative to `target`."""
        return self.flops / target.flops, self.params / target.params, self.kv / target.kv


def attention_params(geometry: Geometry) -> int:
    """Return the weights of one layer's Q, K, V and output projections: 2 H (n_h d_h + n_kv d_h)."""
    return 2 * geometry.hidden * (geometry.heads + geometry.kv_heads) * geometry.head_dim


def parameters(geometry: Geometry) -> Parameters:
    """Count the physical layers, each once (section 3)."""
    attention = attention_params(geometry)
    expert = 3 * geometry.hidden * geometry.expert_dim
    router = geometry.hidden * geometry.experts
    norms = 2 * geometry.hidden
    layers = geometry.layers
    return Parameters(
        attention=layers * attention,
        experts=layers * geometry.experts * expert,
        router=layers * router,
        norms=layers * norms,
        active=layers * (attention + geometry.top_k * expert + router + norms),
    )


def layer_flops(geometry: Geometry, attended: float) -> float:
    """Return training FLOPs per token of one execution of a layer (section 3).

    Six per weight that a token meets, and 12 n_h d_h per attended token for scores and weighted sum;
    `attended` is the mean number of tokens that a query attends to.
    """
    weights = attention_params(geometry) + geometry.hidden * (
        3 * geometry.top_k * geometry.expert_dim + geometry.experts
    )
    return 6.0 * weights + 12.0 * geometry.heads * geometry.head_dim * attended


def flops_per_token(geometry: Geometry, attended: float) -> float:
    """Return training FLOPs per token of the executed stack, L_eff times one execution."""
    return geometry.effective_layers * layer_flops(geometry, attended)


def head_flops(geometry: Geometry, vocab: int) -> float:
    """Return training FLOPs per token of the output head; in no budget, but in the machine's time."""
    return 6.0 * geometry.hidden * vocab


def kv_elements(geometry: Geometry) -> int:
    """Return cached elements per token, 2 L_eff n_kv d_h: every execution keeps its own (section 1)."""
    return 2 * geometry.effective_layers * geometry.kv_heads * geometry.head_dim


def budget(geometry: Geometry, attended: float) -> Budget:
    """Return the three budgets of a model."""
    return Budget(flops_per_token(geometry, attended), parameters(geometry).total, kv_elements(geometry))


def sparsity(model: Budget, control: Budget) -> float:
    """Return the compute-equivalent sparsity S = 1 - (F/F0 N0)/N against a fully active control."""
    return 1.0 - model.flops / control.flops * control.params / model.params
