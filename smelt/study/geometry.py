"""Sizes of one model and the order in which its layers are executed.

The list of executions is the single description of a loop: the model runs it, the budget counts it,
the capture indexes it and the figures draw it.
"""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import Any

from smelt.errors import SmeltError

ORDERS = ("block", "layer")


@dataclass(frozen=True)
class Execution:
    """One application of a physical layer.

    Attributes:
        layer: physical layer, 0-based.
        visit: 0 for the first visit of a looped layer and for every layer outside the span.
        scale: factor on each sublayer write; 1/loop_count inside the span, else 1 (section 1).
        looped: whether the layer belongs to the span.
    """

    layer: int
    visit: int
    scale: float
    looped: bool


@dataclass(frozen=True)
class Geometry:
    """Sizes of a looped mixture-of-experts decoder.

    A Baseline has `loop_length == 0` and `loop_count == 1`. `loop_order` is `block` (the whole span,
    then the whole span again: the paper) or `layer` (each layer repeated in place).
    """

    hidden: int
    layers: int
    heads: int
    kv_heads: int
    head_dim: int
    experts: int
    top_k: int
    expert_dim: int
    loop_start: int = 0
    loop_length: int = 0
    loop_count: int = 1
    loop_order: str = "block"

    def __post_init__(self) -> None:
        sizes = ("hidden", "layers", "heads", "kv_heads", "head_dim", "experts", "top_k", "expert_dim")
        for name in sizes:
            if getattr(self, name) < 1:
                raise SmeltError(f"{name} is {getattr(self, name)}; it must be at least 1")
        if self.top_k > self.experts:
            raise SmeltError(f"top_k is {self.top_k}; it must not exceed experts, which is {self.experts}")
        if self.heads % self.kv_heads:
            raise SmeltError(
                f"heads is {self.heads}; it must be a multiple of kv_heads, which is {self.kv_heads}"
            )
        if self.head_dim % 2:
            raise SmeltError(f"head_dim is {self.head_dim}; rotary embedding needs an even head size")
        if self.loop_order not in ORDERS:
            raise SmeltError(f"loop_order is {self.loop_order!r}; it must be one of {ORDERS}")
        if self.loop_count < 1 or self.loop_length < 0 or self.loop_start < 0:
            raise SmeltError("loop_count must be at least 1, loop_start and loop_length at least 0")
        if self.loop_start + self.loop_length > self.layers:
            raise SmeltError(
                f"the span covers layers {self.loop_start + 1} to {self.loop_start + self.loop_length}; "
                f"the stack has {self.layers}"
            )
        if (self.loop_length == 0) != (self.loop_count == 1):
            raise SmeltError(
                f"loop_length is {self.loop_length} and loop_count is {self.loop_count}; "
                "an unlooped model has 0 and 1, a looped one at least 1 and 2"
            )

    @property
    def looped(self) -> bool:
        """Whether any layer is executed more than once."""
        return self.loop_count > 1

    @property
    def effective_layers(self) -> int:
        """Executed layers, L_eff = L + (r - 1) m (section 1)."""
        return self.layers + (self.loop_count - 1) * self.loop_length

    @property
    def span(self) -> range:
        """The looped physical layers, 0-based; empty for a Baseline."""
        return range(self.loop_start, self.loop_start + self.loop_length)

    def schedule(self) -> tuple[Execution, ...]:
        """Return the executions in order; `effective_layers` of them."""
        span, visits = self.span, range(self.loop_count)
        if self.loop_order == "block":
            inside = [(layer, visit) for visit in visits for layer in span]
        else:
            inside = [(layer, visit) for layer in span for visit in visits]
        front = [Execution(layer, 0, 1.0, False) for layer in range(self.loop_start)]
        loop = [Execution(layer, visit, 1.0 / self.loop_count, True) for layer, visit in inside]
        back = [Execution(layer, 0, 1.0, False) for layer in range(span.stop, self.layers)]
        return tuple(front + loop + back)

    def to_dict(self) -> dict[str, Any]:
        """Return plain values for JSON."""
        return asdict(self)


def centred_start(layers: int, length: int) -> int:
    """Return how many layers come before a span of `length`: floor((L - m) / 2) (section 1)."""
    if not 0 <= length <= layers:
        raise SmeltError(f"a span of {length} layers does not fit a stack of {layers}")
    return (layers - length) // 2
