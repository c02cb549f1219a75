"""A warm job behaves as `python -m` does, and it ends with the command that asked for it."""

import os
import shlex
import signal
import socket
import subprocess
import sys
import time
from pathlib import Path

import pytest

from smelt import warm
from smelt.files import ROOT

MODULE = """
import os, sys, time
print(sys.argv[1:], os.getcwd(), os.environ.get("COLOUR"), flush=True)
print("to stderr", file=sys.stderr, flush=True)
if sys.argv[1] == "sleep":
    open("started", "w").close()
    time.sleep(3600)
if sys.argv[1] == "break":
    raise ValueError("broken")
sys.exit(int(sys.argv[1]))
"""


@pytest.fixture
def folder(tmp_path):
    (tmp_path / "job.py").write_text(MODULE)
    return tmp_path


@pytest.fixture(scope="module")
def server():
    before = dict(os.environ)
    os.environ["PYTHONPATH"] = str(ROOT)
    warm.start()
    process = warm._SERVERS[-1]
    end = time.monotonic() + 300
    while not Path(os.environ[warm.VARIABLE]).exists():
        assert time.monotonic() < end
        time.sleep(0.05)
    environment = dict(os.environ)
    os.environ.clear()
    os.environ.update(before)
    yield environment
    process.stdin.close()
    assert process.wait(timeout=300) == 0
    assert not Path(environment[warm.VARIABLE]).exists()


def command(*arguments):
    return [sys.executable, "-m", "smelt.warm", "job", *arguments]


def environ(environment):
    return {**environment, "COLOUR": "red"}


def run(folder, environment, *arguments):
    return subprocess.run(
        command(*arguments), cwd=folder, env=environ(environment), capture_output=True, text=True
    )


@pytest.mark.parametrize("status", [0, 3])
def test_output_status_folder_and_environment(folder, server, status):
    cold = run(folder, {**server, warm.VARIABLE: ""}, str(status))
    hot = run(folder, server, str(status))
    assert (hot.returncode, hot.stdout, hot.stderr) == (cold.returncode, cold.stdout, cold.stderr)
    assert hot.returncode == status and "red" in hot.stdout and str(folder) in hot.stdout


def test_an_exception_is_status_one_with_its_traceback(folder, server):
    job = run(folder, server, "break")
    assert job.returncode == 1 and "ValueError: broken" in job.stderr


def started(folder, environment):
    job = subprocess.Popen(command("sleep"), cwd=folder, env=environ(environment), stdout=subprocess.PIPE)
    wait_for(folder / "started")
    return job


def wait_for(path):
    end = time.monotonic() + 300
    while not path.exists():
        assert time.monotonic() < end
        time.sleep(0.05)


def test_a_signal_reaches_the_job(folder, server):
    job = started(folder, server)
    job.send_signal(signal.SIGTERM)
    assert job.wait(timeout=300) == 128 + signal.SIGTERM


def test_a_job_ends_with_the_command_that_asked_for_it(folder, server):
    job = started(folder, server)
    job.kill()
    # The job holds the other end of the pipe: it reads to its end once the job is gone too.
    assert b"sleep" in job.communicate(timeout=300)[0]


linux = pytest.mark.skipif(sys.platform != "linux", reason="the kernel tells of a parent's end only on Linux")


@linux
@pytest.mark.parametrize("place", ["server", "nobody"])
def test_a_job_ends_with_the_shell_that_started_its_command(folder, server, place):
    environment = environ(server if place == "server" else {**server, warm.VARIABLE: place})
    line = f"{shlex.join(command('sleep'))}; true"
    shell = subprocess.Popen(["bash", "-c", line], cwd=folder, env=environment, stdout=subprocess.PIPE)
    wait_for(folder / "started")
    shell.kill()
    assert b"sleep" in shell.communicate(timeout=300)[0]


@linux
def test_a_job_ends_with_a_server_that_is_killed(folder):
    path = folder / "socket" / "socket"
    path.parent.mkdir()
    own = {**os.environ, "PYTHONPATH": str(ROOT), warm.VARIABLE: str(path)}
    serve = [sys.executable, "-m", "smelt.warm", "--serve", str(path)]
    with subprocess.Popen(serve, env=own, stdin=subprocess.PIPE) as process:
        wait_for(path)
        job = started(folder, own)
        process.kill()
    assert b"sleep" in job.communicate(timeout=300)[0]
    assert job.returncode == 1


@pytest.mark.parametrize("begun", [b"", b"123", (1 << 20).to_bytes(8, "big") + b"half a request"])
def test_a_command_that_breaks_off_holds_up_nobody(folder, server, begun):
    with socket.socket(socket.AF_UNIX) as connection:
        connection.connect(server[warm.VARIABLE])
        if begun:
            socket.send_fds(connection, [begun], [1, 2])
    assert run(folder, server, "0").returncode == 0


def test_jobs_side_by_side_survive_one_that_is_killed(folder, server):
    other = folder / "other"
    other.mkdir()
    (other / "job.py").write_text(MODULE)
    lasting, killed = started(folder, server), started(other, server)
    killed.kill()
    killed.communicate(timeout=300)
    assert run(folder, server, "0").returncode == 0
    lasting.send_signal(signal.SIGTERM)
    assert lasting.wait(timeout=300) == 128 + signal.SIGTERM


def test_without_a_server_the_job_runs_by_itself(folder, server):
    job = run(folder, {**server, warm.VARIABLE: str(folder / "nobody")}, "0")
    assert job.returncode == 0 and "red" in job.stdout
