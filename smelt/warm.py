"""Jobs that start at once: a process that has imported the heavy libraries forks a copy of itself per job.

Importing torch and Lightning takes seconds, as long as a run of a small study trains. What
`python -m MODULE ARGUMENTS` does, `python -m smelt.warm MODULE ARGUMENTS` does in a fork of the server where
one listens, else in its own process. The server ends with the process that started it, and a job with the
command that asked for it.
"""

from __future__ import annotations

import contextlib
import importlib
import json
import os
import runpy
import select
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import traceback
from collections.abc import Iterable
from pathlib import Path

from smelt.cli import end_with
from smelt.files import alive

VARIABLE = "SMELT_WARM"
HEAVY = ("smelt.corpus", "smelt.train.engine", "smelt.evaluate.run", "smelt.mechanism.capture")
_SERVERS: list[subprocess.Popen] = []  # kept, so that their standard input stays open
_PATIENCE = 10.0  # seconds for a request that is being sent
_FORWARDED = (signal.SIGTERM, signal.SIGUSR1)


def start() -> None:
    """Start a server that lives as long as this process and let later commands find it."""
    _clear_abandoned()
    path = Path(tempfile.mkdtemp(prefix=f"smelt-warm-{os.getpid()}-")) / "socket"
    # The server waits for the end of its standard input, which the kernel closes with this process.
    server = subprocess.Popen(
        [sys.executable, "-m", "smelt.warm", "--serve", str(path)],
        stdin=subprocess.PIPE,
        stdout=subprocess.DEVNULL,
        env={**os.environ, "OMP_NUM_THREADS": "1"},
    )
    _SERVERS.append(server)
    os.environ[VARIABLE] = str(path)


def _clear_abandoned() -> None:
    """Remove the sockets of servers whose starter was killed."""
    for folder in Path(tempfile.gettempdir()).glob("smelt-warm-*-*"):
        if not alive(int(folder.name.split("-")[2])):
            shutil.rmtree(folder, ignore_errors=True)


def main(arguments: list[str]) -> int:
    """Serve, or run a module as a job and return its exit status."""
    if arguments[:1] == ["--serve"]:
        _serve(Path(arguments[1]))
        return 0
    end_with(os.getppid())
    with socket.socket(socket.AF_UNIX) as connection:
        try:
            connection.connect(os.environ[VARIABLE])
        except (KeyError, OSError):
            return _run(arguments)
        return _ask(connection, arguments)


def _run(arguments: list[str]) -> int:
    """Run a module as `python -m` would; return its exit status."""
    sys.argv = arguments
    try:
        runpy.run_module(arguments[0], run_name="__main__", alter_sys=True)
    except SystemExit as ended:
        if isinstance(ended.code, str):
            print(ended.code, file=sys.stderr)
        return ended.code if isinstance(ended.code, int) else int(ended.code is not None)
    except BaseException:
        traceback.print_exc()
        return 1
    return 0


def _ask(connection: socket.socket, arguments: list[str]) -> int:
    """Have the server run a job; pass signals on to it."""
    request = {"arguments": arguments, "folder": os.getcwd(), "environment": dict(os.environ)}
    data = json.dumps(request).encode()
    socket.send_fds(connection, [len(data).to_bytes(8, "big")], [1, 2])
    connection.sendall(data)
    # Control-C reaches the job by itself: it is of the same process group.
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    for number in _FORWARDED:
        signal.signal(number, lambda number, frame: connection.sendall(bytes([number])))
    try:
        answer = connection.recv(4)
    except ConnectionError:
        answer = b""
    if len(answer) < 4:
        print("error: the server of warm processes ended, and this job with it", file=sys.stderr)
        return 1
    return int.from_bytes(answer, "big")


