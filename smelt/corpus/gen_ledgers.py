"""Ledgers and financial statements whose sums add up, with invented firms and amounts."""

from __future__ import annotations

import random

from smelt.corpus.gen_patterns import word
from smelt.corpus.gen_sizes import log_uniform

_MONTHS = ("January", "February", "March", "April", "May", "June", "July", "August", "September", "October",
           "November", "December")  # fmt: skip
_INCOME = ("invoice paid by", "deposit from", "refund from", "interest from", "sale to")
_SPENDING = ("rent to", "wages to", "supplies from", "insurance with", "repairs by", "fuel from", "taxes to")
_COSTS = (
    "wages and salaries",
    "materials",
    "rent and energy",
    "transport",
    "marketing",
    "research",
    "insurance",
)
_ASSETS = (
    "cash and deposits",
    "receivables",
    "inventories",
    "property and equipment",
    "patents",
    "investments",
)
_DEBTS = ("trade payables", "bank loans", "bonds", "provisions", "deferred tax")


def _money(cents: int) -> str:
    sign = "-" if cents < 0 else ""
    return f"{sign}{abs(cents) // 100:,}.{abs(cents) % 100:02d}"


def _amount(rng: random.Random) -> int:
    """Return an amount in cents, each order of magnitude from 1 to 10,000 equally likely."""
    return log_uniform(rng, 100, 1_000_000)


def _firm(rng: random.Random) -> str:
    return (
        f"{word(rng).capitalize()} {rng.choice(('Ltd', 'and Sons', 'Works', 'Trading', 'Holding', 'Bank'))}"
    )


def ledger(rng: random.Random) -> str:
    """Return an account's entries with the running balance, the totals and the closing balance."""
    month, year = rng.choice(_MONTHS), rng.randrange(1950, 2030)
    opening = balance = _amount(rng)
    lines = [
        f"Account of {_firm(rng)}, {month} {year}",
        f"Opening balance {_money(opening)}",
        "day | entry | amount | balance",
    ]
    partners = [_firm(rng) for _ in range(6)]
    received = spent = day = 0
    for _ in range(log_uniform(rng, 1, 60)):
        day = min(28, day + rng.randrange(0, 3))
        amount = _amount(rng)
        if rng.random() < 0.5:
            received += amount
            entry = f"{rng.choice(_INCOME)} {rng.choice(partners)} | {_money(amount)}"
            balance += amount
        else:
            spent += amount
            entry = f"{rng.choice(_SPENDING)} {rng.choice(partners)} | {_money(-amount)}"
            balance -= amount
        lines.append(f"{max(day, 1)} | {entry} | {_money(balance)}")
    lines += [
        f"Received in all {_money(received)}, spent in all {_money(spent)}",
        f"{_money(opening)} + {_money(received)} - {_money(spent)} = {_money(balance)}",
        f"Closing balance {_money(balance)}",
    ]
    return "\n".join(lines)


def _picked(rng: random.Random, labels: tuple[str, ...]) -> list[tuple[str, int]]:
    chosen = [label for label in labels if rng.random() < 0.7] or [labels[0]]
    return [(label, 100 * _amount(rng)) for label in chosen]


def _listed(title: str, items: list[tuple[str, int]]) -> list[str]:
    total = sum(value for _, value in items)
    return [
        title,
        *(f"  {label} {_money(value)}" for label, value in items),
        f"Total {title.lower()} {_money(total)}",
    ]


def statement(rng: random.Random) -> str:
    """Return income statements and balance sheets of one firm for one or more years."""
    firm, year = _firm(rng), rng.randrange(1950, 2020)
    lines, before = [f"Annual accounts of {firm}"], 0
    for offset in range(log_uniform(rng, 1, 8)):
        costs = _picked(rng, _COSTS)
        spent = sum(value for _, value in costs)
        revenue = spent * rng.randrange(70, 160) // 100
        profit = revenue - spent
        assets, debts = _picked(rng, _ASSETS), _picked(rng, _DEBTS)
        owned, owed = sum(v for _, v in assets), sum(v for _, v in debts)
        word_ = "profit" if profit >= 0 else "loss"
        lines += ["", f"Year {year + offset}", f"Revenue {_money(revenue)}", *_listed("Costs", costs)]
        lines.append(
            f"{word_.capitalize()} for the year {_money(revenue)} - {_money(spent)} = {_money(profit)}"
        )
        if offset:
            trend = "more" if revenue > before else "not more"
            lines.append(f"Revenue was {trend} than the {_money(before)} of the year before.")
        lines += [*_listed("Assets", assets), *_listed("Liabilities", debts)]
        lines.append(f"Equity {_money(owned)} - {_money(owed)} = {_money(owned - owed)}")
        before = revenue
    return "\n".join(lines)
