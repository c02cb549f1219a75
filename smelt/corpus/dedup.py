"""Remove repeated text: exact paragraphs and documents, and nearly equal documents (MinHash)."""

from __future__ import annotations

import functools
import hashlib
import zlib
from collections.abc import Iterable

import numpy as np
from datasketch import MinHash, MinHashLSH

# A shorter paragraph ("Returns", "else:") says too little to count as copied.
MIN_PARAGRAPH = 80
PERMUTATIONS = 64
THRESHOLD = 0.8
SHINGLE = 5
# Of a long document the shingles with the smallest hashes are compared; that estimates the same similarity.
MAX_SHINGLES = 2_000


def signature(text: str) -> np.ndarray:
    """Return the MinHash values [64] (unsigned 32-bit) of the sets of five consecutive words of `text`."""
    shingles = _windows(text, SHINGLE)
    values = np.unique(shingles >> np.uint64(32))
    if len(values) > MAX_SHINGLES:
        values = values[values < (MAX_SHINGLES << 32) // len(values)]
    sketch = _sketch()
    sketch.update_batch(values.tolist())
    return sketch.hashvalues.astype(np.uint32)


def _windows(text: str, size: int) -> np.ndarray:
    """Return a 64-bit hash of every window of `size` words; one window if there are fewer words."""
    words = np.array([zlib.crc32(word.encode()) for word in text.split()], dtype=np.uint64)
    if len(words) < size:
        words = np.pad(words, (0, size - len(words)))
    hashes = np.zeros(len(words) - size + 1, dtype=np.uint64)
    with np.errstate(over="ignore"):
        for offset in range(size):
            part = words[offset : offset + len(hashes)]
            hashes = (hashes ^ part) * np.uint64(0x9E3779B97F4A7C15)
            hashes ^= hashes >> np.uint64(29)
    return hashes


def repeated_windows(texts: Iterable[str], size: int = 8) -> float:
    """Return the share of the windows of `size` words that occurred before, over all `texts`."""
    windows = np.concatenate([_windows(text, size) for text in texts])
    return 1.0 - len(np.unique(windows)) / len(windows)


@functools.cache
def _permutations() -> np.ndarray:
    return MinHash(PERMUTATIONS, scheme="affine32").permutations


def _sketch(values: np.ndarray | None = None) -> MinHash:
    return MinHash(
        PERMUTATIONS, hashfunc=int, hashvalues=values, permutations=_permutations(), scheme="affine32"
    )


class Deduplicator:
    """Sees documents one after the other and returns what is new in each."""

    def __init__(self) -> None:
        self._paragraphs: set[bytes] = set()
        self._documents: set[bytes] = set()
        self._index = MinHashLSH(threshold=THRESHOLD, num_perm=PERMUTATIONS)
        self.removed = {"paragraphs": 0, "documents": 0, "near": 0}

    def new_text(self, text: str) -> str:
        """Return `text` without paragraphs of at least `MIN_PARAGRAPH` bytes that occurred before.

        The result is empty if nothing is left or the whole document occurred before.
        """
        kept, removed = [], False
        for paragraph in text.split("\n\n"):
            data = paragraph.strip().encode()
            if len(data) >= MIN_PARAGRAPH:
                key = hashlib.blake2b(data, digest_size=8).digest()
                if key in self._paragraphs:
                    self.removed["paragraphs"] += 1
                    removed = True
                    continue
                self._paragraphs.add(key)
            kept.append(paragraph)
        text = "\n\n".join(kept).strip("\n") if removed else text
        key = hashlib.blake2b(text.encode(), digest_size=8).digest()
        if key in self._documents:
            self.removed["documents"] += 1
            return ""
        self._documents.add(key)
        return text

    def is_near(self, values: np.ndarray) -> bool:
        """Return whether a document seen before is similar (Jaccard 0.8 or so); remember this one if not."""
        sketch = _sketch(values)
        if self._index.query(sketch):
            self.removed["near"] += 1
            return True
        self._index.insert(len(self._index.keys), sketch, check_duplication=False)
        return False
