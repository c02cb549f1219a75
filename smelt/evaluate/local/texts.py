"""What the generators read of a corpus: passages of held-out documents, and reference texts."""

from __future__ import annotations

import functools
import random
import re
from collections.abc import Iterator

from smelt.corpus import Corpus
from smelt.errors import SmeltError
from smelt.evaluate.local.words import choose

VALIDATION = "validation"
# How names of sources start that our own generators make.
GENERATED = "gen-"
# Passages start within this many characters of a document; texts are cut there.
_CHARACTERS = 20_000
_PROSE = re.compile(r"[A-Za-z'’-]+[.,;:!?]?|\d[\d,.]*")


class Texts:
    """Draws from the documents of a corpus's validation split; `of_sources` reads the training text.

    Generated documents are left alone in categories that have others.
    """

    def __init__(self, corpus: Corpus) -> None:
        table = corpus.documents
        self._corpus = corpus
        self._by_category: dict[str, list[int]] = {}
        self._by_source: dict[str, list[int]] = {}
        held = [index for index, split in enumerate(table["split"]) if split == VALIDATION]
        written = {table["category"][i] for i in held if not table["source"][i].startswith(GENERATED)}
        for index in held:
            source, category = table["source"][index], table["category"][index]
            if source.startswith(GENERATED) and category in written:
                continue
            self._by_category.setdefault(category, []).append(index)
            self._by_source.setdefault(source, []).append(index)
        if not self._by_category:
            raise SmeltError("the corpus has no validation documents; the local tasks are made of them")
        self._text = functools.lru_cache(maxsize=4096)(lambda i: corpus.text(i)[:_CHARACTERS])

    @property
    def categories(self) -> list[str]:
        """The corpus's categories that have held-out documents, sorted."""
        return sorted(self._by_category)

    def draw(self, rng: random.Random, category: str | None = None) -> int:
        """Return a held-out document of a category, or of any: every category is equally likely."""
        return choose(rng, self._by_category[category or choose(rng, self.categories)])

    def others(self, rng: random.Random, document: int, count: int) -> list[int] | None:
        """Return other held-out documents of the same source; None when there are too few."""
        source = self._corpus.documents["source"][document]
        pool = [other for other in self._by_source[source] if other != document]
        return rng.sample(pool, count) if len(pool) >= count else None

    def of_sources(self, prefix: str) -> Iterator[str]:
        """Yield the training documents of all sources whose name starts with `prefix`."""
        table = self._corpus.documents
        for index, source in enumerate(table["source"]):
            if source.startswith(prefix) and table["split"][index] != VALIDATION:
                yield self._corpus.text(index)

    def text(self, document: int) -> str:
        """Return the beginning of a document."""
        return self._text(document)

    def words(self, rng: random.Random, document: int, count: int) -> list[str] | None:
        """Return `count` consecutive words of a document from a random place; None when it is shorter."""
        words = self.text(document).split()
        if len(words) < count:
            return None
        start = rng.randrange(len(words) - count + 1)
        return words[start : start + count]

    def passage(self, rng: random.Random, count: int) -> list[str] | None:
        """Return `count` consecutive words of running text, or None when the draw is something else."""
        words = self.words(rng, self.draw(rng), count)
        if words is None or sum(bool(_PROSE.fullmatch(word)) for word in words) < 0.9 * count:
            return None
        return words


def training_texts(corpus: Corpus) -> Iterator[str]:
    """Yield the text of every document that a model may have been trained on."""
    for index, split in enumerate(corpus.documents["split"]):
        if split != VALIDATION:
            yield corpus.text(index)


def training_bytes(corpus: Corpus) -> int:
    """Return how many bytes of text a model may have been trained on."""
    table = corpus.documents
    return int(table["bytes"][table["split"] != VALIDATION].sum())
