"""How long the documents of a corpus are: sums of its index, which has one row a document."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pyarrow as pa

from smelt.corpus import length_bucket
from smelt.corpus.corpus import DOCUMENTS, MANIFEST, SCHEMA, checked_file
from smelt.results.parquet import ParquetReader
from smelt.study.records import read_record

_KEYS = ["source", "category", "split", "length_bucket"]


def length_rows(corpus: Path) -> list[dict[str, Any]]:
    """Return the rows of `corpus_lengths`, read batch by batch.

    Raises:
        SmeltError: the manifest or the index of documents is missing, damaged or not of the other.
    """
    index = checked_file(corpus, read_record(corpus / MANIFEST, SCHEMA), DOCUMENTS)
    with ParquetReader(index) as file:
        parts = [_sums(batch) for batch in file.iter_batches(columns=[*_KEYS[:3], "tokens"])]
    if not parts:
        return []
    whole = pa.concat_tables(parts).group_by(_KEYS, use_threads=False)
    table = whole.aggregate([("documents", "sum"), ("tokens", "sum")])
    return table.rename_columns([*_KEYS, "documents", "tokens"]).to_pylist()


def _sums(batch: pa.RecordBatch) -> pa.Table:
    lengths = pa.array(length_bucket(batch.column("tokens").to_numpy()))
    table = pa.Table.from_batches([batch]).append_column("length_bucket", lengths)
    sums = table.group_by(_KEYS, use_threads=False).aggregate([("tokens", "count"), ("tokens", "sum")])
    return sums.rename_columns([*_KEYS, "documents", "tokens"])
