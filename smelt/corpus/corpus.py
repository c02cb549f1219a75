"""Open a built corpus: training batches, validation batches, documents and their text."""

from __future__ import annotations

import functools
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
from tokenizers import Tokenizer

from smelt.corpus.batches import Batch, RowSampler, pack
from smelt.corpus.shards import MANIFEST, Shard, ShardReader, token_type
from smelt.corpus.split import length_bucket
from smelt.corpus.tokenizer import load_tokenizer
from smelt.errors import SmeltError
from smelt.files import ROOT, sha256_file
from smelt.results.parquet import ParquetReader
from smelt.study.records import make_anew, read_record

TOKENIZER, DOCUMENTS = "tokenizer.json", "documents.parquet"
FORMAT = 1
PHASES = {"trunk": 1, "decay": 2}
VALIDATION = "validation"
_NAMES, _NUMBERS = ("source", "category", "split"), ("tokens", "bytes", "shard", "offset")
SCHEMA = ROOT / "workflow" / "schemas" / "corpus.schema.yaml"


class Corpus:
    """A built corpus in a folder. Use `Corpus.open`."""

    def __init__(self, folder: Path, manifest: dict[str, Any]) -> None:
        self.folder, self.manifest = folder, manifest
        self.sha256 = sha256_file(folder / MANIFEST)
        self.vocab_size: int = manifest["vocab"]
        self.bos: int = manifest["bos"]
        self.pad: int = manifest["pad"]
        self.dtype = token_type(self.vocab_size)
        shards = [Shard(**entry) for entry in manifest["shards"]]
        self._readers = {
            split: ShardReader(folder, [shard for shard in shards if shard.split == split], self.dtype)
            for split in manifest["splits"]
        }
        self._samplers: dict[tuple[str, int], RowSampler] = {}

    def __reduce__(self) -> tuple:
        # A copy in another process opens the files itself; a pickled memory map would carry the whole corpus.
        return Corpus.open, (self.folder,)

    @classmethod
    def open(cls, folder: Path | str) -> Corpus:
        """Open the corpus in `folder`.

        Raises:
            SmeltError: the manifest is missing, damaged or of another format, or a shard has another
                size than it says. Content is checked when a file is first used.
        """
        folder = Path(folder)
        corpus = cls(folder, read_record(folder / MANIFEST, SCHEMA))
        for reader in corpus._readers.values():
            reader.check_sizes()
        return corpus

    @functools.cached_property
    def tokenizer(self) -> Tokenizer:
        """The tokenizer; `encode(text).ids` has no start token, `decode(ids)` drops it."""
        return load_tokenizer(checked_file(self.folder, self.manifest, TOKENIZER))

    @functools.cached_property
    def documents(self) -> dict[str, np.ndarray]:
        """Columns with one row a document: source category split tokens bytes shard offset.

        `tokens` counts the start token. Rows of validation come first. A row takes 56 bytes: equal names are
        one object, and the documents' hashes stay in the file.
        """
        return self._index()

    @functools.cached_property
    def held_out(self) -> dict[str, np.ndarray]:
        """The rows of `documents` that are of validation; the others stay in the file."""
        return self._index(only=VALIDATION)

    def _index(self, only: str | None = None) -> dict[str, np.ndarray]:
        """Return the rows of the index of documents, with `only` its first rows, which are of that split."""
        path = checked_file(self.folder, self.manifest, DOCUMENTS)
        parts: dict[str, list[np.ndarray]] = {name: [] for name in (*_NAMES, *_NUMBERS)}
        with ParquetReader(path, read_dictionary=list(_NAMES)) as file:
            for batch in file.iter_batches(columns=list(parts)):
                rows = {name: _array(batch.column(name)) for name in parts}
                count = len(batch) if only is None else int((rows["split"] == only).sum())
                for name, values in rows.items():
                    parts[name].append(values[:count])
                if count < len(batch):
                    break
        return {name: np.concatenate(found) if found else np.empty(0) for name, found in parts.items()}

    def batch(
        self, phase: str, seed: int, step: int, batch: int, context: int, rank: int = 0, world: int = 1
    ) -> Batch:
        """Return the rows of `rank` of one training step; a pure function of the arguments.

        Args:
            phase: `trunk` or `decay`; their documents are disjoint.
            seed: decides the order; both members of a pair use the same.
            step: 0-based step within the phase.
            batch: sequences a step over all ranks.
            context: tokens of a sequence.
            rank, world: this process and the number of processes; `batch` must be divisible by `world`.

        Returns:
            A `Batch` with `batch / world` rows of `context` tokens.
        """
        if phase not in PHASES:
            raise SmeltError(f"phase is {phase!r}; it must be one of {', '.join(PHASES)}")
        if batch % world or not 0 <= rank < world or step < 0:
            raise SmeltError(
                f"batch {batch}, rank {rank}, world {world}, step {step}: the batch must be divisible by "
                "the number of processes, the rank below it and the step not negative"
            )
        rows = batch // world
        return self._sampler(phase, context).batch(seed, step * batch + rank * rows, rows)

    def rows(self, phase: str, context: int) -> int:
        """Return how many contexts one epoch of `phase` has."""
        return self._sampler(phase, context).rows

    def _sampler(self, phase: str, context: int) -> RowSampler:
        key = (phase, context)
        if key not in self._samplers:
            self._samplers[key] = RowSampler(self._readers[phase], context, self.bos, PHASES[phase])
        return self._samplers[key]

    def validation(self, context: int, tokens: int, batch: int) -> Iterator[Batch]:
        """Yield packed validation batches of about `tokens` tokens in all, the same ones every time.

        A document longer than `context` is scored on its beginning. `validation_documents` says which
        documents are taken.
        """
        chosen = self.validation_documents(context, tokens)
        pieces = [(index, self._ids(index)[: context + 1].astype(np.int64)) for index in chosen]
        return pack(pieces, context, batch, self.pad)

    def validation_documents(self, context: int, tokens: int) -> list[int]:
        """Return the documents that `validation` scores, as rows of `documents`.

        The next document is always one of the length bucket with the fewest tokens so far, and in it of
        the source with the fewest, so that every length and every source is measured however small
        `tokens` is.
        """
        table = self.held_out
        left: dict[int, dict[str, list[int]]] = {}
        for index, length in enumerate(length_bucket(table["tokens"]).tolist()):
            bucket = left.setdefault(length, {})
            bucket.setdefault(table["source"][index], []).append(index)
        by_bucket = dict.fromkeys(left, 0)
        by_source = dict.fromkeys(table["source"].tolist(), 0)
        chosen, total = [], 0
        while left and total < tokens:
            bucket = min(left, key=lambda bucket: (by_bucket[bucket], bucket))
            source = min(left[bucket], key=lambda source: (by_source[source], source))
            # Rows are in the order of hashes, so the last one is as good as any.
            chosen.append(left[bucket][source].pop())
            size = min(int(table["tokens"][chosen[-1]]), context)
            total += size
            by_bucket[bucket] += size
            by_source[source] += size
            if not left[bucket][source]:
                del left[bucket][source]
            if not left[bucket]:
                del left[bucket]
        return chosen

    def text(self, document: int) -> str:
        """Return the text of row `document` of `documents`."""
        if not 0 <= document < len(self.documents["tokens"]):
            raise SmeltError(
                f"document {document}: the corpus has documents 0 to {len(self.documents['tokens']) - 1}"
            )
        return self.tokenizer.decode(self._ids(document).tolist())

    def _ids(self, document: int) -> np.ndarray:
        table = self.held_out if document < len(self.held_out["tokens"]) else self.documents
        begin, count = int(table["offset"][document]), int(table["tokens"][document])
        return self._readers[table["split"][document]].tokens(int(table["shard"][document]))[
            begin : begin + count
        ]


def checked_file(folder: Path, manifest: dict[str, Any], name: str) -> Path:
    """Return the path of a file that the manifest in `folder` lists.

    Raises:
        SmeltError: the file is missing or damaged; the message says what mends it.
    """
    path = folder / name
    if not path.is_file():
        raise SmeltError(f"{path} does not exist; {make_anew(folder / MANIFEST)}")
    if sha256_file(path) != manifest["files"][name]:
        raise SmeltError(f"{path} is damaged: its SHA-256 differs; {make_anew(folder / MANIFEST)}")
    return path


def _array(column: pa.Array) -> np.ndarray:
    """Return a column as an array; of a dictionary-encoded one, its values as shared objects."""
    if not pa.types.is_dictionary(column.type):
        return column.to_numpy()
    values = np.array([sys.intern(value) for value in column.dictionary.to_pylist()], object)
    return values[column.indices.to_numpy()]
