"""From archives to documents with a split: extraction, deduplication, caps, hold-out.

Texts go through Parquet files in a work folder, so that only one source is in memory at a time.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from smelt.corpus.decontaminate import Decontaminator
from smelt.corpus.dedup import Deduplicator, signature
from smelt.corpus.documents import read_source, sha256_text
from smelt.corpus.generators import GENERATORS
from smelt.corpus.pool import Pool
from smelt.corpus.sources import Source, SourceSet
from smelt.corpus.split import split_documents
from smelt.corpus.windows import repeated_share
from smelt.errors import SmeltError
from smelt.results.parquet import ParquetReader

# Texts of one row group are tokenised by one process at a time.
GROUP_BYTES = 1_000_000
_RAW = pa.schema([("text", pa.large_string()), ("signature", pa.binary())])
_CLEAN = pa.schema([("text", pa.large_string())])


@dataclass
class Prepared:
    """The documents of one source, in the order of their hashes; their texts are in `path`.

    Attributes:
        groups: bytes of each row group of `path`.
        repeated: share of the windows of eight words that occurred before in this source.
        removed: how many paragraphs were repeated, documents dropped as empty or too short after that,
            as nearly equal to another one, or for sharing words with an evaluation item, and files
            skipped because they are not UTF-8.
    """

    source: Source
    path: Path
    hashes: list[str] = field(default_factory=list)
    sizes: list[int] = field(default_factory=list)
    splits: list[str] = field(default_factory=list)
    groups: list[int] = field(default_factory=list)
    repeated: float = 0.0
    removed: Counter = field(default_factory=Counter)

    def texts(self) -> Iterator[str]:
        """Yield the texts in order."""
        with ParquetReader(self.path) as file:
            for group in range(file.num_row_groups):
                yield from file.read_row_group(group).column("text").to_pylist()


def prepare(
    sources: SourceSet, archives: dict[str, Path], items: Decontaminator, work: Path, pool: Pool
) -> list[Prepared]:
    """Extract, deduplicate across sources, decontaminate, cap and split all sources.

    Args:
        archives: checked archive of each package.
        items: evaluation items that no document may share words with.
        work: folder for the intermediate files.

    Returns:
        The sources in the order of the set.

    Raises:
        SmeltError: a source is left without enough documents.
    """
    tasks = [(source, [archives[name] for name in source.packages], work) for source in sources.sources]
    expected = [source.cap for source in sources.sources]
    extracted = pool.run(_extract, tasks, expected, "extract")
    deduplicator = Deduplicator()
    prepared = []
    for source, skipped in zip(sources.sources, extracted, strict=True):
        item = _new_documents(source, work, deduplicator, items)
        item.removed["not UTF-8"] = skipped
        item.splits = split_documents(
            item.sizes, item.hashes, sources.validation_fraction, sources.decay_fraction
        )
        prepared.append(item)
    repeated = pool.run(_repeated, [(item,) for item in prepared], [sum(i.sizes) for i in prepared], "count")
    for item, share in zip(prepared, repeated, strict=True):
        item.repeated = share
    return prepared


def _extract(source: Source, archives: list[Path], work: Path) -> int:
    """Write the source's documents and their signatures to `<work>/<source>.raw.parquet`."""
    result = read_source(source, archives)
    rows = ({"text": text, "signature": signature(text).tobytes()} for text in result.texts)
    with GroupWriter(work / f"{source.name}.raw.parquet", _RAW) as writer:
        for row in rows:
            writer.add(row)
    return result.skipped


def _new_documents(source: Source, work: Path, deduplicator: Deduplicator, items: Decontaminator) -> Prepared:
    """Write what no earlier source, no earlier document and no item has said, up to the cap."""
    raw, item = work / f"{source.name}.raw.parquet", Prepared(source, work / f"{source.name}.parquet")
    total = 0
    with ParquetReader(raw) as file, GroupWriter(item.path, _CLEAN) as writer:
        for text, values in _rows(file):
            if total >= source.cap:
                break
            if source.kind not in GENERATORS:
                text = _new_text(item, text, np.frombuffer(values, np.uint32), deduplicator, items)
                if not text:
                    continue
            size = len(text.encode())
            total += size
            item.hashes.append(sha256_text(text))
            item.sizes.append(size)
            writer.add({"text": text})
    raw.unlink()
    item.groups = writer.sizes
    if len(item.hashes) < 2:
        raise SmeltError(
            f"source {source.name} has {len(item.hashes)} documents that no other source has; "
            "at least two are needed"
        )
    return item


def _new_text(
    item: Prepared, text: str, values: np.ndarray, deduplicator: Deduplicator, items: Decontaminator
) -> str:
    """Return what is to be kept of a document; nothing if it is dropped, for a reason that is counted."""
    text, paragraphs = deduplicator.new_text(text)
    item.removed["paragraphs"] += paragraphs
    if len(text.encode()) < item.source.min_bytes:
        item.removed["too short"] += 1
    elif deduplicator.is_near(values):
        item.removed["near"] += 1
    elif items.hits(text):
        item.removed["in evaluation"] += 1
    else:
        return text
    return ""


def _rows(file: pq.ParquetFile) -> Iterator[tuple[str, bytes]]:
    for group in range(file.num_row_groups):
        table = file.read_row_group(group)
        yield from zip(table.column("text").to_pylist(), table.column("signature").to_pylist(), strict=True)


def _repeated(item: Prepared) -> float:
    return repeated_share(item.texts())


class GroupWriter:
    """Writes rows to a Parquet file in row groups of about a megabyte of text."""

    def __init__(self, path: Path, schema: pa.Schema) -> None:
        self._writer = pq.ParquetWriter(path, schema, compression="lz4")
        self._schema, self._rows, self._bytes = schema, [], 0
        self.sizes: list[int] = []

    def __enter__(self) -> GroupWriter:
        return self

    def __exit__(self, *error: object) -> None:
        self._flush()
        self._writer.close()

    def add(self, row: dict[str, object]) -> None:
        """Append one row."""
        self._rows.append(row)
        self._bytes += len(row["text"].encode())
        if self._bytes >= GROUP_BYTES:
            self._flush()

    def _flush(self) -> None:
        if self._rows:
            self._writer.write_table(pa.Table.from_pylist(self._rows, schema=self._schema))
            self.sizes.append(self._bytes)
            self._rows, self._bytes = [], 0
