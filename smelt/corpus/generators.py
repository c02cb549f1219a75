"""Registry of our own generated texts. A generator makes one document from a random number generator.

`random.Random` is used, and of it only `randrange`, `choice` and `random`, whose streams are the same in
every Python version.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator

from smelt.corpus import gen_ledgers, gen_maths, gen_patterns

Generator = Callable[[random.Random], str]

GENERATORS: dict[str, Generator] = {
    "gen-arithmetic": gen_maths.arithmetic,
    "gen-algebra": gen_maths.algebra,
    "gen-brackets": gen_patterns.brackets,
    "gen-records": gen_patterns.records,
    "gen-copying": gen_patterns.copying,
    "gen-ledgers": gen_ledgers.ledger,
    "gen-statements": gen_ledgers.statement,
}


def generate(kind: str, cap: int) -> Iterator[str]:
    """Yield documents of `kind`, about `cap` bytes of UTF-8 in all; the same documents every time."""
    rng = random.Random(f"smelt corpus {kind}")
    size = 0
    while size < cap:
        document = GENERATORS[kind](rng)
        size += len(document.encode())
        yield document
