"""Remove repeated text: exact paragraphs and documents, and nearly equal documents (MinHash)."""

from __future__ import annotations

import functools
import hashlib

import numpy as np
from datasketch import MinHash, MinHashLSH

from smelt.corpus.windows import windows

# A shorter paragraph ("Returns", "else:") says too little to count as copied.
MIN_PARAGRAPH = 80
PERMUTATIONS = 64
THRESHOLD = 0.8
SHINGLE = 5
# Of a long document the shingles with the smallest hashes are compared; that estimates the same similarity.
MAX_SHINGLES = 2_000


def signature(text: str) -> np.ndarray:
    """Return the MinHash values [64] (unsigned 32-bit) of the sets of five consecutive words of `text`."""
    words = text.split()
    words += [""] * (SHINGLE - len(words))
    values = np.unique(windows(words, SHINGLE) >> np.uint64(32))
    if len(values) > MAX_SHINGLES:
        values = values[values < (MAX_SHINGLES << 32) // len(values)]
    sketch = _sketch()
    sketch.update_batch(values.tolist())
    return sketch.hashvalues.astype(np.uint32)


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
        self._indexed = 0

    def new_text(self, text: str) -> tuple[str, int]:
        """Return `text` without paragraphs of at least `MIN_PARAGRAPH` bytes that occurred before.

        Returns:
            The text, which is empty if the whole document occurred before, and how many paragraphs went.
        """
        kept, removed = [], 0
        for paragraph in text.split("\n\n"):
            data = paragraph.strip().encode()
            if len(data) >= MIN_PARAGRAPH and not _add(self._paragraphs, data):
                removed += 1
            else:
                kept.append(paragraph)
        text = "\n\n".join(kept).strip("\n") if removed else text
        return (text if _add(self._documents, text.encode()) else ""), removed

    def is_near(self, values: np.ndarray) -> bool:
        """Return whether a document seen before is similar (Jaccard 0.8 or so); remember this one if not."""
        sketch = _sketch(values)
        if self._index.query(sketch):
            return True
        self._index.insert(self._indexed, sketch, check_duplication=False)
        self._indexed += 1
        return False


def _add(seen: set[bytes], data: bytes) -> bool:
    """Add the hash of `data` to `seen` and return whether it is new."""
    key = hashlib.blake2b(data, digest_size=8).digest()
    before = len(seen)
    seen.add(key)
    return len(seen) > before
