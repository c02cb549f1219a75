"""Sequences of one item share their beginning: score the shared part once.

The options of an item differ in their last tokens only. They become one row: the common beginning (the
trunk), then each distinct ending (a branch), every branch at the positions after the trunk and blind to
the other branches. That is what a key-value cache of the prefix would give, in one batched forward pass.

Shape suffixes: b rows of a batch, t positions of a row.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np

from smelt.evaluate.sequences import Scored


@dataclass(frozen=True)
class Tree:
    """The sequences of one item as one row of input tokens.

    Attributes:
        ids, positions, branches: per input token its id, its position in its own sequence and its branch
            (0 for the trunk).
        where: for each sequence the row indices that predict its answer tokens.
        targets: for each sequence its answer tokens.
    """

    ids: list[int]
    positions: list[int]
    branches: list[int]
    where: list[list[int]]
    targets: list[list[int]]


def plant(sequences: Sequence[Scored]) -> Tree:
    """Return the tree of an item's sequences; the last token of each is a target only."""
    inputs = [sequence.ids[:-1] for sequence in sequences]
    trunk = _common_prefix(inputs)
    ids, positions, branches = list(inputs[0][:trunk]), list(range(trunk)), [0] * trunk
    begins: dict[tuple[int, ...], int] = {}
    where = []
    for sequence, tokens in zip(sequences, inputs, strict=True):
        ending = tuple(tokens[trunk:])
        if ending not in begins:
            begins[ending] = len(ids)
            ids += ending
            positions += range(trunk, len(tokens))
            branches += [len(begins)] * len(ending)
        shift = begins[ending] - trunk
        # The token at index i is predicted from index i - 1.
        sources = range(sequence.start - 1, len(tokens))
        where.append([i if i < trunk else i + shift for i in sources])
    return Tree(ids, positions, branches, where, [s.ids[s.start :] for s in sequences])


def _common_prefix(rows: list[list[int]]) -> int:
    first, last = min(rows), max(rows)
    length = 0
    for a, b in zip(first, last, strict=False):
        if a != b:
            break
        length += 1
    return length


@dataclass(frozen=True)
class TreeBatch:
    """Rows padded on the right to the longest.

    `branches_bt` is -1 at padding. `rows`, `columns`, `targets` and `owners` list every scored token: where
    it is predicted, its id and the number of its sequence, counted over all trees of the call.
    """

    ids_bt: np.ndarray
    positions_bt: np.ndarray
    branches_bt: np.ndarray
    rows: np.ndarray
    columns: np.ndarray
    targets: np.ndarray
    owners: np.ndarray


def batches(trees: Sequence[Tree], batch_tokens: int, pad: int) -> Iterator[TreeBatch]:
    """Yield batches of at most `batch_tokens` input tokens, padding included, similar lengths together."""
    counts = np.cumsum([0] + [len(tree.targets) for tree in trees])
    order = sorted(range(len(trees)), key=lambda i: (-len(trees[i].ids), i))
    while order:
        longest = len(trees[order[0]].ids)
        size = max(1, batch_tokens // longest)
        chosen, order = order[:size], order[size:]
        yield _batch(trees, chosen, counts, longest, pad)


def _batch(trees: Sequence[Tree], chosen: list[int], counts: np.ndarray, longest: int, pad: int) -> TreeBatch:
    shape = (len(chosen), longest)
    ids_bt, positions_bt = np.full(shape, pad, np.int64), np.zeros(shape, np.int64)
    branches_bt = np.full(shape, -1, np.int64)
    rows, columns, targets, owners = [], [], [], []
    for row, index in enumerate(chosen):
        tree = trees[index]
        length = len(tree.ids)
        ids_bt[row, :length] = tree.ids
        positions_bt[row, :length] = tree.positions
        branches_bt[row, :length] = tree.branches
        for k, (where, answer) in enumerate(zip(tree.where, tree.targets, strict=True)):
            rows += [row] * len(where)
            columns += where
            targets += answer
            owners += [counts[index] + k] * len(where)
    return TreeBatch(
        ids_bt, positions_bt, branches_bt, *(np.array(x, np.int64) for x in (rows, columns, targets, owners))
    )
