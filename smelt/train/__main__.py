"""`python -m smelt.train`: train one run of a study."""

from __future__ import annotations

import argparse
import contextlib
import fcntl
import os
import time
from collections.abc import Iterator
from pathlib import Path
from typing import IO

from smelt import cli
from smelt.budget import resolve_run
from smelt.errors import SmeltError
from smelt.study import RunSpec, load_study
from smelt.train.placement import check_group, own_devices, place, started_group

# "Temporary failure" of sysexits.h: the state is saved, the same command goes on.
EXIT_REQUEUE = 75
_PATIENCE = 60.0  # seconds for a process that is ending


def main() -> int:
    """Train a run and return the exit status: 0 complete, 75 stopped by a signal with its state saved."""
    parser = argparse.ArgumentParser(prog="python -m smelt.train", description="Train one run of a study.")
    parser.add_argument("--study", required=True, help="name or file of the study")
    parser.add_argument("--run", required=True, help="identifier of the run")
    parser.add_argument("--spec", required=True, help="hash of the run's specification, as planned")
    parser.add_argument("--corpus", required=True, type=Path, help="folder of the corpus")
    parser.add_argument("--out", required=True, type=Path, help="folder of the run")
    arguments = parser.parse_args()
    spec = resolve_run(load_study(arguments.study), arguments.run)
    check_hash(spec, arguments.spec)
    placed = place(spec)
    check_group(spec, placed)
    with locked(arguments.out), own_devices(placed.devices) as leased:
        # Imported late: a refusal should not take the seconds that torch takes to load.
        from smelt.corpus import Corpus
        from smelt.train.engine import STOPPED, train
        from smelt.train.hardware import plan

        hardware = plan(spec, len(leased), placed.micro_tokens, sharded=placed.devices > 1)
        ended = train(spec, Corpus.open(arguments.corpus), arguments.out, hardware)
    # Lightning ends the run when a process that it started itself fails, so only the first one tells.
    return EXIT_REQUEUE if ended == STOPPED and not started_by_first() else 0


def check_hash(spec: RunSpec, expected: str) -> None:
    """Refuse to train something else than what was planned."""
    if spec.spec_hash != expected:
        raise SmeltError(
            f"run {spec.point.run} has the specification {spec.spec_hash}, but {expected} was asked for; "
            "the study or the program changed since the command was planned"
        )


def started_by_first() -> bool:
    """Whether the first process of the run on this machine started this one."""
    return int(os.environ.get("LOCAL_RANK", 0)) > 0


@contextlib.contextmanager
def locked(folder: Path) -> Iterator[None]:
    """Hold the lock of a run's folder; it goes with the process, however that ends.

    A process that was told to end may take a while to save its state, so the lock is waited for.

    Raises:
        SmeltError: another process holds it for a minute.
    """
    group = started_group()
    if started_by_first() if group is None else group.rank:
        yield  # the first process of the group holds it
        return
    folder.mkdir(parents=True, exist_ok=True)
    with open(folder / ".lock", "a") as stream:
        end = time.monotonic() + _PATIENCE
        while not _take(stream):
            if time.monotonic() > end:
                raise SmeltError(f"another process is training in {folder}; wait for it or end it")
            time.sleep(0.2)
        yield


def _take(stream: IO[str]) -> bool:
    try:
        fcntl.flock(stream, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    return True


if __name__ == "__main__":
    cli.run(main)
