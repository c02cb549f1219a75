"""Tasks about the world: calendar and alphabet, facts about countries."""

from __future__ import annotations

import functools
import random
import re

from smelt.evaluate.items import Item
from smelt.evaluate.local.texts import Texts
from smelt.evaluate.local.words import choose, split

# Members in order, and whether the first follows the last.
_SERIES = {
    "month": (
        split("January February March April May June July August September October November December"),
        True,
    ),
    "day": (split("Monday Tuesday Wednesday Thursday Friday Saturday Sunday"), True),
    "letter": (tuple("ABCDEFGHIJKLMNOPQRSTUVWXYZ"), False),
    "number": (
        split(
            "one two three four five six seven eight nine ten eleven twelve thirteen fourteen fifteen "
            "sixteen seventeen eighteen nineteen twenty"
        ),
        False,
    ),
}


def series(rng: random.Random) -> Item:
    """Return a question for what comes after or before a month, day, letter or number."""
    kind = choose(rng, sorted(_SERIES))
    members, round_ = _SERIES[kind]
    step = choose(rng, (1, -1, 2))
    low, high = (0, len(members)) if round_ else (max(0, -step), len(members) - max(0, step))
    place = rng.randrange(low, high)
    how = {1: "after", -1: "before", 2: "two after"}[step]
    return {
        "context": f"The {kind} {how} {members[place]} is",
        "continuation": members[(place + step) % len(members)],
    }


# How we ask for a field of the factbook.
_QUESTIONS = {
    "Capital, name": "The capital of {country} is",
    "Country name, conventional long form": "The full name of {country} is",
    "Country name, local short form": "The local name of {country} is",
    "Elevation, highest point": "The highest point of {country} is",
    "Internet country code": "Internet addresses of {country} end in",
    "Map references": "On the map {country} belongs to",
    "National color(s)": "The national colors of {country} are",
}
# The part of a value before numbers, remarks and further values.
_VALUE = r"^{field}: ([^\n;(\[\d]{{2,50}})(?=[\n;(\[\d]|\Z)"
_TITLE = re.compile(r"([A-Z][^:\n]{2,30}): [A-Z]")


@functools.lru_cache(maxsize=1)
def _facts(texts: Texts) -> dict[str, dict[str, str]]:
    """Return for each question form the answer by country, from the factbook that models are trained on."""
    patterns = {f: re.compile(_VALUE.format(field=re.escape(f)), re.M) for f in _QUESTIONS}
    answers: dict[str, dict[str, str]] = {question: {} for question in _QUESTIONS.values()}
    for text in texts.of_sources("factbook"):
        if not (title := _TITLE.match(text)):
            continue
        country = title.group(1)
        for field, pattern in patterns.items():
            found = pattern.search(text)
            value = found.group(1).strip(" ,") if found else ""
            if value and value.lower() not in ("none", "na", country.lower()):
                answers[_QUESTIONS[field]][country] = value
    return {question: known for question, known in answers.items() if len(set(known.values())) >= 4}


def country_fact(rng: random.Random, texts: Texts) -> Item | None:
    """Return a question about a country, answered by the factbook in other words."""
    facts = _facts(texts)
    if not facts:
        return None
    question = choose(rng, sorted(facts))
    country = choose(rng, sorted(facts[question]))
    return {"context": question.format(country=country), "continuation": facts[question][country]}


def country_choice(rng: random.Random, texts: Texts) -> Item | None:
    """Return the same kind of question with four answers, three of them those of other countries."""
    item = country_fact(rng, texts)
    if item is None:
        return None
    question = next(q for q in _facts(texts) if item["context"].startswith(q.split("{")[0]))
    answer = item["continuation"]
    wrong = rng.sample(sorted(set(_facts(texts)[question].values()) - {answer}), 3)
    gold = rng.randrange(4)
    wrong.insert(gold, answer)
    return {"query": item["context"], "choices": wrong, "gold": gold}
