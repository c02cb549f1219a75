"""Sizes of generated documents."""

from __future__ import annotations

import random


def log_uniform(rng: random.Random, low: int, high: int) -> int:
    """Return an integer in [low, high], each doubling equally likely, so that all document lengths occur.

    Integers only: a logarithm could differ in its last bit between machines.
    """
    start = low << rng.randrange((high // low).bit_length())
    return rng.randrange(start, min(high, 2 * start - 1) + 1)
