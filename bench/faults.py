"""The faults of `bench.drill`: each disturbs the first run of the study and tells how that ended."""

from __future__ import annotations

import contextlib
import os
import random
import resource
import signal
import subprocess
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

import psutil

DAY = 86400
# Where a fault at rest finds a study: these stages are complete.
STOPS = ("corpus", "train", "evaluate", "tables")


class Bench(Protocol):
    """What a fault needs of the drill."""

    seconds: float  # an undisturbed run takes
    size: int  # bytes of an undisturbed run's results

    def start(self, results: Path, *targets: str, limit: int | None = None) -> subprocess.Popen:
        """Start snakemake on `results`; `limit` is the longest file in bytes."""

    def end(self, process: subprocess.Popen) -> Ended:
        """Wait for it."""


@dataclass(frozen=True)
class Ended:
    """How a snakemake ended; `returncode` is None where it had to be ended."""

    returncode: int | None
    text: str


@dataclass
class Struck:
    """What a fault did.

    Attributes:
        what: told in the log.
        ended: how the run with the fault ended.
        harmed: the damaged file, which an error must name.
        heal: what the owner of the machine does about it: room on the disk, a writable folder.
    """

    what: str
    ended: Ended
    harmed: Path | None = None
    heal: Callable[[], None] = lambda: None


def _at_some_time(bench: Bench, results: Path, rng: random.Random) -> tuple[subprocess.Popen, float]:
    """Start a run and return it after a random share of the time that it takes."""
    process, delay = bench.start(results), rng.uniform(0.02, 0.95) * bench.seconds
    with contextlib.suppress(subprocess.TimeoutExpired):
        process.wait(timeout=delay)
    return process, delay


def family(process: subprocess.Popen) -> list[psutil.Process]:
    """Return a running process and all below it; nothing if it has ended."""
    with contextlib.suppress(psutil.NoSuchProcess):
        first = psutil.Process(process.pid)
        return [first, *first.children(recursive=True)]
    return []


def kill(processes: list[psutil.Process]) -> None:
    """Kill the processes and wait for their end."""
    for process in processes:
        with contextlib.suppress(psutil.NoSuchProcess):
            process.kill()
    psutil.wait_procs(processes, timeout=10)


def killed_process(bench: Bench, results: Path, rng: random.Random, stack: contextlib.ExitStack) -> Struck:
    """SIGKILL to a random process of the tree, snakemake itself among them."""
    process, delay = _at_some_time(bench, results, rng)
    alive = sorted(family(process), key=lambda member: member.pid)
    what = "nothing, as the run had ended"
    if alive:
        victim = rng.choice(alive)
        with contextlib.suppress(psutil.NoSuchProcess):
            what = " ".join(victim.cmdline())[:60]
            victim.kill()
    return Struck(f"kill -9 after {delay:.1f} s of {what!r}", bench.end(process))


def terminated(bench: Bench, results: Path, rng: random.Random, stack: contextlib.ExitStack) -> Struck:
    """SIGTERM to snakemake."""
    process, delay = _at_some_time(bench, results, rng)
    process.send_signal(signal.SIGTERM)
    return Struck(f"SIGTERM to snakemake after {delay:.1f} s", bench.end(process))


def full_disk(bench: Bench, results: Path, rng: random.Random, stack: contextlib.ExitStack) -> Struck:
    """A small file system for the results; without the right to mount one, a limit on the length of files."""
    size = round(rng.uniform(0.05, 0.9) * bench.size)
    results.mkdir()
    mount = ["mount", "-t", "tmpfs", "-o", f"size={size}", "smelt-drill", str(results)]
    if os.geteuid() == 0 and subprocess.run(mount, capture_output=True).returncode == 0:
        stack.callback(subprocess.run, ["umount", "--lazy", str(results)], check=True)

        def heal() -> None:
            room = f"remount,size={4 * bench.size + (64 << 20)}"
            subprocess.run(["mount", "-o", room, str(results)], check=True)

        ended = bench.end(bench.start(results))
        return Struck(f"disk full at {size / 1e6:.2f} MB", ended, heal=heal)
    largest = max(path.stat().st_size for path in (results.parent / "reference").rglob("*"))
    limit = round(rng.uniform(0.01, 0.9) * largest)
    ended = bench.end(bench.start(results, limit=limit))
    return Struck(f"no file over {limit / 1e6:.2f} MB", ended)


def limit_files(limit: int) -> None:
    """Let this process and those below it write no file longer than `limit` bytes."""
    resource.setrlimit(resource.RLIMIT_FSIZE, (limit, limit))


