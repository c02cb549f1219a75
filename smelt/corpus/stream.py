"""Corpora too large to keep: public data sets are streamed straight into shards.

The work is cut into parts: part k of every source. Parts are independent, so several processes and machines
can share them; memory is that of one block, however large the corpus.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from dataclasses import asdict
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from smelt.corpus.clean import clean
from smelt.corpus.corpus import DOCUMENTS, MANIFEST, TOKENIZER, Corpus
from smelt.corpus.decontaminate import Decontaminator, study_items
from smelt.corpus.documents import sha256_text
from smelt.corpus.finish import finish
from smelt.corpus.pool import Pool
from smelt.corpus.public import open_dataset, read_revisions
from smelt.corpus.shards import Shard
from smelt.corpus.sources import SourceSet
from smelt.corpus.stream_parts import (
    BLOCK_TOKENS,
    INDEX,
    INDEX_SCHEMA,
    PARTS,
    PartTask,
    hashed_split,
    read_state,
    stream_part,
)
from smelt.corpus.tokenizer import save_tokenizer, train_tokenizer
from smelt.errors import SmeltError
from smelt.files import atomic_path, read_json, sha256_file, sha256_json, write_json
from smelt.results.parquet import ParquetReader, write_table
from smelt.study import Study
from smelt.study.records import make_anew


def needed_tokens(study: Study, sources: SourceSet) -> int:
    """Return how many tokens of text a study needs for both phases and validation, with 1% to spare."""
    training = study.training
    step = training.batch * study.corpus.context
    trunk = training.horizons[-1] * step / study.corpus.max_epochs
    decay = training.decay_steps * step / study.corpus.max_epochs
    train = max(trunk / (1 - sources.decay_fraction), decay / sources.decay_fraction)
    return round(1.01 * train / (1 - sources.validation_fraction))


def build_stream(
    study: Study,
    sources: SourceSet,
    cache: Path,
    out: Path,
    jobs: int,
    share: tuple[int, int] | None = None,
    block: int = BLOCK_TOKENS,
) -> Corpus | None:
    """Stream the corpus of `study` into `out`; go on where an earlier call was interrupted.

    Args:
        cache: folder with the stamp of `fetch`, which pins the revision of every data set.
        jobs: processes on this machine.
        share: `(i, n)`: only every n-th part from part i on, without the closing step, so that several
            machines can work on one folder.
        block: tokens of a block.

    Returns:
        The corpus; None for a share.

    Raises:
        SmeltError: `datasets` is not installed, a data set cannot be read, or there is too little text.
    """
    revisions = read_revisions(sources, cache)
    items = Decontaminator(study_items(study))
    (out / MANIFEST).unlink(missing_ok=True)
    _ensure_tokenizer(study, sources, revisions, out)
    tasks = _tasks(study, sources, revisions, out)
    mine = tasks[share[0] :: share[1]] if share else tasks
    with Pool(min(jobs, len(mine))) as pool:
        pool.run(stream_part, [(task, items, block) for task in mine], [4 * t.tokens for t in mine], "stream")
    if share:
        return None
    return _close(study, sources, tasks, items, revisions)


def _tasks(study: Study, sources: SourceSet, revisions: dict[str, str], out: Path) -> list[PartTask]:
    total = needed_tokens(study, sources)
    shares = sum(source.share for source in sources.sources)
    return [
        PartTask(
            source,
            revisions[source.name],
            part,
            sources.parts,
            round(total * source.share / shares / sources.parts) + 1,
            study.corpus.vocab,
            sources.validation_fraction,
            sources.decay_fraction,
            out,
        )
        for part in range(sources.parts)
        for source in sources.sources
    ]


def _close(
    study: Study, sources: SourceSet, tasks: list[PartTask], items: Decontaminator, revisions: dict[str, str]
) -> Corpus:
    """Write the tables and the manifest from the states of all parts."""
    out = tasks[0].out
    states = [(task, read_state(out / PARTS / f"{task.name}.json")) for task in tasks]
    blocks = [block for _, state in states for block in state.blocks]
    shards = [Shard(**entry) for block in blocks for entry in block["shards"]]
    _write_documents(out, blocks)
    rows, hashes = [], {}
    for source in sources.sources:
        mine = [state for task, state in states if task.source == source]
        own = [block for state in mine for block in state.blocks]
        held_out = sum(s["tokens"] for b in own for s in b["shards"] if s["split"] == "validation")
        documents, tokens = sum(state.documents for state in mine), sum(state.tokens for state in mine)
        if not documents:
            raise SmeltError(f"source {source.name}: data set {source.dataset} gave no document")
        hashes[source.name] = sha256_json([block["documents"] for block in own])
        rows.append(
            {
                "source": source.name,
                "category": source.category,
                "licence": source.licence,
                "documents": documents,
                "train_tokens": tokens - held_out,
                "validation_tokens": held_out,
                "bytes": sum(state.bytes for state in mine),
                "bytes_per_token": sum(state.bytes for state in mine) / max(1, tokens - documents),
                "repeated_8grams": float(np.mean([state.repeated for state in mine])),
                "sha256": hashes[source.name],
            }
        )
    write_table(out, "corpus_sources", rows)
    facts = {
        "set": sources.name,
        "revisions": revisions,
        "sources": hashes,
        "removed": {
            source.name: {"in evaluation": sum(s.removed for t, s in states if t.source == source)}
            for source in sources.sources
        },
        "items": {"count": items.items, "sha256": items.sha256},
    }
    return finish(study, out, shards, facts)


def _write_documents(out: Path, blocks: list[dict[str, Any]]) -> None:
    """Write the index of the held-out documents; that of the others stays in `index/`, one file a block."""
    with atomic_path(out / DOCUMENTS) as temporary:
        schema = INDEX_SCHEMA.append(pa.field("shard", pa.int64()))
        with pq.ParquetWriter(temporary, schema) as writer:
            number = 0
            for block in blocks:
                path = out / INDEX / f"{block['name']}.parquet"
                _check_index(out, path, block)
                with ParquetReader(path) as file:
                    rows = file.read()
                table = rows.filter(pc.equal(rows["split"], "validation"))
                if len(table):
                    column = pa.array([number] * len(table), pa.int64())
                    writer.write_table(table.append_column("shard", column).cast(schema))
                    number += 1


def _check_index(out: Path, path: Path, block: dict[str, Any]) -> None:
    """Raise a SmeltError unless the index of a block is as it was written."""
    if not path.is_file() or sha256_file(path) != block["index"]:
        mend = make_anew(out / PARTS / f"{block['part']}.json")
        raise SmeltError(f"{path} is missing or damaged: its SHA-256 differs; {mend}")


def _ensure_tokenizer(study: Study, sources: SourceSet, revisions: dict[str, str], out: Path) -> None:
    """Train the tokenizer unless the one in `out` is whole, of the same text and for the same vocabulary.

    Several machines may do this at once: they write equal files.
    """
    path = out / PARTS / "tokenizer.json"
    key = sha256_json({"set": asdict(sources), "revisions": revisions, "vocab": study.corpus.vocab})
    with contextlib.suppress(SmeltError, FileNotFoundError):  # absent or damaged
        if read_json(path) == {"key": key, "sha256": sha256_file(out / TOKENIZER)}:
            return
    save_tokenizer(
        train_tokenizer(_tokenizer_sample(sources, revisions), study.corpus.vocab), out / TOKENIZER
    )
    write_json(path, {"key": key, "sha256": sha256_file(out / TOKENIZER)})


def _tokenizer_sample(sources: SourceSet, revisions: dict[str, str]) -> Iterator[str]:
    """Yield training text from the beginning of each data set, by its share of the corpus."""
    shares = sum(source.share for source in sources.sources)
    for source in sources.sources:
        left = sources.tokenizer_bytes * source.share / shares
        for row in open_dataset(source, revisions[source.name]):
            text = clean(row[source.column] or "", prose=False)
            if hashed_split(sha256_text(text), sources.validation_fraction, 0.0) != "validation":
                left -= len(text.encode())
                yield text
            if left <= 0:
                break
