"""Documents of one source: read, cut into documents, cleaned, in an order that only the text decides."""

from __future__ import annotations

import hashlib
from dataclasses import dataclass, field
from pathlib import Path

from smelt.corpus.archives import read_members
from smelt.corpus.clean import clean, decode
from smelt.corpus.extract import EXTRACTORS
from smelt.corpus.generators import GENERATORS, generate
from smelt.corpus.sources import Source
from smelt.errors import SmeltError

# Extraction keeps more than the cap, because later steps remove repeated text.
SPARE = 2


@dataclass
class Extracted:
    """What was read of one source.

    Attributes:
        texts: cleaned documents, sorted by the SHA-256 of their UTF-8, without exact repetitions.
        read: UTF-8 bytes of all documents before the cap.
        skipped: members that are not UTF-8.
    """

    texts: list[str] = field(default_factory=list)
    read: int = 0
    skipped: int = 0


def sha256_text(text: str) -> str:
    """Return the SHA-256 of the UTF-8 of `text` in hexadecimal."""
    return hashlib.sha256(text.encode()).hexdigest()


def read_source(source: Source, archives: list[Path]) -> Extracted:
    """Read all documents of `source` from its `archives`.

    Raises:
        SmeltError: an archive is unreadable, or fewer than two documents are found.
    """
    result = Extracted()
    kept: dict[str, str] = {}
    for text in _raw(source, archives, result):
        size = len(text.encode())
        if source.min_bytes <= size <= source.max_bytes:
            result.read += size
            kept.setdefault(sha256_text(text), text)
    if len(kept) < 2:
        what = f"one document of at least {source.min_bytes} bytes" if kept else "no document"
        raise SmeltError(
            f"source {source.name} has {what}; at least two are needed, one to train on and one to hold out "
            f"(kind {source.kind}, {result.skipped} files were not UTF-8)"
        )
    size = 0
    for _, text in sorted(kept.items()):
        if size >= SPARE * source.cap:
            break
        size += len(text.encode())
        result.texts.append(text)
    return result


def _raw(source: Source, archives: list[Path], result: Extracted):
    if source.kind in GENERATORS:
        # Generated line layout is part of the task, so it is not cleaned.
        yield from generate(source.kind, source.cap)
        return
    extractor = EXTRACTORS[source.kind]
    for archive in archives:
        for name, data in read_members(archive, source.include, source.exclude):
            text = decode(data)
            if text is None:
                result.skipped += 1
                continue
            for document in extractor.read(name, text):
                yield clean(document, extractor.prose)
