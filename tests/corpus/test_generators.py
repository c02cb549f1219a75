from __future__ import annotations

import re
from fractions import Fraction

import pytest

from smelt.corpus.gen_sizes import log_uniform
from smelt.corpus.generators import GENERATORS, generate

NUMBER = r"-?\d[\d,]*\.\d\d"


def cents(text: str) -> int:
    return round(Fraction(text.replace(",", "")) * 100)


@pytest.mark.parametrize("kind", sorted(GENERATORS))
def test_generators_repeat_themselves_exactly_and_vary_in_length(kind):
    documents = list(generate(kind, 100_000))
    assert documents == list(generate(kind, 100_000))
    assert 100_000 <= sum(len(d.encode()) for d in documents) < 120_000
    assert len(set(documents)) > 0.9 * len(documents)
    lengths = sorted(len(d) for d in documents)
    assert lengths[-1] > 8 * lengths[0]


def test_log_uniform_gives_every_doubling_the_same_weight():
    import random

    rng = random.Random(0)
    draws = [log_uniform(rng, 1, 63) for _ in range(6000)]
    assert min(draws) == 1 and max(draws) == 63
    for bits in range(1, 7):
        assert 850 < sum(d.bit_length() == bits for d in draws) < 1150
    assert {log_uniform(rng, 2, 40) for _ in range(2000)} == set(range(2, 41))


def evaluate(expression: str) -> Fraction:
    assert re.fullmatch(r"[\d+\-*/(). ]+", expression), expression
    expression = re.sub(r"(\d+)", r"Fraction(\1)", expression)
    return eval(expression, {"Fraction": Fraction})  # digits and operators only, checked above


def test_every_stated_equation_of_arithmetic_holds():
    checked = 0
    for document in generate("gen-arithmetic", 150_000):
        for line in document.splitlines():
            for left, right in re.findall(r"^  ([\d+*/ ]+) = ([\d*/ +]+)(?=$|,)", line):
                if "remainder" not in line:
                    assert evaluate(left) == evaluate(right), line
                    checked += 1
            match = re.fullmatch(r"  (\d+) / (\d+) = (\d+), remainder (\d+)", line)
            if match:
                a, b, quotient, rest = map(int, match.groups())
                assert divmod(a, b) == (quotient, rest)
                checked += 1
    assert checked > 1000


def test_results_of_arithmetic_exercises_are_right():
    import math

    for document in generate("gen-arithmetic", 150_000):
        for exercise in document.split("\n\n")[1:]:
            first, *_, last = exercise.split("\n")
            if first.startswith("gcd"):
                assert int(last[2:]) == math.gcd(*map(int, re.findall(r"\d+", first)))
            elif first.startswith("factor"):
                factors = [int(f) for f in last[2:].split(" * ")]
                assert math.prod(factors) == int(first.split()[1])
                assert all(f % d for f in factors for d in range(2, math.isqrt(f) + 1))
            elif "remainder" in last:
                a, b = map(int, first.split(" / "))
                assert divmod(a, b) == tuple(map(int, re.findall(r"\d+", last)))
            else:
                assert evaluate(first) == evaluate(last[2:])


def test_algebra_solutions_solve_their_problem():
    for document in generate("gen-algebra", 150_000):
        for exercise in document.split("\n\n")[1:]:
            first, *_, last = exercise.split("\n")
            if match := re.fullmatch(r"solve (\d+)x ([+-]) (\d+) = (-?\d+)", first):
                a, sign, b, right = match.groups()
                x = int(last.removeprefix("x = "))
                assert int(a) * x + int(sign + b) == int(right)
            elif match := re.fullmatch(
                r"solve (\d+)x \+ (\d+)y = (-?\d+) and (\d+)x \+ (\d+)y = (-?\d+)", first
            ):
                a, b, p, c, d, q = map(int, match.groups())
                x, y = map(int, re.findall(r"-?\d+", last))
                assert (a * x + b * y, c * x + d * y) == (p, q)
            elif match := re.match(r"(\d+)\^(\d+) mod (\d+)", first):
                assert int(last[2:]) == pow(*map(int, match.groups()))
            elif first.startswith(("expand", "differentiate")):
                _check_polynomial(first, last[2:])