def _receive(connection: socket.socket) -> tuple[dict, list[int]]:
    """Read a request and the two files it comes with. OSError or EOFError where it breaks off."""
    connection.settimeout(_PATIENCE)
    size, files, _, _ = socket.recv_fds(connection, 8, 2)
    data, length = bytearray(), int.from_bytes(size, "big")
    while len(files) == 2 and len(data) < length:
        part = connection.recv(min(1 << 16, length - len(data)))
        if not part:
            break
        data += part
    if len(size) < 8 or len(files) < 2 or len(data) < length:
        for file in files:
            os.close(file)
        raise EOFError("the command that asked for a job is gone")
    connection.settimeout(None)
    return json.loads(data), files


class _Server:
    """One listener, and one connection for each running job."""

    def __init__(self, listener: socket.socket) -> None:
        self.listener = listener
        self.jobs: dict[int, socket.socket] = {}
        self.woken, waker = os.pipe()
        os.set_blocking(waker, False)
        signal.set_wakeup_fd(waker)
        signal.signal(signal.SIGCHLD, lambda number, frame: None)
        signal.signal(signal.SIGINT, signal.SIG_IGN)

    def serve(self) -> None:
        """Answer until standard input ends; then end the jobs."""
        while True:
            connections = {connection: pid for pid, connection in self.jobs.items()}
            ready, _, _ = select.select([0, self.woken, self.listener, *connections], [], [])
            for source in ready:
                if source == 0:
                    return self._end(self.jobs)
                if source == self.woken:
                    os.read(self.woken, 4096)
                    self._reap()
                elif source is self.listener:
                    self._accept()
                elif source in connections:
                    self._signal(connections[source], source)

    def _accept(self) -> None:
        for module in HEAVY:  # the first job pays
            importlib.import_module(module)
        connection, _ = self.listener.accept()
        try:
            request, files = _receive(connection)
        except (OSError, EOFError):
            connection.close()
            return
        server = os.getpid()
        pid = os.fork()
        if not pid:
            try:
                connection.close()
                self._become(request, files, server)
            finally:
                os._exit(1)
        for file in files:
            os.close(file)
        self.jobs[pid] = connection

    def _become(self, request: dict, files: list[int], server: int) -> None:
        """Turn this fork into the job; never returns."""
        signal.set_wakeup_fd(-1)
        for number in (signal.SIGCHLD, *_FORWARDED):
            signal.signal(number, signal.SIG_DFL)
        end_with(server)
        signal.signal(signal.SIGINT, signal.default_int_handler)
        self.listener.close()
        for other in self.jobs.values():
            other.close()
        os.dup2(os.open(os.devnull, os.O_RDONLY), 0)
        for number, file in enumerate(files, 1):
            os.dup2(file, number)
        os.environ.clear()
        os.environ.update(request["environment"])
        os.chdir(request["folder"])
        sys.path[0] = request["folder"]
        status = _run(request["arguments"])
        with contextlib.suppress(OSError):
            sys.stdout.flush()
            sys.stderr.flush()
        os._exit(status)

    def _reap(self) -> None:
        with contextlib.suppress(ChildProcessError):
            while True:
                pid, status = os.waitpid(-1, os.WNOHANG)
                if not pid:
                    return
                if pid in self.jobs:
                    self._answer(self.jobs.pop(pid), os.waitstatus_to_exitcode(status))

    @staticmethod
    def _answer(connection: socket.socket, code: int) -> None:
        with contextlib.suppress(OSError), connection:
            # A signal's number is told as a shell tells it.
            connection.sendall((code if code >= 0 else 128 - code).to_bytes(4, "big"))

    def _signal(self, pid: int, connection: socket.socket) -> None:
        try:
            received = connection.recv(1)
        except ConnectionError:
            received = b""
        if received:
            os.kill(pid, received[0])
        elif pid in self.jobs:
            # Whoever asked is gone, so the job is nobody's.
            self.jobs.pop(pid).close()
            self._end([pid])

    @staticmethod
    def _end(pids: Iterable[int]) -> None:
        for pid in pids:
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGTERM)


def _serve(path: Path) -> None:
    with socket.socket(socket.AF_UNIX) as listener:
        listener.bind(str(path))
        listener.listen(64)
        try:
            _Server(listener).serve()
        finally:
            path.unlink()
            path.parent.rmdir()


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
