"""Hashes of runs of consecutive words: what near-duplicates, repetition and contamination are measured by."""

from __future__ import annotations

import zlib
from collections.abc import Iterable, Sequence

import numpy as np


def windows(words: Sequence[str], size: int) -> np.ndarray:
    """Return a 64-bit hash of every run of `size` words; none if there are fewer words."""
    count = len(words) - size + 1
    if count < 1:
        return np.zeros(0, np.uint64)
    ids = np.fromiter((zlib.crc32(word.encode()) for word in words), np.uint64, len(words))
    hashes = np.zeros(count, np.uint64)
    with np.errstate(over="ignore"):
        for offset in range(size):
            hashes = (hashes ^ ids[offset : offset + count]) * np.uint64(0x9E3779B97F4A7C15)
            hashes ^= hashes >> np.uint64(29)
    return hashes


def repeated_share(texts: Iterable[str], size: int = 8) -> float:
    """Return the share of the runs of `size` words that occurred before, over all `texts`; 0 without any."""
    hashes = np.concatenate([windows(text.split(), size) for text in texts])
    return 1.0 - len(np.unique(hashes)) / len(hashes) if len(hashes) else 0.0
