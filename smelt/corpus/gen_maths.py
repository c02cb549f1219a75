"""Mathematics with worked steps. Every line that states a result is computed, and tests check them all."""

from __future__ import annotations

import math
import random
from fractions import Fraction

from smelt.corpus.gen_sizes import log_uniform


def _number(rng: random.Random, digits: int) -> int:
    """Return a number of one to `digits` digits, every count of digits equally likely."""
    count = rng.randrange(1, digits + 1)
    return rng.randrange(10 ** (count - 1), 10**count)


def arithmetic(rng: random.Random) -> str:
    """Return a sheet of one to 40 exercises of one kind with their steps."""
    title, exercise = rng.choice(_ARITHMETIC)
    return "\n\n".join([title, *(exercise(rng) for _ in range(log_uniform(rng, 1, 40)))])


def algebra(rng: random.Random) -> str:
    """Return a sheet of one to 30 exercises of one kind with their steps."""
    title, exercise = rng.choice(_ALGEBRA)
    return "\n\n".join([title, *(exercise(rng) for _ in range(log_uniform(rng, 1, 30)))])


def _addition(rng: random.Random) -> str:
    a, b = _number(rng, 5), _number(rng, 5)
    lines, carry = [f"{a} + {b}"], 0
    width = max(len(str(a)), len(str(b)))
    for place in range(width):
        x, y = a // 10**place % 10, b // 10**place % 10
        total = x + y + carry
        lines.append(f"  {x} + {y} + {carry} = {total}, write {total % 10}, carry {total // 10}")
        carry = total // 10
    if carry:
        lines.append(f"  write {carry}")
    return "\n".join([*lines, f"= {a + b}"])


def _multiplication(rng: random.Random) -> str:
    a, b = _number(rng, 4), _number(rng, 3)
    lines = [f"{a} * {b}"]
    partial = []
    for place, digit in enumerate(reversed(str(b))):
        product = a * int(digit) * 10**place
        partial.append(str(product))
        lines.append(f"  {a} * {digit}{'0' * place} = {product}")
    if len(partial) > 1:
        lines.append(f"  {' + '.join(partial)} = {a * b}")
    return "\n".join([*lines, f"= {a * b}"])


def _division(rng: random.Random) -> str:
    divisor, dividend = rng.randrange(2, 30), _number(rng, 5)
    lines, rest = [f"{dividend} / {divisor}"], 0
    for digit in str(dividend):
        current = rest * 10 + int(digit)
        lines.append(f"  {current} / {divisor} = {current // divisor}, remainder {current % divisor}")
        rest = current % divisor
    return "\n".join([*lines, f"= {dividend // divisor} remainder {rest}"])


def _common_divisor(rng: random.Random) -> str:
    a, b = _number(rng, 4), _number(rng, 4)
    lines, x, y = [f"gcd({a}, {b})"], a, b
    while y:
        lines.append(f"  {x} = {x // y} * {y} + {x % y}")
        x, y = y, x % y
    return "\n".join([*lines, f"= {x}"])


def _fractions(rng: random.Random) -> str:
    a, c = rng.randrange(1, 20), rng.randrange(1, 20)
    b, d = rng.randrange(2, 20), rng.randrange(2, 20)
    base = math.lcm(b, d)
    left, right = a * base // b, c * base // d
    total = Fraction(a, b) + Fraction(c, d)
    return "\n".join(
        [
            f"{a}/{b} + {c}/{d}",
            f"  the least common multiple of {b} and {d} is {base}",
            f"  {left}/{base} + {right}/{base} = {left + right}/{base}",
            f"= {total}",
        ]
    )


def _factors(rng: random.Random) -> str:
    n = rng.randrange(2, 5000)
    lines, rest, found, p = [f"factor {n}"], n, [], 2
    while rest > 1:
        if rest % p:
            p = rest if p * p > rest else p + 1
            continue
        lines.append(f"  {rest} = {p} * {rest // p}")
        found.append(str(p))
        rest //= p
    return "\n".join([*lines, f"= {' * '.join(found)}"])


def _linear(rng: random.Random) -> str:
    a, x, b = rng.randrange(2, 13), rng.randrange(-20, 21), rng.randrange(-30, 31)
    right = a * x + b
    return "\n".join(
        [
            f"solve {a}x {_signed(b)} = {right}",
            f"  {a}x = {right} {_signed(-b)} = {right - b}",
            f"  x = {right - b} / {a}",
            f"x = {x}",
        ]
    )


