"""A SLURM of two nodes on this machine, each with two stand-in GPUs.

`python -m tests.workflow.slurm_cluster FOLDER` starts the daemons with everything below FOLDER, prints
`ready` and stops them when its standard input ends: with whoever started it, however that ends.
"""

from __future__ import annotations

import contextlib
import ctypes
import fcntl
import os
import shutil
import signal
import socket
import stat
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import IO

import psutil

# Clients look nowhere else: the executor strips the variable that names another file from its jobs.
SETTINGS = Path("/etc/slurm")
MARK = "# Written by a test of smelt, which removes it.\n"
PACKAGES = ("slurm-wlm", "munge")
PROGRAMS = ("munged", "slurmctld", "slurmd", "sbatch", "setpriv")
NODES = ("smelt-a", "smelt-b")
CPUS = 8  # more than most machines have, as many as the largest job asks for
GPUS = 2  # character devices that are none: SLURM refuses files
MEMORY_MB = 32000
_SUBREAPER = 36  # PR_SET_CHILD_SUBREAPER

SLURM = """\
ClusterName=smelt-test
SlurmctldHost={host}(127.0.0.1)
SlurmUser=root
SlurmdUser=root
AuthType=auth/munge
# A job that is put back in the queue waits as long as a credential lives, two minutes by default.
AuthInfo=socket={folder}/munge.socket,cred_expire=5
MpiDefault=none
ProctrackType=proctrack/linuxproc
TaskPlugin=task/none
SelectType=select/cons_tres
SelectTypeParameters=CR_Core_Memory
ReturnToService=2
# A busy machine needs long to save a state.
KillWait=180
# Finished jobs are remembered for the tests to look at.
MinJobAge=86400
SlurmctldPort={ports[0]}
SlurmctldPidFile={folder}/slurmctld.pid
SlurmdPidFile={folder}/slurmd.%n.pid
SlurmctldLogFile={folder}/slurmctld.log
SlurmdLogFile={folder}/slurmd.%n.log
StateSaveLocation={folder}/state
SlurmdSpoolDir={folder}/spool.%n
SlurmdParameters=config_overrides
AccountingStorageType=accounting_storage/none
JobAcctGatherType=jobacct_gather/none
GresTypes=gpu
PartitionName=test Nodes=ALL Default=YES
"""
NODE = (
    "NodeName={name} NodeHostname={host} NodeAddr=127.0.0.1 Port={port} CPUs={cpus} RealMemory={memory} "
    "Gres=gpu:{gpus}\n"
)


def obstacle() -> str:
    """Return why no cluster can be started here, or an empty text."""
    missing = [name for name in PROGRAMS if shutil.which(name) is None]
    if os.geteuid():
        return "SLURM's daemons need root"
    if missing:
        return f"{', '.join(missing)} not installed"
    for path in (SETTINGS / "slurm.conf", SETTINGS / "gres.conf"):
        if path.exists() and not path.read_text().startswith(MARK):
            return f"{path} is that of another cluster"
    return ""


@contextlib.contextmanager
def cluster(folder: Path) -> Iterator[None]:
    """Run the daemons below `folder`; afterwards stop them and every job.

    Raises:
        RuntimeError: another test holds the settings, or a daemon does not start.
    """
    # Orphans of jobs and job steps become children of this process, so that none is missed at the end.
    ctypes.CDLL(None, use_errno=True).prctl(_SUBREAPER, 1, 0, 0, 0)
    with _settings(folder):
        try:
            _daemon(
                "munged",
                "--foreground",
                "--force",
                f"--key-file={folder}/munge.key",
                *(f"--{kind}-file={folder}/munge.{kind}" for kind in ("pid", "log", "seed")),
                f"--socket={folder}/munge.socket",
            )
            _daemon("slurmctld", "-D", "-c")
            for node in NODES:
                _daemon("slurmd", "-D", "-N", node)
            _wait_until_idle(folder)
            yield
        finally:
            _end_children()


