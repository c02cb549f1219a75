"""Build a corpus: documents, tokenizer, shards, index, manifest."""

from __future__ import annotations

import functools
import shutil
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
from tokenizers import Tokenizer

from smelt.corpus.corpus import DOCUMENTS, MANIFEST, TOKENIZER, Corpus
from smelt.corpus.decontaminate import Decontaminator, study_items
from smelt.corpus.fetch import LOCK, check_archive, locked_packages
from smelt.corpus.finish import finish
from smelt.corpus.pool import Pool
from smelt.corpus.prepare import Prepared, prepare
from smelt.corpus.shards import FOLDER as SHARD_FOLDER
from smelt.corpus.shards import SHARD_TOKENS, Shard, token_type, write_shard
from smelt.corpus.sources import SourceSet
from smelt.corpus.split import SPLITS
from smelt.corpus.tokenizer import BOS_ID, load_tokenizer, save_tokenizer, train_tokenizer
from smelt.files import atomic_path, sha256_json
from smelt.results.parquet import ParquetReader, write_table
from smelt.study import Study

# Starting a process takes as long as working through some megabytes.
_BYTES_A_PROCESS = 8_000_000


@dataclass(frozen=True)
class Tokenised:
    """Token ids of one row group in a file: documents one after the other, each behind its start token."""

    path: Path
    dtype: np.dtype
    lengths: list[int]