def _system(rng: random.Random) -> str:
    x, y = rng.randrange(-9, 10), rng.randrange(-9, 10)
    a, b, c = rng.randrange(1, 8), rng.randrange(1, 8), rng.randrange(1, 8)
    d = rng.randrange(1, 8)
    if a * d == b * c:
        d += 1
    p, q = a * x + b * y, c * x + d * y
    det, rest = a * d - b * c, p * d - b * q
    return "\n".join(
        [
            f"solve {a}x + {b}y = {p} and {c}x + {d}y = {q}",
            f"  {a}*{d} - {b}*{c} = {det}",
            f"  ({p}*{d} - {b}*{q}) / {det} = {rest} / {det}, so x = {x}",
            f"  {b}y = {p} - {a}*{x} = {p - a * x}, so y = {y}",
            f"x = {x}, y = {y}",
        ]
    )


def _product(rng: random.Random) -> str:
    a, b = rng.randrange(-9, 10), rng.randrange(-9, 10)
    return "\n".join(
        [
            f"expand (x {_signed(a)})(x {_signed(b)})",
            f"  x^2 {_signed(b)}x {_signed(a)}x {_signed(a * b)}",
            f"= {_polynomial([a * b, a + b, 1])}",
        ]
    )


def _derivative(rng: random.Random) -> str:
    coefficients = [rng.randrange(-9, 10) for _ in range(rng.randrange(2, 6))] + [rng.randrange(1, 10)]
    steps = [
        f"  d/dx {_polynomial([0] * power + [c])} = {_polynomial([0] * (power - 1) + [power * c])}"
        for power, c in enumerate(coefficients)
        if power and c
    ]
    result = [power * c for power, c in enumerate(coefficients)][1:]
    return "\n".join([f"differentiate {_polynomial(coefficients)}", *steps, f"= {_polynomial(result)}"])


def _power(rng: random.Random) -> str:
    base, exponent, modulus = rng.randrange(2, 50), rng.randrange(2, 64), rng.randrange(3, 98)
    lines, result = [f"{base}^{exponent} mod {modulus}, exponent {exponent:b} in binary"], 1
    for bit in f"{exponent:b}":
        squared = result * result % modulus
        line = f"  {result}^2 = {squared}"
        result = squared * base % modulus if bit == "1" else squared
        lines.append(line + (f", times {base} = {result}" if bit == "1" else ""))
    return "\n".join([*lines, f"= {result}"])


def _percent(rng: random.Random) -> str:
    price, percent = rng.randrange(2, 200) * 20, rng.randrange(1, 20) * 5
    thing = rng.choice(("a lamp", "a bicycle", "a coat", "a table", "a clock", "a violin", "a boat"))
    down = rng.random() < 0.5
    change = price * percent // 100
    result = price - change if down else price + change
    word = "falls" if down else "rises"
    return "\n".join(
        [
            f"The price of {thing} is {price}; it {word} by {percent} percent.",
            f"  {percent} percent of {price} is {price} * {percent} / 100 = {change}",
            f"  {price} {'-' if down else '+'} {change} = {result}",
            f"The new price is {result}.",
        ]
    )


def _signed(value: int) -> str:
    return f"- {-value}" if value < 0 else f"+ {value}"


def _polynomial(coefficients: list[int]) -> str:
    """Return a polynomial with the highest power first; `coefficients[i]` belongs to x^i."""
    text = ""
    for power in range(len(coefficients) - 1, -1, -1):
        c = coefficients[power]
        if not c:
            continue
        symbol = "" if power == 0 else "x" if power == 1 else f"x^{power}"
        size = "" if abs(c) == 1 and power else str(abs(c))
        sign = ("-" if c < 0 else "") if not text else (" - " if c < 0 else " + ")
        text += f"{sign}{size}{symbol}"
    return text or "0"


_ARITHMETIC = (
    ("Addition digit by digit", _addition),
    ("Long multiplication", _multiplication),
    ("Long division", _division),
    ("Greatest common divisors", _common_divisor),
    ("Adding fractions", _fractions),
    ("Prime factors", _factors),
)
_ALGEBRA = (
    ("Linear equations", _linear),
    ("Two equations", _system),
    ("Products of binomials", _product),
    ("Derivatives of polynomials", _derivative),
    ("Powers modulo a number", _power),
    ("Percentages", _percent),
)
