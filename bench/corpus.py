"""Extraction and tokenisation by core, against a plain loop: `python bench/corpus.py --cache data/cache`.

Tokenising: the stage of the build on one and on two processes, against one process that calls
`tokenizers.encode_batch` in a loop, on the same texts; alternated, best of several rounds, wall time.
Extraction: the stage on one and on two processes.
"""

from __future__ import annotations

import argparse
import os
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

import numpy as np

from smelt.corpus.build import tokenise_group
from smelt.corpus.decontaminate import Decontaminator
from smelt.corpus.fetch import check_archive, locked_packages
from smelt.corpus.pool import Pool
from smelt.corpus.prepare import Prepared, prepare
from smelt.corpus.shards import token_type
from smelt.corpus.sources import load_sources
from smelt.corpus.tokenizer import load_tokenizer, save_tokenizer, train_tokenizer

VOCAB = 1024


def best(rounds: int, *works: Callable[[], object]) -> list[float]:
    """Return the shortest wall time of each work, alternating between them."""
    times: list[list[float]] = [[] for _ in works]
    for _ in range(rounds):
        for work, mine in zip(works, times, strict=True):
            begin = time.perf_counter()
            work()
            mine.append(time.perf_counter() - begin)
    return [min(mine) for mine in times]


def plain_loop(prepared: list[Prepared], tokenizer: Path) -> int:
    """Tokenise everything in one process, 1,000 documents at a time, as one would by hand."""
    encode, total = load_tokenizer(tokenizer), 0
    for item in prepared:
        texts = list(item.texts())
        for start in range(0, len(texts), 1000):
            for encoding in encode.encode_batch(texts[start : start + 1000], add_special_tokens=False):
                total += len(np.array(encoding.ids, np.uint16))
    return total


def main() -> None:
    """Print megabytes a second of both stages."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--cache", type=Path, default=Path("data/cache"))
    parser.add_argument("--set", default="small", help="source set")
    parser.add_argument("--rounds", type=int, default=3)
    args = parser.parse_args()
    os.environ["TOKENIZERS_PARALLELISM"] = "false"
    sources = load_sources(args.set)
    archives = {p.name: check_archive(args.cache, p) for p in locked_packages(sources)}
    with tempfile.TemporaryDirectory() as folder, Pool(1) as one, Pool(2) as two:
        work = Path(folder)
        two.run(len, [("warm",), ("up",)], [1, 1], "start of two processes")

        def extract(pool: Pool) -> list[Prepared]:
            return prepare(sources, archives, Decontaminator(), work, pool)

        prepared = extract(one)
        size = sum(sum(item.sizes) for item in prepared) / 1e6
        single, double = best(args.rounds, lambda: extract(one), lambda: extract(two))
        print(f"extraction: {size / single:.2f} MB/s on one process, {single / double:.2f} times that on two")

        save_tokenizer(
            train_tokenizer((t for item in prepared for t in item.texts()), VOCAB), work / "t.json"
        )
        tasks = [
            (item.path, group, work / "t.json", work / f"{item.source.name}.{group}.bin", token_type(VOCAB))
            for item in prepared
            for group in range(len(item.groups))
        ]
        sizes = [group for item in prepared for group in item.groups]
        loop, single, double = best(
            args.rounds,
            lambda: plain_loop(prepared, work / "t.json"),
            lambda: one.run(tokenise_group, tasks, sizes, "tokenise on one"),
            lambda: two.run(tokenise_group, tasks, sizes, "tokenise on two"),
        )
        print(
            f"tokenising: plain loop {size / loop:.2f} MB/s; the stage {loop / single:.2f} times that on one "
            f"process, {loop / double:.2f} times on two ({single / double:.2f} times its own speed on one)"
        )


if __name__ == "__main__":
    main()
