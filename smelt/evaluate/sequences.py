"""From items to token sequences: preamble, context and answer are tokenised separately.

The preamble holds the demonstrations, the context the question, the answer is what is scored. Nothing is
tokenised jointly across these seams, as in the original (MosaicML's in-context learning data sets).
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from tokenizers import Tokenizer

from smelt.errors import SmeltError
from smelt.evaluate.items import Item
from smelt.evaluate.registry import CHOICE, COMPLETION, Task


@dataclass(frozen=True)
class Scored:
    """One sequence to score.

    Attributes:
        ids: all tokens, the answer last.
        start: index of the first answer token, at least 1.
        nbytes: UTF-8 bytes of the answer's text.
        truncated: context tokens were dropped to make the sequence fit.
    """

    ids: list[int]
    start: int
    nbytes: int
    truncated: bool


class Encoder:
    """A tokenizer as the prompts need it.

    Args:
        encode: text to ids, without special tokens.
        bos: id that starts every sequence, or None.
        carries_blank: whether a word's token holds the blank before it; by default the original's test
            decides: " a" is one token.
    """

    def __init__(
        self, encode: Callable[[str], list[int]], bos: int | None, carries_blank: bool | None = None
    ) -> None:
        self._encode = encode
        self._cache: dict[str, list[int]] = {}
        self.bos = bos
        self.carries_blank = len(encode(" a")) == 1 if carries_blank is None else carries_blank

    @classmethod
    def of_corpus(cls, tokenizer: Tokenizer, bos: int) -> Encoder:
        """Return the encoder of a corpus's byte-level BPE.

        Its words always start with their blank, but in a small vocabulary " a" may still be two tokens.
        """
        return cls(lambda text: tokenizer.encode(text, add_special_tokens=False).ids, bos, carries_blank=True)

    def text(self, text: str) -> list[int]:
        """Return the ids of `text` without special tokens."""
        if text not in self._cache:
            self._cache[text] = self._encode(text)
        return self._cache[text]

    def preamble(self, text: str) -> list[int]:
        """Return the ids of the preamble; BOS is there even when there are no demonstrations."""
        ids = self._encode(text) if text else []
        return ids if self.bos is None else [self.bos, *ids]

    def answer(self, text: str) -> list[int]:
        """Return the ids of an answer, which gets a leading blank where the vocabulary carries blanks."""
        return self.text(f" {text}" if self.carries_blank and not text.startswith(" ") else text)


def demonstration(task: Task, item: Item) -> str:
    """Return an item with its gold answer, as it appears in the preamble of another."""
    if task.kind == CHOICE:
        return item["query"] + task.delimiter + item["choices"][item["gold"]]
    if task.kind == COMPLETION:
        return item["context"] + task.delimiter + item["continuation"]
    return item["context_options"][item["gold"]] + task.delimiter + item["continuation"]


def questions_and_answers(task: Task, item: Item, few_shot: bool) -> list[tuple[str, str]]:
    """Return the context and answer texts of each option; language modelling has one option."""
    seam = "\n" if few_shot else ""
    if task.kind == CHOICE:
        context = (seam + item["query"] + task.delimiter).rstrip()
        return [(context, choice) for choice in item["choices"]]
    if task.kind == COMPLETION:
        return [((seam + item["context"] + task.delimiter).rstrip(), item["continuation"])]
    # The original strips only the delimiter here, and leaves it out without demonstrations.
    delimiter = task.delimiter.rstrip() if few_shot else ""
    return [(seam + option + delimiter, item["continuation"]) for option in item["context_options"]]


def build(
    task: Task,
    item: Item,
    shots: Sequence[Item],
    encoder: Encoder,
    max_length: int,
    keep_bos: bool = True,
) -> list[Scored]:
    """Return one sequence per option of `item`, with `shots` as demonstrations.

    Args:
        max_length: longest sequence in tokens, the answer included.
        keep_bos: truncation keeps a leading BOS (the paper) or drops it first (the original).

    Raises:
        SmeltError: an answer does not leave room for a single context token, or there is no context.
    """
    preamble = encoder.preamble("\n".join(demonstration(task, shot) for shot in shots))
    sequences = []
    for context, answer in questions_and_answers(task, item, bool(shots)):
        context_ids = preamble + encoder.text(context)
        answer_ids = encoder.answer(answer)
        if not context_ids:
            raise SmeltError(f"task {task.name}: the context of answer {answer!r} has no tokens")
        kept = truncate(context_ids, len(answer_ids), max_length, encoder.bos if keep_bos else None)
        if not kept:
            raise SmeltError(
                f"task {task.name}: answer {answer[:40]!r} has {len(answer_ids)} tokens; with at least one "
                f"token of context it must fit into {max_length} tokens"
            )
        sequences.append(
            Scored(
                ids=kept + answer_ids,
                start=len(kept),
                nbytes=len(answer.encode()),
                truncated=len(kept) < len(context_ids),
            )
        )
    return sequences


def truncate(context: list[int], answer_length: int, max_length: int, bos: int | None) -> list[int]:
    """Drop tokens from the left of `context` until it fits before the answer, keeping a leading `bos`."""
    room = max_length - answer_length
    if len(context) <= room:
        return context
    if room <= 0:
        return []
    if bos is not None and context[0] == bos:
        return [bos, *context[len(context) - room + 1 :]]
    return context[len(context) - room :]