@contextlib.contextmanager
def _settings(folder: Path) -> Iterator[None]:
    """Write keys, stand-in devices and settings; remove the settings at the end."""
    path, gres = SETTINGS / "slurm.conf", SETTINGS / "gres.conf"
    for name in ("state", *(f"spool.{node}" for node in NODES)):
        (folder / name).mkdir()
    key = folder / "munge.key"
    key.write_bytes(os.urandom(1024))
    key.chmod(0o400)
    host, ports = socket.gethostname().split(".")[0], _free_ports(1 + len(NODES))
    SETTINGS.mkdir(exist_ok=True)
    with open(path, "a") as stream:
        try:
            fcntl.flock(stream, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            raise RuntimeError("another test of SLURM is running") from None
        nodes = ""
        gres.write_text(MARK)
        for node, port in zip(NODES, ports[1:], strict=True):
            for number in range(GPUS):
                os.mknod(folder / f"spool.{node}/nvidia{number}", 0o666 | stat.S_IFCHR, os.makedev(1, 3))
            nodes += NODE.format(name=node, host=host, port=port, cpus=CPUS, memory=MEMORY_MB, gpus=GPUS)
            with gres.open("a") as lines:
                lines.write(f"NodeName={node} Name=gpu File={folder}/spool.{node}/nvidia[0-{GPUS - 1}]\n")
        stream.truncate(0)
        stream.write(MARK + SLURM.format(folder=folder, host=host, ports=ports) + nodes)
        stream.flush()
        try:
            yield
        finally:
            path.unlink()
            gres.unlink()


def _free_ports(count: int) -> list[int]:
    with contextlib.ExitStack() as stack:
        probes = [stack.enter_context(socket.socket()) for _ in range(count)]
        for probe in probes:
            probe.bind(("127.0.0.1", 0))
        return [probe.getsockname()[1] for probe in probes]


def _daemon(*command: str) -> None:
    # The daemon dies with this process, should it be killed.
    subprocess.Popen(
        ["setpriv", "--pdeathsig", "KILL", *command],
        stdin=subprocess.DEVNULL,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
    )


def _wait_until_idle(folder: Path, seconds: float = 60) -> None:
    end = time.monotonic() + seconds
    while time.monotonic() < end:
        answer = subprocess.run(
            ["sinfo", "--noheader", "--Node", "--format=%T"], capture_output=True, text=True, timeout=60
        )
        if answer.stdout.split() == ["idle"] * len(NODES):
            return
        time.sleep(0.3)
    tails = "\n".join(path.read_text()[-800:] for path in sorted(folder.glob("slurm*.log")))
    raise RuntimeError(f"SLURM did not start: {answer.stdout}{answer.stderr}{tails}")


def _end_children() -> None:
    """End jobs and daemons: asked first, then killed until none is left."""
    with contextlib.suppress(subprocess.TimeoutExpired):
        subprocess.run(["scancel", "--user=root"], capture_output=True, timeout=20)
    children = psutil.Process().children(recursive=True)
    for number, patience in ((signal.SIGTERM, 5), (signal.SIGKILL, 5)):
        for child in children:
            with contextlib.suppress(psutil.NoSuchProcess):
                child.send_signal(number)
        psutil.wait_procs(children, timeout=patience)
        children = psutil.Process().children(recursive=True)


@contextlib.contextmanager
def started(folder: Path) -> Iterator[None]:
    """Run the cluster in a process of its own, which survives this one just long enough to clean up.

    Raises:
        RuntimeError: it did not start.
    """
    command = [sys.executable, "-m", "tests.workflow.slurm_cluster", str(folder)]
    log = folder / "cluster.log"
    with (
        log.open("w") as stream,
        subprocess.Popen(
            command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=stream, start_new_session=True
        ) as process,
    ):
        try:
            if process.stdout.readline() != b"ready\n":
                raise RuntimeError(log.read_text())
            yield
        finally:
            process.stdin.close()


def _until_end(stream: IO[bytes]) -> None:
    while stream.read(1):
        pass


def main() -> None:
    """Run the cluster until standard input ends or SIGTERM comes."""
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(1))
    with cluster(Path(sys.argv[1])):
        print("ready", flush=True)
        _until_end(sys.stdin.buffer)


if __name__ == "__main__":
    main()
