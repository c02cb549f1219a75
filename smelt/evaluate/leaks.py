"""Does an item's text, up to and with its answer, occur in the training text?

An item leaks when the end of its question and answer (white space squeezed, lower case) occurs in a training
document. Ends and training text are compared by rolling hashes, so that a corpus of 100 MB is checked in
seconds.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

import numpy as np

from smelt.evaluate.items import Item
from smelt.evaluate.registry import CHOICE, COMPLETION, Task

# How many bytes at the end must agree: the most that the item has. 48 are about ten words.
LENGTHS = (48, 32, 24, 16)
_BASE = np.uint64(0x9E3779B97F4A7C15 | 1)
_FILTER_BITS = 20


def item_tail(task: Task, item: Item) -> bytes:
    """Return the end of an item's question and gold answer in normal form; all of it when very short."""
    if task.kind == CHOICE:
        text = item["query"] + task.delimiter + item["choices"][item["gold"]]
    elif task.kind == COMPLETION:
        text = item["context"] + task.delimiter + item["continuation"]
    else:
        text = item["context_options"][item["gold"]] + " " + item["continuation"]
    data = normal(text)
    return data[-next((length for length in LENGTHS if length <= len(data)), len(data)) :]


def normal(text: str) -> bytes:
    """Return text in lower case with single blanks for white space, as UTF-8."""
    return " ".join(text.lower().split()).encode()


class LeakFinder:
    """Finds which of many tails occur in texts.

    Args:
        tails: the byte strings to look for.
    """

    def __init__(self, tails: Sequence[bytes]) -> None:
        self._wanted: dict[int, dict[int, set[bytes]]] = {}
        for tail in set(tails):
            (hash_,) = _window_hashes(np.frombuffer(tail, np.uint8), len(tail))
            self._wanted.setdefault(len(tail), {}).setdefault(int(hash_), set()).add(tail)
        self._filters = {}
        for length, hashes in self._wanted.items():
            mask = np.zeros(1 << _FILTER_BITS, bool)
            mask[np.array(list(hashes), np.uint64) >> np.uint64(64 - _FILTER_BITS)] = True
            self._filters[length] = mask
        self.found: set[bytes] = set()

    def read(self, texts: Iterable[str]) -> None:
        """Look through texts; what occurs in them is added to `found`."""
        for text in texts:
            data = np.frombuffer(normal(text), np.uint8)
            sums = _prefix_sums(data)
            for length, mask in self._filters.items():
                if len(data) >= length:
                    self._match(data, _windows(sums, length), length, mask)

    def _match(self, data: np.ndarray, hashes: np.ndarray, length: int, mask: np.ndarray) -> None:
        for start in np.flatnonzero(mask[hashes >> np.uint64(64 - _FILTER_BITS)]):
            candidates = self._wanted[length].get(int(hashes[start]))
            if candidates and (piece := data[start : start + length].tobytes()) in candidates:
                self.found.add(piece)


def _powers(count: int) -> np.ndarray:
    steps = np.full(count, _BASE, np.uint64)
    steps[0] = 1
    return np.multiply.accumulate(steps)


def _prefix_sums(data: np.ndarray) -> np.ndarray:
    """Return s with s[i] = sum over j < i of data[j] base^(n - j), modulo 2^64."""
    n = len(data)
    sums = np.zeros(n + 1, np.uint64)
    if n:
        np.cumsum((data.astype(np.uint64) + np.uint64(1)) * _powers(n)[::-1], out=sums[1:])
    return sums


def _windows(sums: np.ndarray, length: int) -> np.ndarray:
    """Return the hash of every window of `length` bytes, independent of where the window lies."""
    n = len(sums) - 1
    differences = sums[length:] - sums[:-length]
    # The window at i carries the factor base^(n - length - i), which an odd base lets us undo.
    return differences * _inverse_powers(n - length + 1)[::-1]


def _inverse_powers(count: int) -> np.ndarray:
    inverse = np.uint64(pow(int(_BASE), -1, 1 << 64))
    steps = np.full(count, inverse, np.uint64)
    steps[0] = 1
    return np.multiply.accumulate(steps)


def _window_hashes(data: np.ndarray, length: int) -> np.ndarray:
    return _windows(_prefix_sums(data), length)
