"""The search for items in the training text finds what is there and nothing else."""

import random

import pytest

from smelt.evaluate.leaks import LENGTHS, LeakFinder, item_tail, normal
from smelt.evaluate.registry import CHOICE, COMPLETION, LANGUAGE, SCHEMA, Task


def task(kind):
    return Task("toy", kind, 0, " ", LANGUAGE, 0.0, "toy.jsonl")


def test_every_planted_tail_is_found_and_no_other():
    rng = random.Random(2)
    texts = ["".join(rng.choice("abcdé \n") for _ in range(900)) for _ in range(20)]
    planted = set()
    for length in (3, *LENGTHS):
        for text in texts[:5]:
            data = normal(text)
            for start in (0, len(data) - length, rng.randrange(len(data) - length)):
                planted.add(data[start : start + length])
    absent = {bytes(rng.choice(b"abcd ") for _ in range(length)) for length in LENGTHS for _ in range(20)}
    joined = [normal(text) for text in texts]
    absent = {tail for tail in absent if not any(tail in data for data in joined)}
    assert len(absent) > 60
    finder = LeakFinder([*planted, *absent])
    finder.read(texts)
    assert finder.found == planted


def test_short_and_empty_texts_are_read():
    finder = LeakFinder([b"abcdef"])
    finder.read(["", "abc", "xabcdefx"])
    assert finder.found == {b"abcdef"}


@pytest.mark.parametrize(
    ("kind", "item", "text"),
    [
        (COMPLETION, {"context": "The  Sky\nis", "continuation": "Blue"}, b"the sky is blue"),
        (CHOICE, {"query": "q", "choices": ["x", "y"], "gold": 1}, b"q y"),
        (SCHEMA, {"context_options": ["a", "b"], "continuation": "c", "gold": 1}, b"b c"),
    ],
)
def test_tails_end_in_the_gold_answer(kind, item, text):
    assert item_tail(task(kind), item) == text


def test_long_items_are_compared_by_their_end():
    words = " ".join(f"w{i}" for i in range(100))
    tail = item_tail(task(COMPLETION), {"context": words, "continuation": "end"})
    assert len(tail) == max(LENGTHS) and normal(words + " end").endswith(tail)
