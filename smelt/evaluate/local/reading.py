"""Generated tasks whose answer stands in the text: records and short stories."""

from __future__ import annotations

import random

from smelt.evaluate.items import Item
from smelt.evaluate.local.words import COLOURS, PLACES, THINGS, choose, invented, names, several

_FIELDS = {
    "colour": COLOURS,
    "home": ("river", "hill", "coast", "harbour", "meadow", "valley", "island", "forest"),
    "trade": ("baker", "weaver", "miller", "potter", "sailor", "smith", "farmer", "clerk"),
}


def key_value(rng: random.Random) -> Item:
    """Return three records of invented names and a question about one field, with its value as the answer."""
    people = sorted({invented(rng).capitalize() for _ in range(3)})
    fields = several(rng, sorted(_FIELDS), 2)
    table = {name: {field: choose(rng, _FIELDS[field]) for field in fields} for name in people}
    lines = [
        f"{name}: " + ", ".join(f"{key} {value}" for key, value in record.items())
        for name, record in table.items()
    ]
    name, field = choose(rng, people), choose(rng, fields)
    question = f"What is the {field} of {name}?"
    return {"context": "\n".join([*lines, question]), "continuation": table[name][field]}


def where_is(rng: random.Random) -> Item:
    """Return a story in which three people put things into places, with one thing's place as the answer."""
    people, things, places = names(rng, 3), several(rng, THINGS, 3), several(rng, PLACES, 3)
    story = [
        f"{person} left the {thing} in the {place}."
        for person, thing, place in zip(people, things, places, strict=True)
    ]
    asked = rng.randrange(3)
    return {
        "context": f"{' '.join(story)} The {things[asked]} is in the",
        "continuation": places[asked],
    }


def is_it_true(rng: random.Random) -> Item:
    """Return a story and a statement about it: yes or no?"""
    people, things, colours = names(rng, 2), several(rng, THINGS, 2), several(rng, COLOURS, 2)
    story = [
        f"{person} has a {colour} {thing}."
        for person, thing, colour in zip(people, things, colours, strict=True)
    ]
    asked = rng.randrange(2)
    true = rng.random() < 0.5
    colour = colours[asked if true else 1 - asked]
    return {
        "query": f"{' '.join(story)}\nIs the {things[asked]} {colour}?",
        "choices": ["no", "yes"],
        "gold": int(true),
    }
