"""How long the documents of a corpus are: sums of its index, which has one row a document."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from smelt.corpus.corpus import DOCUMENTS, MANIFEST, SCHEMA
from smelt.corpus.split import LENGTH_BOUNDS
from smelt.errors import SmeltError
from smelt.files import sha256_file
from smelt.study.records import make_anew, read_record

_KEYS = ["source", "category", "split", "length_bucket"]


def length_rows(corpus: Path) -> list[dict[str, Any]]:
    """Return the rows of `corpus_lengths`, read batch by batch.

    Raises:
        SmeltError: the manifest or the index of documents is missing, damaged or not of the other.
    """
    manifest, index = corpus / MANIFEST, corpus / DOCUMENTS
    digest = read_record(manifest, SCHEMA)["files"][DOCUMENTS]
    if not index.is_file():
        raise SmeltError(f"{index} does not exist; {make_anew(manifest)}")
    if sha256_file(index) != digest:
        raise SmeltError(f"{index} is damaged: its SHA-256 differs; {make_anew(manifest)}")
    with pq.ParquetFile(index) as file:
        parts = [_sums(batch) for batch in file.iter_batches(columns=[*_KEYS[:3], "tokens"])]
    if not parts:
        return []
    whole = pa.concat_tables(parts).group_by(_KEYS)
    table = whole.aggregate([("documents", "sum"), ("tokens", "sum")])
    return table.rename_columns([*_KEYS, "documents", "tokens"]).to_pylist()


def _sums(batch: pa.RecordBatch) -> pa.Table:
    # A document longer than the last bound belongs to the last bucket.
    bounds = np.array(LENGTH_BOUNDS)
    place = np.searchsorted(bounds, batch.column("tokens").to_numpy()).clip(max=len(bounds) - 1)
    table = pa.Table.from_batches([batch]).append_column("length_bucket", pa.array(bounds[place]))
    sums = table.group_by(_KEYS).aggregate([("tokens", "count"), ("tokens", "sum")])
    return sums.rename_columns([*_KEYS, "documents", "tokens"])
