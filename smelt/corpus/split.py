"""Hold out documents, and keep text for the decay branches apart from the trunk's."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence

import numpy as np
from numpy.typing import ArrayLike

SPLITS = ("validation", "trunk", "decay")
# Upper bounds of the length buckets, in tokens (figure 11a); longer documents belong to the last bucket.
LENGTH_BOUNDS = (32, 64, 128, 256, 512, 1024, 2048, 4096)
# Each class of lengths of a source holds out at least so many documents, but not more than a quarter:
# many of the short ones, whose tokens are few, and one of the long ones.
_HELD_OUT_SHORT, _HELD_OUT_LONG = 12, 1
_SHORT_BYTES = 4096


def length_bucket(tokens: ArrayLike) -> np.ndarray:
    """Return the upper bound of the length bucket of each document of so many tokens."""
    place = np.searchsorted(LENGTH_BOUNDS, tokens)
    return np.array(LENGTH_BOUNDS)[np.minimum(place, len(LENGTH_BOUNDS) - 1)]


def split_documents(
    sizes: Sequence[int], hashes: Sequence[str], validation: float, decay: float
) -> list[str]:
    """Assign the documents of one source to `validation`, `trunk` or `decay`.

    Documents are stratified by length (doublings of bytes) and taken in the order of their hashes. Every
    class with at least four documents gives one or more to validation, so that all lengths are
    measured. Decay text is a share of the remaining bytes.

    Args:
        sizes: bytes of each document.
        hashes: its SHA-256.
        validation: share of the documents to hold out.
        decay: share of the training bytes that only the branches see.
    """
    strata: dict[int, list[int]] = defaultdict(list)
    for index in sorted(range(len(sizes)), key=lambda index: hashes[index]):
        strata[sizes[index].bit_length()].append(index)
    result = ["trunk"] * len(sizes)
    for bits, members in strata.items():
        least = _HELD_OUT_SHORT if 1 << bits <= _SHORT_BYTES else _HELD_OUT_LONG
        count = max(round(validation * len(members)), min(least, len(members) // 4))
        for index in members[:count]:
            result[index] = "validation"
    if "validation" not in result:
        result[min(range(len(sizes)), key=lambda index: hashes[index])] = "validation"
    _assign_decay(result, sizes, [index for _, members in sorted(strata.items()) for index in members], decay)
    return result


def _assign_decay(result: list[str], sizes: Sequence[int], order: list[int], share: float) -> None:
    """Give a document to decay whenever that brings the share of bytes so far closer to `share`."""
    taken = seen = 0
    for index in order:
        if result[index] == "trunk":
            seen += sizes[index]
            if taken + sizes[index] / 2 <= share * seen:
                result[index] = "decay"
                taken += sizes[index]