def truncated_checkpoint(
    bench: Bench, results: Path, rng: random.Random, stack: contextlib.ExitStack
) -> Struck:
    """A kill of the whole tree in training, and one file of a checkpoint cut short."""
    process = bench.start(results)
    while process.poll() is None and not list(results.glob("*/runs/*/resume/*.json")):
        time.sleep(0.02)
    with contextlib.suppress(subprocess.TimeoutExpired):
        process.wait(timeout=rng.uniform(0, 2))
    kill(family(process))
    bench.end(process)
    files = sorted(results.glob("*/runs/*/resume/*")) + sorted(results.glob("*/runs/*/endpoints/*"))
    victim = rng.choice(files)
    length = rng.randrange(victim.stat().st_size)
    os.truncate(victim, length)
    ended = bench.end(bench.start(results))
    return Struck(f"{victim.relative_to(results)} truncated to {length} bytes", ended, victim)


def _after_stop(bench: Bench, results: Path, rng: random.Random) -> str:
    stop = rng.choice(STOPS)
    ended = bench.end(bench.start(results, *STOPS[: STOPS.index(stop) + 1]))
    if ended.returncode != 0:
        raise RuntimeError(f"an undisturbed run of {stop} failed:\n{ended.text[-3000:]}")
    return stop


def flipped_shard(bench: Bench, results: Path, rng: random.Random, stack: contextlib.ExitStack) -> Struck:
    """A bit of a shard flipped between two stages."""
    stop = _after_stop(bench, results, rng)
    victim = rng.choice(sorted(results.glob("*/corpus/shards/*.bin")))
    data = bytearray(victim.read_bytes())
    place = rng.randrange(len(data))
    data[place] ^= 1 << rng.randrange(8)
    victim.write_bytes(data)
    ended = bench.end(bench.start(results))
    return Struck(f"byte {place} of {victim.name} flipped after {stop}", ended, victim)


def deleted_table(bench: Bench, results: Path, rng: random.Random, stack: contextlib.ExitStack) -> Struck:
    """A Parquet file deleted between two stages."""
    stop = _after_stop(bench, results, rng)
    victim = rng.choice(sorted(results.rglob("*.parquet")))
    victim.unlink()
    ended = bench.end(bench.start(results))
    return Struck(f"{victim.relative_to(results)} deleted after {stop}", ended, victim)


def clock_jump(bench: Bench, results: Path, rng: random.Random, stack: contextlib.ExitStack) -> Struck:
    """Files that a wrong clock has dated, between two stages."""
    stop = _after_stop(bench, results, rng)
    days = rng.choice((-3650, -1, 1, 3650))
    files = sorted(path for path in results.rglob("*") if path.is_file())
    chosen = rng.sample(files, max(1, round(rng.random() * len(files))))
    for path in chosen:
        moment = path.stat().st_mtime + days * DAY
        os.utime(path, (moment, moment))
    ended = bench.end(bench.start(results))
    return Struck(f"{len(chosen)} of {len(files)} files {days:+} days after {stop}", ended)


def two_at_once(bench: Bench, results: Path, rng: random.Random, stack: contextlib.ExitStack) -> Struck:
    """The same command twice; one of the two does the work."""
    first, delay = bench.start(results), rng.choice((0, rng.uniform(0, 0.9) * bench.seconds))
    with contextlib.suppress(subprocess.TimeoutExpired):
        first.wait(timeout=delay)
    second = bench.end(bench.start(results))
    ended = bench.end(first)
    if second.returncode not in (0, None) and "another snakemake is working on" not in second.text:
        ended = Ended(None, f"the second gave no reason:\n{second.text}")
    if ended.returncode != 0 and second.returncode == 0:
        ended = second
    return Struck(f"two snakemakes, {delay:.1f} s apart", ended)


def read_only(bench: Bench, results: Path, rng: random.Random, stack: contextlib.ExitStack) -> Struck:
    """A folder that cannot be written to, between two stages."""
    stop = _after_stop(bench, results, rng)
    folder = rng.choice(sorted(path for path in results.rglob("*") if path.is_dir()))
    undo = stack.enter_context(_unwritable(folder))
    ended = bench.end(bench.start(results))
    return Struck(f"{folder.relative_to(results)} read-only after {stop}", ended, heal=undo)


@contextlib.contextmanager
def _unwritable(folder: Path) -> Iterator[Callable[[], None]]:
    """Make a folder read-only; yield what makes it writable again, which the end does too."""
    commands: list[list[str]] = []
    if os.geteuid() == 0:
        mounted = subprocess.run(["mount", "--bind", str(folder), str(folder)], capture_output=True)
        if mounted.returncode:
            raise RuntimeError("the superuser needs the right to mount for the fault read_only")
        subprocess.run(["mount", "-o", "remount,bind,ro", str(folder)], check=True)
        commands.append(["umount", "--lazy", str(folder)])
    else:
        folder.chmod(0o555)
        commands.append(["chmod", "755", str(folder)])

    def undo() -> None:
        while commands:
            subprocess.run(commands.pop(), check=True)

    try:
        yield undo
    finally:
        undo()


FAULTS = {
    "kill": killed_process,
    "term": terminated,
    "disk": full_disk,
    "checkpoint": truncated_checkpoint,
    "shard": flipped_shard,
    "table": deleted_table,
    "clock": clock_jump,
    "two": two_at_once,
    "read-only": read_only,
}
