"""The study's answer in a minute: what its claims came to, in sentences made from the tables alone."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import pandas as pd

from smelt.report.data import PAIRS, Data
from smelt.report.ledger import MARKS, VERDICTS
from smelt.report.tables.formats import between, counted, interval_text, joined, scientific, short

# Questions that a reader brings, and the claims that answer each (section 10).
_GROUPS = (
    ("Is the loss lower at equal budgets?", 1, 1),
    ("Is the recipe the best of its kind?", 2, 4),
    ("Does it save compute?", 5, 7),
    ("Do benchmarks gain too?", 8, 11),
    ("Where is the gain?", 12, 15),
    ("What does the second pass do?", 16, 22),
)
_IN_SHORT = {
    "reproduced": "Yes, in this study's window.",
    "contradicted": "No, not in this study's window.",
    "inconclusive": "This study cannot tell.",
    "not measured": "This study has not measured it.",
}
# Units that say more than that the number is a share.
_UNITS = ("nats", "layers")
_DECIDED = ("reproduced", "contradicted")


@dataclass(frozen=True)
class Group:
    """A question with the verdicts of its claims and one measured sentence."""

    question: str
    verdicts: tuple[tuple[str, str], ...]
    sentence: str


def groups(ledger: pd.DataFrame) -> list[Group]:
    """Return one group a question; `ledger` has the rows of `claims`."""
    found = []
    for question, first, last in _GROUPS:
        rows = ledger[ledger["number"].between(first, last)].to_dict("records")
        tally = [(verdict, sum(row["verdict"] == verdict for row in rows)) for verdict in VERDICTS]
        shown = tuple(
            (verdict, MARKS[verdict] + (f" {verdict}" if len(rows) == 1 else f" {count} {verdict}"))
            for verdict, count in tally
            if count
        )
        found.append(Group(question, shown, _sentence(rows)))
    return found


def _sentence(rows: list[dict[str, Any]]) -> str:
    """Tell the number of the first decided claim that has one, else of the first that has, else why none."""
    measured = [row for row in rows if row["value"] == row["value"] and row["value"] is not None]
    if not measured:
        return f"{rows[0]['claim']}: {rows[0]['reason']}"
    row = next((row for row in measured if row["verdict"] in _DECIDED), measured[0])
    unit = f" {row['unit']}" if row["unit"] in _UNITS else ""
    ends = interval_text(row["low"], row["high"])
    error = f"95% interval {ends}" if ends else "no interval of its own"
    return (
        f"{row['claim']}. {row['statement']}: {row['component']} is "
        f"{scientific(row['value'])}{unit} ({error}; the paper: {row['paper_value']})."
    )


def headline(data: Data, ledger: pd.DataFrame) -> tuple[str, str]:
    """Return the answer in a few words, by the verdict on C1, and the measured sentences behind it."""
    verdict = ledger.set_index("claim").at["C1", "verdict"]
    return _IN_SHORT[verdict], joined(_gap_sentence(data), _alone_sentence(data), _stronger_sentence(data))


def _gap_sentence(data: Data) -> str:
    """Count the cells in which SMELT's loss is lower at the last horizon, seeds averaged."""
    gaps = data.frame(
        PAIRS + "SELECT cell, avg(-gap) AS gap, count(*) AS seeds FROM pairs WHERE horizon = ? "
        "GROUP BY cell ORDER BY cell",
        max(data.study.training.horizons),
    )
    if gaps.empty:
        return ""
    better, mean = int((gaps["gap"] > 0).sum()), float(gaps["gap"].mean())
    seeds = counted(gaps["seeds"].max(), "training seed")
    return (
        f"At the last horizon SMELT's validation loss is the lower one in {better} of "
        f"{counted(len(gaps), 'cell')}; the Baseline's loss minus SMELT's is {mean:+.3f} nats on average "
        f"(cells from {gaps['gap'].min():+.3f} to {gaps['gap'].max():+.3f}; {seeds})."
    )


def _alone_sentence(data: Data) -> str:
    """Count the cells whose gap has an interval without zero."""
    gaps = data.frame(
        "SELECT low > 0 OR high < 0 AS apart FROM law_contrasts WHERE starts_with(contrast, 'loss_gap:') "
        "AND low IS NOT NULL AND high IS NOT NULL"
    )["apart"]
    if gaps.empty:
        return ""
    return f"Taken one by one, {int(gaps.sum())} of {counted(len(gaps), 'gap')} can be told from zero."


def _stronger_sentence(data: Data) -> str:
    """Compare SMELT with the unlooped models that may be stronger than the Baseline of their cell."""
    found = data.frame(
        """
        SELECT split_part(contrast, ':', 1) AS kind, avg(value) AS gap, count(*) AS cells FROM law_contrasts
        WHERE split_part(contrast, ':', 1) IN ('loss_gap_control', 'loss_gap_best_depth')
          AND value IS NOT NULL GROUP BY kind ORDER BY kind DESC
        """
    )
    names = {
        "loss_gap_control": "an unlooped model with SMELT's experts",
        "loss_gap_best_depth": "a Baseline of the best depth",
    }
    parts = [
        f"{names[row['kind']]} is {abs(row['gap']):.3f} nats {'worse' if row['gap'] > 0 else 'better'} than "
        f"SMELT ({counted(row['cells'], 'cell')})"
        for row in found.to_dict("records")
    ]
    return f"Stronger unlooped models at the same budgets: {'; '.join(parts)}." if parts else ""


def words(data: Data) -> dict[str, str]:
    """Return this study's numbers for the words that the page explains."""
    study, training = data.study, data.study.training
    ends = (
        (horizon + training.decay_steps) * training.batch * study.corpus.context
        for horizon in (training.horizons[0], training.horizons[-1])
    )
    return {
        "span": f"{study.loop.span:.0%}",
        "visits": counted(study.loop.visits, "time"),
        "cells": counted(len(data.scales) * len(data.sparsities), "cell"),
        "horizons": counted(len(training.horizons), "horizon"),
        "tokens": between(*map(short, ends)),
    }
