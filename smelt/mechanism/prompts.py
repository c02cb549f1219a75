"""Dyck-language prompts: demonstrations of bracket sequences and their completions, then a query.

The form is that of the task Dyck Languages (an input, a line break, the output) without its instruction, so
that four demonstrations fit the contexts of small studies. A prompt is a function of (tokenizer, context,
seed, index).
"""

from __future__ import annotations

import random
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from smelt.errors import SmeltError

PAIRS = {"(": ")", "[": "]", "{": "}", "<": ">"}
SHOTS = 4
TARGETS = 3
LONGEST, SHORTEST = 16, 4
BOS, DEMONSTRATION, DEMONSTRATION_ANSWER = "bos", "demonstration", "demonstration_answer"
QUERY, ANSWER = "query", "answer"
ROLES = (BOS, DEMONSTRATION, DEMONSTRATION_ANSWER, QUERY, ANSWER)


@dataclass(frozen=True)
class Prompt:
    """One encoded prompt.

    Attributes:
        ids: token ids, BOS first, ending with the last answer token.
        roles: one of `ROLES` a token.
        tokens: the text of each token, empty for BOS.
        targets: indices of the `TARGETS` tokens that hold the query's closing brackets.
    """

    ids: tuple[int, ...]
    roles: tuple[str, ...]
    tokens: tuple[str, ...]
    targets: tuple[int, ...]


def build_prompts(tokenizer: Any, bos: int, context: int, count: int, seed: int) -> list[Prompt]:
    """Return `count` prompts of at most `context` tokens, with the longest inputs that fit.

    Args:
        tokenizer: a `tokenizers.Tokenizer`.

    Raises:
        SmeltError: even inputs of four brackets do not fit the context.
    """
    for brackets in range(LONGEST, SHORTEST - 1, -2):
        prompts = [_prompt(tokenizer, bos, brackets, random.Random(f"{seed}-{i}")) for i in range(count)]
        if max(len(prompt.ids) for prompt in prompts) <= context:
            return prompts
    raise SmeltError(
        f"corpus.context is {context}; a Dyck prompt with {SHOTS} demonstrations of {SHORTEST} brackets "
        f"takes {max(len(prompt.ids) for prompt in prompts)} tokens"
    )


def sequence(brackets: int, missing: int, rng: random.Random) -> tuple[list[str], list[str]]:
    """Return `brackets` brackets that lack exactly `missing` closing ones, and those in order.

    The number of brackets is raised by one where its parity does not allow that.
    """
    opens = (brackets + missing + 1) // 2
    closes = opens - missing
    text, stack = [], []
    while opens or closes:
        # Any order with a non-negative depth is reached: each remaining bracket is equally likely.
        if stack and rng.random() < closes / (opens + closes):
            text.append(PAIRS[stack.pop()])
            closes -= 1
        elif opens:
            stack.append(rng.choice(tuple(PAIRS)))
            text.append(stack[-1])
            opens -= 1
    return text, [PAIRS[bracket] for bracket in reversed(stack)]


def _prompt(tokenizer: Any, bos: int, brackets: int, rng: random.Random) -> Prompt:
    pieces: list[tuple[str, str]] = []
    for _ in range(SHOTS):
        given, answer = sequence(brackets, rng.randint(1, TARGETS), rng)
        pieces.append((DEMONSTRATION, f"Input: {' '.join(given)}\nOutput:"))
        pieces.append((DEMONSTRATION_ANSWER, " " + " ".join(answer)))
        pieces.append((DEMONSTRATION, "\n"))
    given, answer = sequence(brackets, TARGETS, rng)
    pieces += [(QUERY, f"Input: {' '.join(given)}\nOutput:"), (ANSWER, " " + " ".join(answer))]
    return _encode(tokenizer, bos, pieces)


def _encode(tokenizer: Any, bos: int, pieces: Sequence[tuple[str, str]]) -> Prompt:
    text = "".join(piece for _, piece in pieces)
    role_of_char = [role for role, piece in pieces for _ in piece]
    encoding = tokenizer.encode(text, add_special_tokens=False)
    roles, targets = [BOS], []
    for index, (start, end) in enumerate(encoding.offsets, start=1):
        blank = len(text[start:end]) - len(text[start:end].lstrip())
        first = min(start + blank, end - 1)
        roles.append(role_of_char[first])
        targets += [index] * (roles[-1] == ANSWER and not text[start:end].isspace())
    if len(targets) != TARGETS:
        raise SmeltError(
            f"the tokenizer makes {len(targets)} tokens of {TARGETS} closing brackets; it must not join "
            "brackets that blanks separate"
        )
    tokens = ("", *(text[start:end] for start, end in encoding.offsets))
    return Prompt((bos, *encoding.ids), tuple(roles), tokens, tuple(targets))
