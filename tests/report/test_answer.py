"""The answer in a minute is made of the tables: other rows, other sentences."""

import pytest

from smelt.report.answer import groups, headline, words
from smelt.report.ledger import ledger


@pytest.fixture
def claims(data):
    """The synthetic claims: C2 is inconclusive, C3 not measured, C4 reproduced."""
    return ledger(data)


def test_each_claim_is_counted_once(claims):
    found = groups(claims)
    counted = [text.split() for group in found for _, text in group.verdicts]
    assert sum(int(words[1]) if words[1].isdigit() else 1 for words in counted) == len(claims) == 22
    assert [len(group.verdicts) for group in found] == [1, 3, 3, 4, 4, 4]


def test_a_decided_claim_speaks_for_its_group(claims):
    recipe = groups(claims)[1]
    assert recipe.sentence == (
        "C4. Synthetic statement 4 <b>with markup</b>: all cells is 0.5 (95% interval 0.4 to 0.6; the paper: "
        "16/16)."
    )
    claims.loc[claims["claim"] == "C4", "verdict"] = "inconclusive"
    claims.loc[claims["claim"] == "C2", ["value", "low", "high", "unit"]] = [-0.25, None, None, "nats"]
    recipe = groups(claims)[1]
    assert "all cells is -0.25 nats (no interval of its own;" in recipe.sentence
    assert recipe.verdicts == (("inconclusive", "? 2 inconclusive"), ("not measured", "– 1 not measured"))


def test_a_group_without_numbers_tells_the_reason(claims):
    claims["value"] = None
    assert groups(claims)[2].sentence == "C5: Invented for a test."


@pytest.mark.parametrize(
    ("verdict", "answer"),
    [
        ("reproduced", "Yes"),
        ("contradicted", "No,"),
        ("inconclusive", "cannot tell"),
        ("not measured", "not"),
    ],
)
def test_the_headline_follows_the_first_claim(data, claims, verdict, answer):
    claims.loc[claims["claim"] == "C1", "verdict"] = verdict
    assert answer in headline(data, claims)[0]


def test_the_headline_counts_cells_at_the_last_horizon(data, claims):
    frame = data.endpoints()
    last = frame[frame["horizon"] == frame["horizon"].max()]
    table = last.pivot_table(index="cell", columns="arch", values="val_loss")
    gap = table["baseline"] - table["smelt"]
    sentence = headline(data, claims)[1]
    assert f"lower one in {(gap > 0).sum()} of {len(gap)} cells" in sentence
    assert (
        f"{gap.mean():+.3f} nats on average (cells from {gap.min():+.3f} to {gap.max():+.3f}; "
        "1 training seed)" in sentence
    )
    assert "Taken one by one, 0 of 4 gaps can be told from zero." in sentence
    assert "an unlooped model with SMELT's experts is 0.010 nats worse than SMELT (1 cell)" in sentence
    assert "a Baseline of the best depth is 0.030 nats better than SMELT (1 cell)" in sentence


def test_words_have_the_studys_numbers(data):
    assert words(data) == {
        "span": "50%",
        "visits": "2 times",
        "cells": "4 cells",
        "horizons": "2 horizons",
        "tokens": "61.4k to 123k",
    }
