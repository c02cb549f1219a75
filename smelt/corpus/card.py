"""The measured tables of the data card, as Markdown."""

from __future__ import annotations

from collections import Counter

import numpy as np

from smelt.corpus.corpus import Corpus
from smelt.corpus.split import LENGTH_BOUNDS, length_bucket
from smelt.results.parquet import read_rows


def card(corpus: Corpus) -> str:
    """Return two tables: what each source gives, and how long its documents are in tokens."""
    rows = read_rows(corpus.folder / "corpus_sources.parquet")
    rows.sort(key=lambda row: (row["category"], row["source"]))
    return f"{_sources(rows)}\n\n{_lengths(corpus, rows)}"


def _sources(rows: list[dict]) -> str:
    lines = [
        "| source | category | licence | documents | MB | training tokens | held-out tokens | bytes a token "
        "| repeated 8-grams |",
        "|---|---|---|--:|--:|--:|--:|--:|--:|",
    ]
    lines += [
        f"| {r['source']} | {r['category']} | {r['licence']} | {r['documents']:,} | {r['bytes'] / 1e6:.2f} "
        f"| {r['train_tokens']:,} | {r['validation_tokens']:,} | {r['bytes_per_token']:.2f} "
        f"| {r['repeated_8grams']:.1%} |"
        for r in rows
    ]
    for category in dict.fromkeys(row["category"] for row in rows):
        mine = [row for row in rows if row["category"] == category]
        lines.append(_total(f"**{category}**", mine))
    return "\n".join([*lines, _total("**all**", rows)])


def _total(title: str, rows: list[dict]) -> str:
    total = {
        key: sum(row[key] for row in rows)
        for key in ("documents", "bytes", "train_tokens", "validation_tokens")
    }
    return (
        f"| {title} | {len(rows)} sources | | {total['documents']:,} | {total['bytes'] / 1e6:.2f} "
        f"| {total['train_tokens']:,} | {total['validation_tokens']:,} | | |"
    )


def _lengths(corpus: Corpus, rows: list[dict]) -> str:
    table = corpus.documents
    counts: dict[str, Counter] = {row["source"]: Counter() for row in rows}
    lengths = np.where(table["tokens"] <= LENGTH_BOUNDS[-1], length_bucket(table["tokens"]), 0)
    for source, length in zip(table["source"], lengths.tolist(), strict=True):
        counts[source][length] += 1
    lines = [
        "| documents of up to ... tokens | "
        + " | ".join(str(bound) for bound in LENGTH_BOUNDS)
        + " | more |",
        "|---|" + "--:|" * (len(LENGTH_BOUNDS) + 1),
    ]
    for source, found in counts.items():
        lines.append(f"| {source} | " + " | ".join(str(found[bound]) for bound in (*LENGTH_BOUNDS, 0)) + " |")
    return "\n".join(lines)
