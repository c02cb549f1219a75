"""Bracket languages, records with look-ups, and copying."""

from __future__ import annotations

import random

from smelt.corpus.gen_sizes import log_uniform

_PAIRS = {"(": ")", "[": "]", "{": "}", "<": ">"}
_SYLLABLES = tuple(c + v for c in "bdfgklmnprstvz" for v in "aeiou")
_VALUES = {
    "colour": ("red", "green", "blue", "grey", "white", "black", "amber", "brown"),
    "home": ("river", "hill", "coast", "harbour", "meadow", "valley", "island", "forest"),
    "trade": ("baker", "weaver", "miller", "potter", "sailor", "smith", "farmer", "clerk"),
    "metal": ("iron", "copper", "silver", "tin", "gold", "lead", "zinc", "nickel"),
    "tree": ("oak", "elm", "birch", "maple", "ash", "lime", "pine", "willow"),
}
_NUMBERS = ("height", "weight", "age", "number")


def word(rng: random.Random, low: int = 2, high: int = 4) -> str:
    """Return an invented word of `low` to `high` syllables."""
    return "".join(rng.choice(_SYLLABLES) for _ in range(rng.randrange(low, high + 1)))


def brackets(rng: random.Random) -> str:
    """Return lines of a Dyck language with one to four kinds of brackets.

    A line is a balanced sequence, or an opened one, a bar, and what closes it.
    """
    kinds = list(_PAIRS)[: rng.randrange(1, 5)]
    size = log_uniform(rng, 2, 40)
    split = rng.random() < 0.5
    lines = []
    for _ in range(log_uniform(rng, 1, 60)):
        sequence, stack = [], []
        while len(sequence) < 2 * size and (stack or not sequence or rng.random() < 0.9):
            if not stack or (rng.random() < 0.5 and len(sequence) + len(stack) < 2 * size):
                stack.append(rng.choice(kinds))
                sequence.append(stack[-1])
            else:
                sequence.append(_PAIRS[stack.pop()])
            if split and stack and len(sequence) >= size:
                break
        closing = " ".join(_PAIRS[bracket] for bracket in reversed(stack))
        opened = " ".join(sequence)
        lines.append(f"{opened} | {closing}".rstrip() if split else f"{opened} {closing}".rstrip())
    return "\n".join(lines)


def records(rng: random.Random) -> str:
    """Return invented records and questions that can be answered from them."""
    names = list(dict.fromkeys(word(rng).capitalize() for _ in range(log_uniform(rng, 1, 24))))
    keys = list(dict.fromkeys(rng.choice((*_VALUES, *_NUMBERS)) for _ in range(rng.randrange(1, 6))))
    table = {
        name: {
            key: str(rng.randrange(2, 200)) if key in _NUMBERS else rng.choice(_VALUES[key]) for key in keys
        }
        for name in names
    }
    lines = [
        f"{name}: " + ", ".join(f"{key} {value}" for key, value in fields.items())
        for name, fields in table.items()
    ]
    lines.append("")
    for _ in range(log_uniform(rng, 1, 2 * len(names))):
        name, key = rng.choice(names), rng.choice(keys)
        lines.append(f"What is the {key} of {name}? {table[name][key]}")
    return "\n".join(lines)


def copying(rng: random.Random) -> str:
    """Return lists of invented words that are repeated, reversed, sorted or counted."""
    lines = []
    for _ in range(log_uniform(rng, 1, 24)):
        words = [word(rng, 1, 3) for _ in range(log_uniform(rng, 2, 16))]
        given = " ".join(words)
        task, result = rng.choice(
            (
                ("again", given),
                ("backwards", " ".join(reversed(words))),
                ("sorted", " ".join(sorted(words))),
                ("first letters", " ".join(w[0] for w in words)),
                ("how many", str(len(words))),
                ("last", words[-1]),
            )
        )
        lines.append(f"{given}\n{task}: {result}")
    return "\n\n".join(lines)
