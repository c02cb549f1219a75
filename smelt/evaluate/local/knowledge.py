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


# Fields of a government section of the factbook, and how we ask for them.
_FACTS = (
    ("The capital of {country} is", re.compile(r"^Government type:.*?^name: ([^\n;(,]{2,30})", re.M | re.S)),
    ("The full name of {country} is", re.compile(r"^conventional long form: ([^\n;(]{4,50})", re.M)),
    ("The government of {country} is a", re.compile(r"^Government type: ([^\n;(,]{4,50})", re.M)),
    ("The local name of {country} is", re.compile(r"^local short form: ([^\n;(,/]{2,30})", re.M)),
)
_COUNTRY = re.compile(r"^conventional short form: ([^\n;(]{3,30})", re.M)


@functools.lru_cache(maxsize=1)
def _facts(texts: Texts) -> dict[str, dict[str, str]]:
    """Return for each question form the answer by country, from factbook documents of every split."""
    answers: dict[str, dict[str, str]] = {question: {} for question, _ in _FACTS}
    for text in texts.of_sources("factbook"):
        if not (country := _COUNTRY.search(text)):
            continue
        name = country.group(1).strip()
        for question, pattern in _FACTS:
            found = pattern.search(text)
            if found and found.group(1).strip().lower() not in ("none", name.lower()):
                answers[question][name] = found.group(1).strip()
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
