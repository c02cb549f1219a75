"""Which demonstrations an item gets: the original's choice, for its seed and for ours.

The original draws the shots of all items of a file from one generator, so the shots of item i depend on
every draw before it; tables are therefore always made for the whole file.
"""

from __future__ import annotations

import random

ORIGINAL_SEED = 1234


def shot_seeds(count: int) -> list[int]:
    """Return `count` seeds: the original's, then its successors."""
    return list(range(ORIGINAL_SEED, ORIGINAL_SEED + count))


def shot_table(items: int, shots: int, seed: int = ORIGINAL_SEED) -> list[list[int]]:
    """Return for each of `items` items the indices of its `shots` demonstrations, in prompt order.

    The order is the iteration order of a set of small integers, which is part of the original's
    behaviour. A file of n items gives at most n - 1 demonstrations.
    """
    generator = random.Random(seed)
    pool = range(items)
    count = min(shots, items - 1)
    table = []
    for item in pool:
        chosen = set(generator.sample(pool, count))
        if item in chosen:
            chosen.remove(item)
            while len(chosen) < count:
                replacement = generator.choice(pool)
                if replacement != item:
                    chosen.add(replacement)
        table.append(list(chosen))
    return table