def _value(polynomial: str, x: int) -> Fraction:
    text = re.sub(r"(\d)x", r"\1*x", polynomial.replace("^", "**")).replace("x", f"({x})")
    assert re.fullmatch(r"[\d+\-*() ]+", text)
    return Fraction(eval(text))  # digits and operators only, checked above


def _check_polynomial(problem: str, answer: str) -> None:
    kind, _, polynomial = problem.partition(" ")
    if kind == "expand":
        for x in (-2, 0, 3):
            assert _value(polynomial.replace(")(", ")*("), x) == _value(answer, x)
        return
    # A polynomial of degree at most 5 is fixed by six values.
    for x in range(6):
        assert _derivative_at(polynomial, x) == _value(answer, x)


def _derivative_at(polynomial: str, x: int) -> Fraction:
    """Return p'(x) from 7 equally spaced values (exact for degree up to 6)."""
    weights = (-1, 9, -45, 0, 45, -9, 1)
    return (
        sum(w * _value(polynomial, x + offset) for w, offset in zip(weights, range(-3, 4), strict=True)) / 60
    )


def test_brackets_are_balanced():
    pairs = {")": "(", "]": "[", "}": "{", ">": "<"}
    for document in generate("gen-brackets", 50_000):
        for line in document.splitlines():
            stack = []
            for symbol in line.replace("|", "").split():
                if symbol in pairs:
                    assert stack.pop() == pairs[symbol]
                else:
                    stack.append(symbol)
            assert not stack, line


def test_records_answer_their_questions():
    for document in generate("gen-records", 50_000):
        facts, _, questions = document.partition("\n\n")
        table = {}
        for line in facts.splitlines():
            name, _, fields = line.partition(": ")
            table[name] = dict(field.split(" ", 1) for field in fields.split(", "))
        for question in questions.splitlines():
            key, name, answer = re.fullmatch(r"What is the (\w+) of (\w+)\? (\w+)", question).groups()
            assert table[name][key] == answer


def test_copying_does_what_it_says():
    tasks = {
        "again": list,
        "backwards": lambda w: w[::-1],
        "sorted": sorted,
        "first letters": lambda w: [x[0] for x in w],
        "how many": lambda w: [str(len(w))],
        "last": lambda w: w[-1:],
    }
    for document in generate("gen-copying", 50_000):
        for block in document.split("\n\n"):
            given, result = block.split("\n")
            task, _, answer = result.partition(": ")
            assert answer.split() == tasks[task](given.split())


def test_ledgers_add_up():
    for document in generate("gen-ledgers", 100_000):
        lines = document.splitlines()
        balance = opening = cents(lines[1].removeprefix("Opening balance "))
        received = spent = 0
        for line in lines[3:-3]:
            _, _, amount, after = line.split(" | ")
            balance += cents(amount)
            received += max(0, cents(amount))
            spent -= min(0, cents(amount))
            assert cents(after) == balance
        a, b, c, d = map(cents, re.findall(NUMBER, lines[-2].replace(" - ", " ; ")))
        assert (a, b, c, d) == (opening, received, spent, balance) and a + b - c == d
        assert cents(lines[-1].removeprefix("Closing balance ")) == balance


def test_statements_add_up():
    for document in generate("gen-statements", 100_000):
        total, items = {}, 0
        for line in document.splitlines():
            if match := re.fullmatch(rf"  [a-z ]+ ({NUMBER})", line):
                items += cents(match[1])
            elif match := re.fullmatch(rf"Total ([a-z]+) ({NUMBER})", line):
                assert cents(match[2]) == items
                total[match[1]], items = items, 0
            elif match := re.fullmatch(rf"Equity ({NUMBER}) - ({NUMBER}) = ({NUMBER})", line):
                a, b, c = map(cents, match.groups())
                assert (a, b, c) == (total["assets"], total["liabilities"], a - b)
            elif match := re.fullmatch(
                rf"(?:Profit|Loss) for the year ({NUMBER}) - ({NUMBER}) = ({NUMBER})", line
            ):
                a, b, c = map(cents, match.groups())
                assert b == total["costs"] and a - b == c and line.startswith("Loss") == (c < 0)
