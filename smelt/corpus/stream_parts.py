"""One part of a streamed corpus: documents of a share of one data set, written block by block.

After each block the part's state is written; an interrupted part goes on after its last block.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterator
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from smelt.corpus.clean import clean
from smelt.corpus.corpus import TOKENIZER
from smelt.corpus.decontaminate import Decontaminator
from smelt.corpus.documents import sha256_text
from smelt.corpus.public import open_dataset, part_of
from smelt.corpus.shards import token_type, write_shard
from smelt.corpus.sources import Source
from smelt.corpus.split import SPLITS
from smelt.corpus.tokenizer import BOS_ID, load_tokenizer
from smelt.corpus.windows import repeated_share
from smelt.errors import SmeltError
from smelt.files import atomic_path, read_json, sha256_file, sha256_json, write_json
from smelt.study.records import make_anew

PARTS, INDEX = "parts", "index"
BLOCK_TOKENS = 1 << 25
_BATCH = 512
_FORMAT = 2  # of a part's state
# Texts of a part's first block over which repetition is measured.
_SAMPLE = 2_000
INDEX_SCHEMA = pa.schema(
    [
        ("source", pa.string()),
        ("category", pa.string()),
        ("split", pa.string()),
        ("tokens", pa.int64()),
        ("bytes", pa.int64()),
        ("sha256", pa.string()),
        ("offset", pa.int64()),
    ]
)


@dataclass
class PartState:
    """What a part has done; the content of `parts/<part>.json`.

    Attributes:
        key: hash of everything that the part's blocks depend on; another key starts the part again.
        position: where the data set stands, in the words of `datasets`.
        blocks: for each finished block its shards, the SHA-256 of its index and a hash of its documents.
        documents, tokens, bytes: what the blocks hold.
        removed: documents that share words with an evaluation item.
        repeated: share of repeated runs of eight words in a sample.
        exhausted: the data is at an end.
    """

    key: str
    position: dict[str, Any] | None = None
    blocks: list[dict[str, Any]] = field(default_factory=list)
    documents: int = 0
    tokens: int = 0
    bytes: int = 0
    removed: int = 0
    repeated: float = 0.0
    exhausted: bool = False


def read_state(path: Path) -> PartState:
    """Read the state of a part.

    Raises:
        SmeltError: the file is missing or damaged; the message says what makes the part anew.
    """
    try:
        return PartState(**read_json(path))
    except (SmeltError, TypeError) as error:
        raise SmeltError(f"{path} is not the state of a part ({error}); {make_anew(path)}") from None


@dataclass(frozen=True)
class PartTask:
    """One part: its source at a pinned revision, which share of it, and how many tokens it is to give."""

    source: Source
    revision: str
    part: int
    parts: int
    tokens: int
    vocab: int
    validation: float
    decay: float
    out: Path

    @property
    def name(self) -> str:
        """Name of the part in files."""
        return f"{self.source.name}-{self.part:05d}"

    def key(self, items: str) -> str:
        """Return a hash of everything that a block depends on; `items` is the evaluation items'.

        The number of tokens is not part of it: blocks are whole, so a study that needs more goes on.
        """
        settings = {k: v for k, v in asdict(self).items() if k not in ("out", "tokens")}
        settings |= {"items": items, "tokenizer": sha256_file(self.out / TOKENIZER), "format": _FORMAT}
        return sha256_json(settings)


def stream_part(task: PartTask, items: Decontaminator, block: int = BLOCK_TOKENS) -> None:
    """Write the shards of one part, block by block, from where its state file says."""
    path, key = task.out / PARTS / f"{task.name}.json", task.key(items.sha256)
    state = read_state(path) if path.exists() else PartState(key)
    if state.key != key:
        state = PartState(key)
    if state.exhausted or state.tokens >= task.tokens:
        return
    tokenizer = load_tokenizer(task.out / TOKENIZER)
    stream = part_of(open_dataset(task.source, task.revision), task.part, task.parts)
    if state.position is not None:
        stream.load_state_dict(state.position)
    rows = iter(stream)
    while not state.exhausted and state.tokens < task.tokens:
        written = _Block(task, len(state.blocks), tokenizer, items)
        state.exhausted = not written.fill(rows, block)
        if written.tokens:
            state.blocks.append(written.write())
        state.documents += written.documents
        state.tokens += written.tokens
        state.bytes += written.bytes
        state.removed += written.removed
        state.repeated = state.repeated or repeated_share(written.sample)
        state.position = stream.state_dict()
        # Last: what the state lists is on disk.
        write_json(path, asdict(state), sealed=True)


class _Block:
    """Documents of one block, tokenised, by split."""

    def __init__(self, task: PartTask, number: int, tokenizer: Any, items: Decontaminator) -> None:
        self._task, self._tokenizer, self._items = task, tokenizer, items
        self._name = f"{task.name}-{number:05d}"
        self._ids: dict[str, list[np.ndarray]] = {split: [] for split in SPLITS}
        self._index: list[dict[str, Any]] = []
        self._offsets = dict.fromkeys(SPLITS, 0)
        self.sample: list[str] = []
        self.documents = self.tokens = self.bytes = self.removed = 0

    def fill(self, rows: Iterator[dict[str, Any]], target: int) -> bool:
        """Take documents until the block has `target` tokens; return whether there may be more."""
        waiting: list[str] = []
        size, more = 0, True
        while more and self.tokens < target:
            row = next(rows, None)
            more = row is not None
            text = self._text(row) if more else ""
            if text:
                waiting.append(text)
                size += len(text)
            # A token is a byte at least: a block ends within about one target after its own.
            if len(waiting) == _BATCH or size >= target or not more:
                self._add(waiting)
                waiting, size = [], 0
        return more

    def _text(self, row: dict[str, Any]) -> str:
        text = clean(row[self._task.source.column] or "", prose=False)
        if len(text.encode()) < self._task.source.min_bytes:
            return ""
        if self._items.hits(text):
            self.removed += 1
            return ""
        return text

    def _add(self, texts: list[str]) -> None:
        dtype = token_type(self._task.vocab)
        if len(self.sample) < _SAMPLE:
            self.sample += texts
        for text, encoding in zip(
            texts, self._tokenizer.encode_batch_fast(texts, add_special_tokens=False), strict=True
        ):
            ids, sha256, size = (
                np.array([BOS_ID, *encoding.ids], dtype),
                sha256_text(text),
                len(text.encode()),
            )
            split = hashed_split(sha256, self._task.validation, self._task.decay)
            facts = (self._task.source.name, self._task.source.category, split)
            values = (*facts, len(ids), size, sha256, self._offsets[split])
            self._index.append(dict(zip(INDEX_SCHEMA.names, values, strict=True)))
            self._ids[split].append(ids)
            self._offsets[split] += len(ids)
            self.documents += 1
            self.tokens += len(ids)
            self.bytes += size

    def write(self) -> dict[str, Any]:
        """Write the block's shards and index; return what the state file says of it."""
        dtype, shards = token_type(self._task.vocab), []
        for split in SPLITS:
            if self._ids[split]:
                name = f"{split}-{self._name}"
                shards.append(write_shard(self._task.out, name, split, self._ids[split], dtype).to_dict())
        self._index.sort(key=lambda row: SPLITS.index(row["split"]))
        path = self._task.out / INDEX / f"{self._name}.parquet"
        with atomic_path(path) as temporary:
            pq.write_table(pa.Table.from_pylist(self._index, schema=INDEX_SCHEMA), temporary)
        documents = hashlib.sha256("".join(row["sha256"] for row in self._index).encode()).hexdigest()
        facts = {"name": self._name, "part": self._task.name, "index": sha256_file(path)}
        return {**facts, "shards": shards, "documents": documents}


def hashed_split(sha256: str, validation: float, decay: float) -> str:
    """Return the split of a document by its hash: validation, then `decay` of the rest, then trunk."""
    place = int(sha256[:13], 16) / 16**13
    if place < validation:
        return "validation"
    return "decay" if place < validation + decay * (1 - validation) else "trunk"
