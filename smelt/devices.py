"""Lease of accelerators on one machine: a lock per device, so that jobs side by side never share one.

A lease is an advisory file lock (`flock`), which the kernel drops with the process that holds it, however
that ends. On a machine without an accelerator a lease is empty and nothing changes.
"""

from __future__ import annotations

import contextlib
import fcntl
import os
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path

from smelt.errors import SmeltError

# Comma-separated identifiers to use instead of the machine's own devices.
DEVICES_VARIABLE = "SMELT_DEVICES"
LOCKS_VARIABLE = "SMELT_DEVICE_LOCKS"
_POLL_SECONDS = 0.2


def visible() -> tuple[str, ...]:
    """Return the identifiers of the devices that this process may use, in order; empty without any."""
    for variable in (DEVICES_VARIABLE, "CUDA_VISIBLE_DEVICES"):
        if variable in os.environ:
            parts = (part.strip() for part in os.environ[variable].split(","))
            return tuple(part for part in parts if part not in ("", "-1"))
    # A container may lack the driver's tool and still have the devices.
    files = (path.name.removeprefix("nvidia") for path in Path("/dev").glob("nvidia[0-9]*"))
    return tuple(_query("index") or sorted(files, key=int))


def memory() -> int | None:
    """Return the bytes of memory of this machine's smallest device; None without devices."""
    sizes = [int(size) for size in _query("memory.total") if size.isdigit()]
    return min(sizes) * 2**20 if sizes else None


def _query(field: str) -> list[str]:
    """Return one word for each device from the driver's own tool; nothing where there is none."""
    program = shutil.which("nvidia-smi")
    if program is None:
        return []
    command = [program, f"--query-gpu={field}", "--format=csv,noheader,nounits"]
    answer = subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)
    return answer.stdout.split() if answer.returncode == 0 else []


@contextlib.contextmanager
def lease(count: int = 1) -> Iterator[tuple[str, ...]]:
    """Hold `count` devices, waiting until they are free, with CUDA_VISIBLE_DEVICES set to them.

    To be entered before CUDA starts. Yields the identifiers; none, at once, where the machine has no device.

    Raises:
        SmeltError: the machine has devices, but fewer than `count`.
    """
    devices = visible()
    if not devices:
        yield ()
        return
    if count > len(devices):
        raise SmeltError(
            f"{count} devices are needed; this process may use {len(devices)}: {', '.join(devices)}"
        )
    with contextlib.ExitStack() as held:
        taken = _wait(devices, count, held)
        before = os.environ.get("CUDA_VISIBLE_DEVICES")
        os.environ["CUDA_VISIBLE_DEVICES"] = ",".join(taken)
        try:
            yield taken
        finally:
            if before is None:
                del os.environ["CUDA_VISIBLE_DEVICES"]
            else:
                os.environ["CUDA_VISIBLE_DEVICES"] = before


def _folder() -> Path:
    # A scheduler's job may see its own device under the number that another job's device has: the lock
    # folder is the job's, not the machine's.
    job = os.environ.get("SLURM_JOB_ID", "local")
    default = Path(tempfile.gettempdir()) / f"smelt-devices-{os.getuid()}-{job}"
    folder = Path(os.environ.get(LOCKS_VARIABLE, default))
    folder.mkdir(mode=0o700, parents=True, exist_ok=True)
    return folder


def _wait(devices: tuple[str, ...], count: int, held: contextlib.ExitStack) -> tuple[str, ...]:
    folder = _folder()
    said = False
    while True:
        # All or nothing, one job at a time: two jobs that hold one device each and wait for a second
        # would wait for ever.
        with _locked(folder / "queue.lock", wait=True), contextlib.ExitStack() as attempt:
            taken = []
            for device in devices:
                lock = _locked(folder / f"{device.replace('/', '_')}.lock", wait=False)
                with contextlib.suppress(BlockingIOError):
                    attempt.enter_context(lock)
                    taken.append(device)
                if len(taken) == count:
                    held.enter_context(attempt.pop_all())
                    return tuple(taken)
        if not said:
            said = True
            print(f"waiting for {count} of the devices {', '.join(devices)}", file=sys.stderr, flush=True)
        time.sleep(_POLL_SECONDS)


@contextlib.contextmanager
def _locked(path: Path, wait: bool) -> Iterator[None]:
    with open(path, "a") as stream:
        fcntl.flock(stream, fcntl.LOCK_EX | (0 if wait else fcntl.LOCK_NB))
        yield
