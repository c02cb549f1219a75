"""Generated tasks with rules: brackets, operators, algorithms, copying, ordering."""

from __future__ import annotations

import random

from smelt.evaluate.items import Item
from smelt.evaluate.local.words import choose, invented, names

_PAIRS = {"(": ")", "[": "]", "{": "}", "<": ">"}


def dyck(rng: random.Random) -> Item:
    """Return opened brackets with the brackets that close them as the answer."""
    size = rng.randrange(8, 17)
    sequence: list[str] = []
    stack: list[str] = []
    while len(sequence) < size or not 1 <= len(stack) <= 5:
        if stack and (len(stack) > 4 or rng.random() < 0.45):
            sequence.append(_PAIRS[stack.pop()])
        else:
            stack.append(rng.choice(sorted(_PAIRS)))
            sequence.append(stack[-1])
    closing = " ".join(_PAIRS[bracket] for bracket in reversed(stack))
    return {"context": f"{' '.join(sequence)} |", "continuation": closing}


_OPERATORS = (
    ("i is i plus {a}", 1, lambda x, a: x[0] + a),
    ("i is {a} times i", 1, lambda x, a: x[0] * a),
    ("i j is i plus j plus {a}", 2, lambda x, a: x[0] + x[1] + a),
    ("i j is the larger of i and j", 2, lambda x, a: max(x)),
    ("i j is the smaller of i and j", 2, lambda x, a: min(x)),
    ("i j k is the first of them above {a}, or 0", 3, lambda x, a: next((v for v in x if v > a), 0)),
    ("i j k is how many of them are even", 3, lambda x, a: sum(v % 2 == 0 for v in x)),
    ("i j k is the last of them", 3, lambda x, a: x[2]),
)


def operators(rng: random.Random) -> Item:
    """Return the definition of an operator and operands, with the result as the answer."""
    definition, count, apply = choose(rng, _OPERATORS)
    a = rng.randrange(2, 10)
    values = [rng.randrange(1, 20) for _ in range(count)]
    operands = " ".join(map(str, values))
    return {
        "context": f"op {definition.format(a=a)}.\nop {operands} =",
        "continuation": str(apply(values, a)),
    }


def algorithms(rng: random.Random) -> Item:
    """Return one of three algorithmic questions on a short string, with a short answer."""
    kind = rng.randrange(3)
    if kind == 0:
        text = "".join(rng.choice("()") for _ in range(2 * rng.randrange(3, 8)))
        if rng.random() < 0.5:
            text = _balanced(rng, rng.randrange(4, 8))
        return {"context": f"Brackets: {text}\nBalanced:", "continuation": "yes" if _balances(text) else "no"}
    if kind == 1:
        first, second = ("".join(rng.choice("ABCDEF") for _ in range(rng.randrange(4, 9))) for _ in "ab")
        length = str(_common_subsequence(first, second))
        return {
            "context": f"Strings: {first} {second}\nLongest common subsequence:",
            "continuation": length,
        }
    values = [rng.randrange(1, 60) for _ in range(rng.randrange(4, 8))]
    return {
        "context": f"Numbers: {' '.join(map(str, values))}\nSecond largest:",
        "continuation": str(sorted(values)[-2]),
    }


def _balanced(rng: random.Random, pairs: int) -> str:
    text, depth, left = "", 0, pairs
    while left or depth:
        if left and (not depth or rng.random() < 0.5):
            text, depth, left = text + "(", depth + 1, left - 1
        else:
            text, depth = text + ")", depth - 1
    return text


def _balances(text: str) -> bool:
    depth = 0
    for character in text:
        depth += 1 if character == "(" else -1
        if depth < 0:
            return False
    return depth == 0


def _common_subsequence(a: str, b: str) -> int:
    lengths = [0] * (len(b) + 1)
    for x in a:
        diagonal = 0
        for j, y in enumerate(b):
            above = lengths[j + 1]
            lengths[j + 1] = diagonal + 1 if x == y else max(above, lengths[j])
            diagonal = above
    return lengths[-1]


_TIMES = {2: "twice", 3: "three times", 4: "four times"}


def repeat_copy(rng: random.Random) -> Item:
    """Return an instruction to say words several times, with what is said as the answer."""
    first, second = " ".join(names(rng, 1)).lower(), invented(rng)
    times = rng.randrange(2, 5)
    form = rng.randrange(3)
    if form == 0:
        return {
            "context": f"Say {first} {second} {_TIMES[times]}:",
            "continuation": _say(times, first, second),
        }
    if form == 1:
        answer = f"{_say(times, first)} {second}"
        return {"context": f"Say {first} {_TIMES[times]}, then {second}:", "continuation": answer}
    answer = " ".join([second if i % 2 else first for i in range(times)])
    return {
        "context": f"Say {first} {_TIMES[times]}, but every second time {second}:",
        "continuation": answer,
    }


def _say(times: int, *words: str) -> str:
    return " ".join(words * times)


_ORDERS = (
    ("older", "oldest", "youngest"),
    ("taller", "tallest", "shortest"),
    ("faster", "fastest", "slowest"),
)


def ordering(rng: random.Random) -> Item:
    """Return comparisons of four people; which of them is the first or the last?"""
    people = names(rng, 4)
    word, most, least = choose(rng, _ORDERS)
    facts = [f"{a} is {word} than {b}." for a, b in zip(people, people[1:], strict=False)]
    rng.shuffle(facts)
    wanted, answer = (most, people[0]) if rng.random() < 0.5 else (least, people[-1])
    choices = sorted(people)
    return {
        "query": f"{' '.join(facts)} The {wanted} is",
        "choices": choices,
        "gold": choices.index(answer),
    }
