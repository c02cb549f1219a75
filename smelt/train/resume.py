"""Checkpoints to resume from: safetensors files, named by a record that is written last.

`resume/<updates done>.json` names the files of one checkpoint with their SHA-256, so that a half-written
or damaged one is recognised and skipped. Nothing is unpickled. Files are not flushed to the disk one by
one: a process that is killed loses nothing by that, and after a power failure the checksums tell.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import torch
from safetensors.torch import load_file
from torch import Tensor

from smelt.errors import SmeltError
from smelt.files import read_json, sha256_file, write_json
from smelt.model.weights import write_tensors
from smelt.train.sharding import local

KEPT = 2
ROWS = "rows"


@dataclass(frozen=True)
class Identity:
    """What a checkpoint must share with the run that resumes from it.

    `shards` is the number of processes that hold parts of the state: 1 unless it is sharded.
    """

    spec_hash: str
    corpus: str
    shards: int


@dataclass(frozen=True)
class Record:
    """One checkpoint.

    Attributes:
        done: updates behind it.
        state: number in the names of the files with weights and optimiser state. That is `done`, but at the
            end of a branch it is the fork, where the trunk goes on.
        files: SHA-256 of each file by name.
        endpoints: manifest entries of the branches finished before it.
        identity: of the run that wrote it, as plain values.
    """

    done: int
    state: int
    files: dict[str, str]
    endpoints: list[dict[str, Any]]
    identity: dict[str, Any]


def warn(message: str) -> None:
    """Print one warning line."""
    print(f"warning: {message}", file=sys.stderr, flush=True)


class Store:
    """The checkpoints of one run folder, as seen by the process that holds shard `shard` of the state."""

    def __init__(self, run: Path, identity: Identity, shard: int = 0) -> None:
        self._run = run
        self._folder = run / "resume"
        self._identity = asdict(identity)
        self._shard = shard

    def write(self, number: int, part: str | int, tensors: Mapping[str, Tensor]) -> dict[str, str]:
        """Write one file of a checkpoint, `ROWS` or a shard; return its name with its SHA-256."""
        self._folder.mkdir(parents=True, exist_ok=True)
        path = self._folder / _name(number, part)
        temporary = path.with_suffix(".tmp")
        write_tensors(dict(tensors), temporary)
        temporary.replace(path)
        return {path.name: sha256_file(path)}

    def commit(self, done: int, state: int, files: dict[str, str], endpoints: list[dict[str, Any]]) -> None:
        """Make the checkpoint count by writing its record."""
        record = Record(done, state, files, endpoints, self._identity)
        write_json(self._path(done), asdict(record), sealed=True)

    def prune(self, fork: int | None) -> None:
        """Remove all but the last two checkpoints, the one at `fork` and those whose state they use."""
        numbers = [number for number in self._numbers() if self._is_own(number)]
        keep = {*numbers[-KEPT:], fork}
        keep |= {self._read(number).state for number in numbers[-KEPT:]}
        self._remove([number for number in self._numbers() if number not in keep])

    def clear(self, after: int = -1) -> None:
        """Remove the checkpoints with more than `after` updates behind them, unfinished ones too."""
        paths = list(self._folder.iterdir()) if self._folder.is_dir() else []
        for path in sorted(paths, key=lambda path: path.suffix != ".json"):
            if int(path.name.lstrip(".")[:9]) > after:
                path.unlink()
        if paths and after < 0:
            self._folder.rmdir()

    def latest(
        self, fork_of: Callable[[int], int | None], agree: Callable[[bool], bool] = bool
    ) -> Record | None:
        """Return the last usable checkpoint, None without one; warn of each that is skipped.

        Args:
            fork_of: gives the updates before the branch that a number of updates lies in, or None. A
                checkpoint in a branch is of use only with the fork, since the trunk goes on from there.
            agree: of several processes, tells whether all of them find their files in order.
        """
        for number in reversed(self._numbers()):
            problem, record = "", None
            try:
                record = self._checked(number)
                fork = fork_of(number)
                if fork not in (None, number):
                    self._checked(fork)
            except SmeltError as error:
                problem = str(error)
            if agree(not problem):
                return record
            warn(f"{problem or 'another process found damage'}; checkpoint {number} is skipped")
        return None

    def state(self, number: int) -> dict[str, Tensor]:
        """Return this process's weights and optimiser state of a checkpoint.

        Raises:
            SmeltError: it is missing or damaged.
        """
        return load_file(self._folder / _name(self._checked(number).state, self._shard))

    def state_files(self, number: int) -> dict[str, str]:
        """Return names and SHA-256 of the files with the state of a checkpoint, all shards."""
        record = self._read(number)
        return {name: digest for name, digest in record.files.items() if name != _name(number, ROWS)}

    def rows(self, number: int) -> Tensor:
        """Return the log rows of a checkpoint."""
        return load_file(self._folder / _name(number, ROWS))[ROWS]

    def _path(self, number: int) -> Path:
        return self._folder / f"{number:09d}.json"

    def _numbers(self) -> list[int]:
        return sorted(int(path.stem) for path in self._folder.glob("*.json") if path.stem.isdigit())

    def _read(self, number: int) -> Record:
        path = self._path(number)
        try:
            record = Record(**read_json(path))
        except TypeError:
            raise SmeltError(f"{path} is not the record of a checkpoint") from None
        if record.identity != self._identity:
            raise SmeltError(f"{path} is of another specification, corpus or number of shards")
        return record

    def _is_own(self, number: int) -> bool:
        try:
            self._read(number)
        except SmeltError:
            return False
        return True

    def _remove(self, numbers: list[int]) -> None:
        for number in numbers:
            self._path(number).unlink()
            for path in self._folder.glob(f"{number:09d}-*"):
                path.unlink()

    def _checked(self, number: int) -> Record:
        record = self._read(number)
        for name in (_name(number, ROWS), _name(record.state, self._shard)):
            if name not in record.files:
                raise SmeltError(f"{self._path(number)} names no file {name}")
            _check_file(self._folder / name, record.files[name])
        for endpoint in record.endpoints:
            _check_file(self._run / endpoint["weights"], endpoint["sha256"])
        return record


def _name(number: int, part: str | int) -> str:
    return f"{number:09d}-{part}.safetensors"


def _check_file(path: Path, expected: str) -> None:
    if not path.is_file():
        raise SmeltError(f"{path} does not exist")
    if sha256_file(path) != expected:
        raise SmeltError(f"{path} is damaged: its SHA-256 is not the recorded one")


def capture(parts: Any) -> dict[str, Tensor]:
    """Return weights and optimiser state (`state_tensors`) under flat names, on the CPU."""
    tensors = {}
    for name, parameter, state in parts:
        tensors[f"weights.{name}"] = local(parameter.detach())
        for key, value in state.items():
            tensors[f"{key}.{name}"] = local(value)
    return {name: tensor.cpu().contiguous() for name, tensor in tensors.items()}


@torch.no_grad()
def restore(parts: Any, tensors: Mapping[str, Tensor]) -> None:
    """Copy what `capture` returned back in place."""
    for name, parameter, state in parts:
        local(parameter).copy_(tensors[f"weights.{name}"])
        for key, value in state.items():
            local(value).copy_(tensors[f"{key}.{name}"])
