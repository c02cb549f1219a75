"""Tasks about language: held-out passages, agreement, and who is meant."""

from __future__ import annotations

import random
import re

from smelt.evaluate.items import Item
from smelt.evaluate.local.texts import Texts
from smelt.evaluate.local.words import THINGS, choose, names

_WORD = re.compile(r"[A-Za-z]{4,}")
_KINDS = {
    "Code": "code",
    "Finance": "finance",
    "Knowledge": "knowledge",
    "Math/STEM": "science",
    "Web": "web",
}


def last_word(rng: random.Random, texts: Texts) -> Item | None:
    """Return a held-out passage whose last word occurs in it before; that word is the answer."""
    words = texts.passage(rng, 45)
    if words is None:
        return None
    places = [
        j
        for j in range(20, len(words))
        if (bare := _bare(words[j])) and any(_bare(word) == bare for word in words[:j])
    ]
    if not places:
        return None
    j = choose(rng, places)
    return {"context": " ".join(words[:j]), "continuation": _bare(words[j])}


def _bare(word: str) -> str:
    """Return a word of letters without the punctuation after it, or nothing."""
    word = word.rstrip(".,;:!?)")
    return word if _WORD.fullmatch(word) else ""


def continuation(rng: random.Random, texts: Texts) -> Item | None:
    """Return the beginning of a held-out passage and four continuations: its own and three others."""
    document = texts.draw(rng)
    words = texts.words(rng, document, 20)
    others = texts.others(rng, document, 3)
    if words is None or others is None:
        return None
    endings = [" ".join(words[14:])]
    for other in others:
        wrong = texts.words(rng, other, 6)
        if wrong is None:
            return None
        endings.append(" ".join(wrong))
    if len(set(endings)) < 4:
        return None
    gold = rng.randrange(4)
    endings.insert(gold, endings.pop(0))
    return {"query": " ".join(words[:14]), "choices": endings, "gold": gold}


def kind_of_text(rng: random.Random, texts: Texts) -> Item | None:
    """Return a held-out snippet and the names of all categories: which one is it from?"""
    categories = sorted(set(texts.categories) & _KINDS.keys())
    gold = rng.randrange(len(categories))
    words = texts.words(rng, texts.draw(rng, categories[gold]), 8)
    if words is None or len(" ".join(words)) > 60:
        return None
    choices = [_KINDS[category] for category in categories]
    return {"query": f"{' '.join(words)}\nKind:", "choices": choices, "gold": gold}


_VERBS = (("are", "is"), ("were", "was"), ("have been", "has been"))
_LAST = ("lost", "old", "here", "too small", "very good", "on the table", "almost new", "hard to find")
_IRREGULAR = ("box", "knife", "watch")
_BETWEEN = ("near the", "behind the", "from the", "below the")


def agreement(rng: random.Random) -> Item:
    """Return two subjects of different number and a predicate that agrees with one of them."""
    first, second = rng.sample([thing for thing in THINGS if thing not in _IRREGULAR], 2)
    between = choose(rng, _BETWEEN)
    plural, singular = choose(rng, _VERBS)
    options = [f"The {first}s {between} {second}", f"The {first} {between} {second}s"]
    gold = rng.randrange(2)
    verb = plural if gold == 0 else singular
    return {"context_options": options, "continuation": f"{verb} {choose(rng, _LAST)}.", "gold": gold}


# A clause about two people, how it goes on, and which of the two is meant.
_REFERENCES = (
    ("{a} thanked {b} because", "had helped.", 1),
    ("{a} thanked {b} because", "was grateful.", 0),
    ("{a} lent {b} the {t} because", "needed it.", 1),
    ("{a} lent {b} the {t} because", "had two of them.", 0),
    ("{a} could not lift {b} because", "was too heavy.", 1),
    ("{a} could not lift {b} because", "was too weak.", 0),
    ("{a} ran after {b} because", "had stolen the {t}.", 1),
    ("{a} asked {b} for advice because", "knew more.", 1),
    ("{a} asked {b} for advice because", "did not know what to do.", 0),
    ("{a} beat {b} in the race because", "was faster.", 0),
    ("{a} beat {b} in the race because", "was slower.", 1),
    ("{a} bought the {t} from {b} because", "wanted to have it.", 0),
    ("{a} bought the {t} from {b} because", "wanted to get rid of it.", 1),
    ("{a} did not hear {b} because", "spoke too softly.", 1),
    ("{a} did not hear {b} because", "was asleep.", 0),
)


def reference(rng: random.Random) -> Item:
    """Return a sentence about two people in two versions: which of them does the rest speak of?"""
    clause, rest, meant = choose(rng, _REFERENCES)
    people, thing = names(rng, 2), choose(rng, THINGS)
    start = clause.format(a=people[0], b=people[1], t=thing)
    gold = rng.randrange(2)
    order = [meant, 1 - meant] if gold == 0 else [1 - meant, meant]
    options = [f"{start} {people[person]}" for person in order]
    return {"context_options": options, "continuation": rest.format(t=thing), "gold": gold}
