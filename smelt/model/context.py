"""What one forward pass shares between its layers: positions, rotary factors, attention mask, cache, records.

Shapes: b rows, t tokens, s keys, d head size.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, field, replace

import torch
from torch import Tensor
from torch.nn.attention.flex_attention import BlockMask, create_block_mask

from smelt.model.cache import CacheSlot, KVCache

# None stands for plain causal attention. A boolean mask is True where a query may look, one of floating type
# is added to the scores.
Mask = Tensor | BlockMask | None


@dataclass
class RouterRecord:
    """What the losses need of one routing decision.

    `mean_e` is the mean router probability (with gradient), `count_e` how many token slots each expert
    received, `z` the mean squared log-sum-exp of the logits.
    """

    mean_e: Tensor
    count_e: Tensor
    z: Tensor


@dataclass(frozen=True)
class Context:
    """Shared input of the blocks; `at` gives the view of one execution."""

    positions_bt: Tensor
    rotation: tuple[Tensor, Tensor]
    mask: Mask
    cache: KVCache | None = None
    slot: CacheSlot | None = None
    records: list[RouterRecord] | None = field(default=None, compare=False)

    def at(self, execution: int) -> Context:
        """Return the context of one execution: with its own slot of the cache."""
        return self if self.cache is None else replace(self, slot=self.cache.slots[execution])

    def recording(self, records: list[RouterRecord]) -> Context:
        """Return a context whose routers append to `records`."""
        return replace(self, records=records)


def rotary_factors(positions_bt: Tensor, head_dim: int, base: float) -> tuple[Tensor, Tensor]:
    """Return the factors of an element and of its partner, each `[b, t, 1, head_dim]` in float32.

    The pair (i, i + d/2) turns by the angle `position * base^(-2i/d)` (Su et al. 2021): its factors are the
    cosine twice, and the sine with its sign.
    """
    exponent = torch.arange(0, head_dim, 2, device=positions_bt.device, dtype=torch.float64) / head_dim
    angle = positions_bt[..., None, None].double() * base**-exponent
    cos, sin = angle.cos().float(), angle.sin().float()
    return torch.cat([cos, cos], -1), torch.cat([-sin, sin], -1)


def attention_mask(inputs_bt: Tensor, segments_bt: Tensor | None) -> Mask:
    """Return the mask under which a token sees itself and earlier tokens of its own segment.

    On CUDA a block mask for flex attention, or None where every row is one segment; elsewhere 0 and minus
    infinity, `[b or 1, 1, t, t]` float32, made once for all layers.
    """
    if inputs_bt.is_cuda:
        return None if segments_bt is None else segment_block_mask(segments_bt)
    t, device = inputs_bt.shape[1], inputs_bt.device
    hidden_btt = torch.ones(1, t, t, dtype=torch.bool, device=device).triu_(1)
    if segments_bt is not None:
        hidden_btt = hidden_btt | (segments_bt[:, :, None] != segments_bt[:, None, :])
    mask_btt = torch.zeros(hidden_btt.shape, device=device).masked_fill_(hidden_btt, -math.inf)
    return mask_btt.unsqueeze(1)


def segment_block_mask(segments_bt: Tensor) -> BlockMask:
    """Return the same mask in the sparse form of flex attention."""
    b, t = segments_bt.shape

    def visible(row: Tensor, head: Tensor, query: Tensor, key: Tensor) -> Tensor:
        return (query >= key) & (segments_bt[row, query] == segments_bt[row, key])

    return create_block_mask(visible, b, None, t, t, device=segments_bt.device)


def cached_mask(cache: KVCache, segments_bt: Tensor | None, length: int) -> Mask:
    """Return the boolean mask `[b, 1, t, s]` of the last `length` cached tokens over all of them."""
    s = cache.length
    if segments_bt is None:
        if length == 1:
            return torch.ones(1, 1, 1, s, dtype=torch.bool, device=cache.segments_bs.device)
        index_s = torch.arange(s, device=cache.segments_bs.device)
        return (index_s[-length:, None] >= index_s[None, :])[None, None]
    segments_bs = cache.segments_bs[:, :s]
    index_s = torch.arange(s, device=segments_bs.device)
    same_bts = segments_bs[:, -length:, None] == segments_bs[:, None, :]
    return (same_bts & (index_s[-length:, None] >= index_s[None, :])).unsqueeze(1)
