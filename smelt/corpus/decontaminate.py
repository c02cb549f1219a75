"""Keep evaluation items out of the training text: no document may share 13 consecutive words with an item."""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Iterable, Iterator
from typing import Any

import numpy as np

from smelt.corpus.windows import windows
from smelt.errors import SmeltError
from smelt.files import ROOT
from smelt.study import Study

SIZE = 13
_WORD = re.compile(r"\w+")
# Hashes gathered before they are merged into the sorted set.
_MERGE = 1 << 22


def _grams(text: str) -> np.ndarray:
    return windows(_WORD.findall(text.lower()), SIZE)


class Decontaminator:
    """The runs of 13 words of all items; words in lower case, without punctuation.

    Items of fewer than 13 words cannot be found.

    Attributes:
        items: how many items it was made of.
        sha256: hash of the set.
    """

    def __init__(self, items: Iterable[str] = ()) -> None:
        self.items = 0
        merged, waiting, count = np.zeros(0, np.uint64), [], 0
        for text in items:
            self.items += 1
            waiting.append(_grams(text))
            count += len(waiting[-1])
            if count >= _MERGE:
                merged, waiting, count = np.unique(np.concatenate([merged, *waiting])), [], 0
        self._set = np.unique(np.concatenate([merged, *waiting]))
        self.sha256 = hashlib.sha256(self._set.tobytes()).hexdigest()

    def hits(self, text: str) -> bool:
        """Return whether `text` shares 13 consecutive words with an item."""
        if not len(self._set):
            return False
        grams = _grams(text)
        places = np.searchsorted(self._set, grams)
        places[places == len(self._set)] = 0
        return bool((self._set[places] == grams).any())


def study_items(study: Study) -> Iterator[str]:
    """Yield the items of the study's evaluation files, each as the text of all its fields.

    Items of the local suite are made of held-out text and need no file: there is nothing to yield.

    Raises:
        SmeltError: the folder of the files does not exist or holds none, or a line is not JSON.
    """
    if study.evaluation.suite == "local":
        return
    folder = ROOT / (study.evaluation.folder or "")
    paths = sorted(folder.rglob("*.jsonl")) if study.evaluation.folder else []
    if not paths:
        raise SmeltError(
            f"study {study.name}: evaluation.folder is {study.evaluation.folder!r}, which holds no .jsonl "
            "file; the training text cannot be kept free of evaluation items without them"
        )
    for path in paths:
        with open(path, encoding="utf-8") as stream:
            for number, line in enumerate(stream, 1):
                try:
                    yield " ".join(_strings(json.loads(line)))
                except (json.JSONDecodeError, UnicodeDecodeError) as error:
                    raise SmeltError(f"{path}, line {number}: not valid JSON: {error}") from None


def _strings(value: Any) -> Iterator[str]:
    if isinstance(value, str):
        yield value
    elif isinstance(value, dict):
        value = list(value.values())
    if isinstance(value, list):
        for inner in value:
            yield from _strings(inner)
