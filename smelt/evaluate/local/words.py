"""Word lists and draws that the generators share."""

from __future__ import annotations

import random
from collections.abc import Sequence
from typing import TypeVar

_T = TypeVar("_T")


def split(text: str) -> tuple[str, ...]:
    """Return the words of `text`."""
    return tuple(text.split())


NAMES = split("Ada Ben Carl Dora Emil Fay Gus Hal Ida Jack Kate Leo Mia Ned Olga Paul Rosa Sam Tess Vera")
THINGS = split(
    "apple ball basket bell book bottle box candle coin cup drum feather hammer hat key knife lamp letter "
    "mirror needle pencil plate ring rope shoe spoon stone ticket towel watch"
)
PLACES = split(
    "attic barn cellar cupboard drawer garage garden hall kitchen library market office park pocket river "
    "school shed station tent tower"
)
COLOURS = ("black", "blue", "brown", "green", "grey", "red", "white", "yellow")
_SYLLABLES = tuple(c + v for c in "bdfgklmnprstvz" for v in "aeiou")


def choose(rng: random.Random, values: Sequence[_T]) -> _T:
    """Return one of `values`."""
    return values[rng.randrange(len(values))]


def several(rng: random.Random, values: Sequence[_T], count: int) -> list[_T]:
    """Return `count` different ones of `values` in random order."""
    return rng.sample(list(values), count)


def names(rng: random.Random, count: int) -> list[str]:
    """Return `count` different first names."""
    return several(rng, NAMES, count)


def invented(rng: random.Random) -> str:
    """Return a word of two or three syllables that means nothing."""
    return "".join(choose(rng, _SYLLABLES) for _ in range(rng.randrange(2, 4)))