def build(study: Study, sources: SourceSet, cache: Path, out: Path, jobs: int, lock: Path = LOCK) -> Corpus:
    """Build the corpus of `study` from `sources` in the folder `out`, reading the archives in `cache`.

    The manifest is written last, so a folder with a manifest is complete. The result does not
    depend on `jobs`.

    Raises:
        SmeltError: an archive or the evaluation items are missing, a source is empty, or the
            study asks for more epochs than `corpus.max_epochs`.
    """
    packages = locked_packages(sources, lock)
    archives = {package.name: check_archive(cache, package) for package in packages}
    items = Decontaminator(study_items(study))
    (out / MANIFEST).unlink(missing_ok=True)
    work = out / ".work"
    shutil.rmtree(work, ignore_errors=True)
    work.mkdir(parents=True)
    volume, vocab = sum(source.cap for source in sources.sources), study.corpus.vocab
    try:
        with Pool(max(1, min(jobs, volume // _BYTES_A_PROCESS))) as pool:
            prepared = prepare(sources, archives, items, work, pool)
            tokenizer = train_tokenizer(_training_sample(prepared, sources), vocab)
            save_tokenizer(tokenizer, out / TOKENIZER)
            tokenised = _tokenise(prepared, out / TOKENIZER, work, vocab, pool)
        shards = _write_shards(prepared, tokenised, out, token_type(vocab))
    finally:
        shutil.rmtree(work, ignore_errors=True)
    _write_sources(prepared, tokenised, out)
    facts = {
        "set": sources.name,
        "archives": {package.file: package.sha256 for package in packages},
        "sources": {item.source.name: source_hash(item) for item in prepared},
        "removed": {item.source.name: dict(item.removed) for item in prepared},
        "items": {"count": items.items, "sha256": items.sha256},
    }
    return finish(study, out, shards, facts)


def source_hash(item: Prepared) -> str:
    """Return a hash of a source's documents and their splits; equal texts give equal hashes everywhere."""
    return sha256_json(list(zip(item.hashes, item.splits, strict=True)))


def _training_sample(prepared: list[Prepared], sources: SourceSet) -> Iterator[str]:
    """Yield training texts, as many bytes of each category, about `tokenizer_bytes` in all."""
    share = {}
    for item in prepared:
        share[item.source.category] = share.get(item.source.category, 0) + sum(item.sizes)
    for item in prepared:
        part = sum(item.sizes) / share[item.source.category]
        left = sources.tokenizer_bytes / len(share) * part
        for text, size, split in zip(item.texts(), item.sizes, item.splits, strict=True):
            if left <= 0:
                break
            if split != "validation":
                left -= size
                yield text


def _tokenise(
    prepared: list[Prepared], tokenizer: Path, work: Path, vocab: int, pool: Pool
) -> list[list[Tokenised]]:
    """Return the token files of each source, one a row group."""
    tasks = [
        (item.path, group, tokenizer, work / f"{item.source.name}.{group}.bin", token_type(vocab))
        for item in prepared
        for group in range(len(item.groups))
    ]
    sizes = [size for item in prepared for size in item.groups]
    done = iter(pool.run(tokenise_group, tasks, sizes, "tokenise"))
    return [[next(done) for _ in item.groups] for item in prepared]


def tokenise_group(path: Path, group: int, tokenizer: Path, target: Path, dtype: np.dtype) -> Tokenised:
    """Tokenise one row group of texts into the file `target`."""
    encode = _cached_tokenizer(tokenizer)
    with ParquetReader(path) as file:
        texts = file.read_row_group(group).column("text").to_pylist()
    lengths = []
    with open(target, "wb") as stream:
        for encoding in encode.encode_batch_fast(texts, add_special_tokens=False):
            ids = np.array([BOS_ID, *encoding.ids], dtype)
            lengths.append(len(ids))
            stream.write(ids.tobytes())
    return Tokenised(target, dtype, lengths)


@functools.cache
def _cached_tokenizer(path: Path) -> Tokenizer:
    return load_tokenizer(path)


def _write_shards(
    prepared: list[Prepared], tokenised: list[list[Tokenised]], out: Path, dtype: np.dtype
) -> list[Shard]:
    """Write the shards of every split and the index of documents; return the shards.

    Documents of all sources are mixed in the order of their hashes.
    """
    shutil.rmtree(out / SHARD_FOLDER, ignore_errors=True)
    index = _index(prepared, tokenised)
    shards, columns = [], []
    for split in SPLITS:
        rows = sorted((row for row in index if row["split"] == split), key=lambda row: row["sha256"])
        for number, part in enumerate(_shard_parts(rows)):
            documents = (row["tokens_map"][row["begin"] : row["begin"] + row["tokens"]] for row in part)
            shards.append(write_shard(out, f"{split}-{number:05d}", split, documents, dtype))
            offset = 0
            for row in part:
                columns.append({**row, "shard": number, "offset": offset})
                offset += row["tokens"]
    table = pa.Table.from_pylist(columns, schema=_DOCUMENT_SCHEMA)
    with atomic_path(out / DOCUMENTS) as temporary:
        pq.write_table(table, temporary)
    return shards


_DOCUMENT_SCHEMA = pa.schema(
    [
        ("source", pa.string()),
        ("category", pa.string()),
        ("split", pa.string()),
        ("tokens", pa.int64()),
        ("bytes", pa.int64()),
        ("sha256", pa.string()),
        ("shard", pa.int64()),
        ("offset", pa.int64()),
    ]
)


def _index(prepared: list[Prepared], tokenised: list[list[Tokenised]]) -> list[dict]:
    index = []
    for item, files in zip(prepared, tokenised, strict=True):
        facts = zip(item.hashes, item.sizes, item.splits, strict=True)
        for file in files:
            tokens = np.memmap(file.path, file.dtype, mode="r")
            begin = 0
            for length in file.lengths:
                sha256, size, split = next(facts)
                index.append(
                    {
                        "source": item.source.name,
                        "category": item.source.category,
                        "split": split,
                        "tokens": length,
                        "bytes": size,
                        "sha256": sha256,
                        "tokens_map": tokens,
                        "begin": begin,
                    }
                )
                begin += length
    return index


def _shard_parts(rows: list[dict]) -> Iterator[list[dict]]:
    part, tokens = [], 0
    for row in rows:
        part.append(row)
        tokens += row["tokens"]
        if tokens >= SHARD_TOKENS:
            yield part
            part, tokens = [], 0
    if part:
        yield part


def _write_sources(prepared: list[Prepared], tokenised: list[list[Tokenised]], out: Path) -> None:
    rows = []
    for item, files in zip(prepared, tokenised, strict=True):
        lengths = [length for file in files for length in file.lengths]
        held_out = sum(n for n, split in zip(lengths, item.splits, strict=True) if split == "validation")
        rows.append(
            {
                "source": item.source.name,
                "category": item.source.category,
                "licence": item.source.licence,
                "documents": len(item.hashes),
                "train_tokens": sum(lengths) - held_out,
                "validation_tokens": held_out,
                "bytes": sum(item.sizes),
                # The start token stands for no byte.
                "bytes_per_token": sum(item.sizes) / max(1, sum(lengths) - len(lengths)),
                "repeated_8grams": item.repeated,
                "sha256": source_hash(item),
            }
        )
    write_table(out, "corpus_sources", rows)
