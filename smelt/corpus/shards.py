"""Shards: files of little-endian token ids, each document behind a start token, with a checksum each."""

from __future__ import annotations

import hashlib
from collections.abc import Iterable
from dataclasses import asdict, dataclass
from pathlib import Path

import numpy as np

from smelt.errors import SmeltError
from smelt.files import atomic_path, sha256_file
from smelt.study.records import make_anew

FOLDER, MANIFEST = "shards", "manifest.json"
# 32 or 64 MiB; a shard is written, checked and shuffled as a whole.
SHARD_TOKENS = 1 << 24


@dataclass(frozen=True)
class Shard:
    """One file `shards/<name>.bin`: its split, number of tokens and SHA-256."""

    name: str
    split: str
    tokens: int
    sha256: str

    def to_dict(self) -> dict[str, str | int]:
        """Return plain values for JSON."""
        return asdict(self)


def token_type(vocab: int) -> np.dtype:
    """Return the type of a token on disk: two bytes if they suffice for `vocab` ids, else four."""
    return np.dtype("<u2" if vocab <= 1 << 16 else "<u4")


def write_shard(
    folder: Path, name: str, split: str, documents: Iterable[np.ndarray], dtype: np.dtype
) -> Shard:
    """Write documents (ids with their start token) one after the other as `<folder>/shards/<name>.bin`."""
    digest, tokens = hashlib.sha256(), 0
    with atomic_path(folder / FOLDER / f"{name}.bin") as temporary, open(temporary, "wb") as stream:
        for ids in documents:
            data = ids.astype(dtype, copy=False).tobytes()
            digest.update(data)
            stream.write(data)
            tokens += len(ids)
    return Shard(name, split, tokens, digest.hexdigest())


class ShardReader:
    """The shards of one split as memory maps; each is checked against its hash before its first use."""

    def __init__(self, folder: Path, shards: list[Shard], dtype: np.dtype) -> None:
        self._folder, self._dtype = folder, dtype
        self.shards = shards
        self._maps: dict[int, np.ndarray] = {}
        self._mend = make_anew(folder / MANIFEST)

    def check_sizes(self) -> None:
        """Raise SmeltError for a file that is missing or has another size than its tokens need."""
        for shard in self.shards:
            path = self._path(shard)
            if not path.is_file():
                raise SmeltError(f"shard {path} does not exist; {self._mend}")
            if path.stat().st_size != shard.tokens * self._dtype.itemsize:
                raise SmeltError(f"shard {path} is damaged: its size differs; {self._mend}")

    def _path(self, shard: Shard) -> Path:
        return self._folder / FOLDER / f"{shard.name}.bin"

    def tokens(self, index: int) -> np.ndarray:
        """Return all ids of shard `index` as a read-only memory map.

        Raises:
            SmeltError: the file is missing or its content is not what was written.
        """
        if index not in self._maps:
            shard = self.shards[index]
            path = self._path(shard)
            if sha256_file(path) != shard.sha256:
                raise SmeltError(f"shard {path} is damaged: its SHA-256 differs; {self._mend}")
            self._maps[index] = np.memmap(path, self._dtype, mode="r", shape=(shard.tokens,))
        return self._maps[index]
