"""Keys and values kept while generating: one slot for each execution, not for each layer (section 1)."""

from __future__ import annotations

import torch
from torch import Tensor

from smelt.errors import SmeltError
from smelt.model.config import ModelConfig


class CacheSlot:
    """Keys and values of one execution, each `[rows, capacity, kv_heads, head_dim]`."""

    def __init__(self, shape: tuple[int, ...], dtype: torch.dtype, device: torch.device | str | None) -> None:
        self.k_bsgd = torch.empty(shape, dtype=dtype, device=device)
        self.v_bsgd = torch.empty(shape, dtype=dtype, device=device)

    def extend(self, start: int, k_btgd: Tensor, v_btgd: Tensor) -> tuple[Tensor, Tensor]:
        """Store new keys and values from position `start` on and return all up to them."""
        stop = start + k_btgd.shape[1]
        self.k_bsgd[:, start:stop] = k_btgd
        self.v_bsgd[:, start:stop] = v_btgd
        return self.k_bsgd[:, :stop], self.v_bsgd[:, :stop]


class KVCache:
    """Cache of a batch of rows that are extended together.

    Attributes:
        length: tokens of each row seen so far.
        segments_bs: segment of each of them; rows of unequal length are padded with a segment of their own.
    """

    def __init__(
        self,
        config: ModelConfig,
        rows: int,
        capacity: int,
        dtype: torch.dtype = torch.float32,
        device: torch.device | str | None = None,
    ) -> None:
        sizes = config.geometry
        shape = (rows, capacity, sizes.kv_heads, sizes.head_dim)
        self.slots = [CacheSlot(shape, dtype, device) for _ in range(sizes.effective_layers)]
        self.segments_bs = torch.zeros(rows, capacity, dtype=torch.int64, device=device)
        self.capacity = capacity
        self.length = 0

    @property
    def bytes_per_token(self) -> int:
        """Bytes of keys and values kept for each token: `2 L_eff n_kv d_h` elements."""
        return sum(t[0, 0].nbytes for slot in self.slots for t in (slot.k_bsgd, slot.v_bsgd))

    def begin(self, rows: int, tokens: int, segments_bt: Tensor | None) -> int:
        """Reserve room for `tokens` more tokens a row and return the position of the first."""
        start, stop = self.length, self.length + tokens
        if rows != self.segments_bs.shape[0]:
            raise SmeltError(f"the cache has {self.segments_bs.shape[0]} rows and the input {rows}")
        if stop > self.capacity:
            raise SmeltError(f"the cache has room for {self.capacity} tokens; {stop} are asked for")
        if segments_bt is not None:
            self.segments_bs[:, start:stop] = segments_bt
        self.length = stop
        return start
