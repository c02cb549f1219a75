"""Batches of packed contexts.

Shapes: b rows of a batch, t tokens of a context.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np

from smelt.corpus.shards import ShardReader
from smelt.errors import SmeltError

IGNORE = -100
_OPEN_ROWS = 64


@dataclass(frozen=True)
class Batch:
    """Packed contexts; all arrays are int64 [b, t].

    Attributes:
        inputs_bt: token ids.
        targets_bt: the next token, or -100 where it belongs to another document or to padding.
        segments_bt: 0, 1, ... in each row; attention stays inside a segment. Padding is one too.
        positions_bt: position in the segment.
        documents_bt: row in `Corpus.documents`, -1 for padding; None for training batches.
    """

    inputs_bt: np.ndarray
    targets_bt: np.ndarray
    segments_bt: np.ndarray
    positions_bt: np.ndarray
    documents_bt: np.ndarray | None = None


class Permutation:
    """A pseudo-random permutation of range(n) in constant memory: a Feistel network with cycle walking."""

    _ROUNDS = 6

    def __init__(self, n: int, *key: int) -> None:
        self.n = n
        self._half = max(1, ((n - 1).bit_length() + 1) // 2)
        self._mask = (1 << self._half) - 1
        state = 0
        self._keys = []
        for round_ in range(self._ROUNDS):
            for part in (*key, round_):
                state = _mix(state ^ (part & _U64))
            self._keys.append(state)

    def __call__(self, index: int) -> int:
        """Return the image of `index`, 0 <= index < n."""
        while True:
            left, right = index >> self._half, index & self._mask
            for key in self._keys:
                left, right = right, left ^ (_mix(right ^ key) & self._mask)
            index = left << self._half | right
            if index < self.n:  # the network permutes a power of four; walk on until inside
                return index


_U64 = (1 << 64) - 1


def _mix(x: int) -> int:
    """Return a well mixed 64-bit integer (the finaliser of SplitMix64)."""
    x = (x + 0x9E3779B97F4A7C15) & _U64
    x = (x ^ (x >> 30)) * 0xBF58476D1CE4E5B9 & _U64
    x = (x ^ (x >> 27)) * 0x94D049BB133111EB & _U64
    return x ^ (x >> 31)


def rows_in(tokens: int, context: int) -> int:
    """Return how many whole contexts a shard of so many tokens holds; one more token is the last target."""
    return max(0, (tokens - 1) // context)


class RowSampler:
    """Draws contexts of one split: every row once in an epoch, in an order that seed and epoch decide.

    A row is `context` consecutive tokens of a shard. A document that crosses a row's end goes on as the
    first segment of another row.
    """

    def __init__(self, reader: ShardReader, context: int, bos: int, phase: int) -> None:
        self._reader, self.context, self._bos, self._phase = reader, context, bos, phase
        counts = [rows_in(shard.tokens, context) for shard in reader.shards]
        self._ends = np.cumsum(counts, dtype=np.int64)
        self.rows = int(self._ends[-1]) if counts else 0

    def batch(self, seed: int, start: int, count: int) -> Batch:
        """Return rows `start` to `start + count` of the endless sequence of `seed`."""
        if not self.rows:
            raise SmeltError(
                f"the split has no row of {self.context} tokens; use more text or a shorter context"
            )
        ids = np.empty((count, self.context + 1), dtype=np.int64)
        for offset in range(count):
            epoch, index = divmod(start + offset, self.rows)
            ids[offset] = self._row(Permutation(self.rows, seed, self._phase, epoch)(index))
        return _with_segments(ids, self._bos)

    def _row(self, row: int) -> np.ndarray:
        shard = int(np.searchsorted(self._ends, row, side="right"))
        first = row - (int(self._ends[shard - 1]) if shard else 0)
        begin = first * self.context
        return self._reader.tokens(shard)[begin : begin + self.context + 1]


def _with_segments(ids: np.ndarray, bos: int) -> Batch:
    """Return a batch from ids [b, t + 1] in which every document starts with `bos`."""
    inputs, targets = ids[:, :-1].copy(), ids[:, 1:].copy()
    targets[targets == bos] = IGNORE
    starts = inputs == bos
    starts[:, 0] = True
    index = np.arange(inputs.shape[1])
    first = np.maximum.accumulate(np.where(starts, index, 0), axis=1)
    return Batch(inputs, targets, np.cumsum(starts, axis=1) - 1, index - first)


def pack(pieces: Sequence[tuple[int, np.ndarray]], context: int, batch: int, pad: int) -> Iterator[Batch]:
    """Pack whole pieces into rows and yield batches of at most `batch` rows.

    Args:
        pieces: (document, ids); of ids, at most `context` become inputs, and the one after them the
            last target where there is one.
        context: tokens of a row.
        batch: rows of a batch; the last batch may have fewer.
        pad: id that fills the rows up.
    """
    closed: list[list[tuple[int, np.ndarray]]] = []
    rows: list[list[tuple[int, np.ndarray]]] = []
    free: list[int] = []
    for piece in pieces:
        size = min(len(piece[1]), context)
        slot = next((i for i, room in enumerate(free) if room >= size), None)
        if slot is None:
            if len(rows) == _OPEN_ROWS:
                fullest = min(range(len(free)), key=free.__getitem__)
                closed.append(rows.pop(fullest))
                free.pop(fullest)
            rows.append([])
            free.append(context)
            slot = len(rows) - 1
        rows[slot].append(piece)
        free[slot] -= size
    closed += rows
    for start in range(0, len(closed), batch):
        yield _packed(closed[start : start + batch], context, pad)


def _packed(rows: list[list[tuple[int, np.ndarray]]], context: int, pad: int) -> Batch:
    shape = (len(rows), context)
    inputs, targets = np.full(shape, pad, np.int64), np.full(shape, IGNORE, np.int64)
    segments, positions = np.zeros(shape, np.int64), np.zeros(shape, np.int64)
    documents = np.full(shape, -1, np.int64)
    for b, pieces in enumerate(rows):
        begin = 0
        for segment, (document, ids) in enumerate(pieces):
            size = min(len(ids), context)
            end = begin + size
            inputs[b, begin:end] = ids[:size]
            following = ids[1 : size + 1]
            targets[b, begin : begin + len(following)] = following
            segments[b, begin:end] = segment
            positions[b, begin:end] = np.arange(size)
            documents[b, begin:end] = document
            begin = end
        segments[b, begin:] = len(pieces)
        positions[b, begin:] = np.arange(context - begin)
    return Batch(inputs, targets, segments, positions, documents)
