"""Many small jobs lease few stand-in devices, and some are killed: never two on one, none waits for ever."""

import os
import random
import signal
import subprocess
import sys
import time

import pytest

from smelt import devices
from smelt.files import ROOT

# Takes part in the lease, then locks a file of each device in another way, which must succeed. Those files
# are opened first, since a killed process gives its locks back in the order of its descriptors.
JOB = """
import fcntl, os, signal, sys, time
from smelt import devices
folder, count, seconds, dies = sys.argv[1], int(sys.argv[2]), float(sys.argv[3]), sys.argv[4] == "dies"
witnesses = {name: open(os.path.join(folder, name), "a") for name in devices.visible()}
with devices.lease(count) as held:
    for name in held:
        fcntl.lockf(witnesses[name], fcntl.LOCK_EX | fcntl.LOCK_NB)
    print(os.environ["CUDA_VISIBLE_DEVICES"], *held, flush=True)
    time.sleep(seconds)
    if dies:
        os.kill(os.getpid(), signal.SIGKILL)
    for name in held:
        fcntl.lockf(witnesses[name], fcntl.LOCK_UN)
"""
PATIENCE = 120


class Crowd:
    """Jobs on `number` stand-in devices."""

    def __init__(self, folder, number):
        self.folder = folder
        self.names = tuple(f"stand-in-{index}" for index in range(number))
        (folder / "witnesses").mkdir()
        self.variables = {
            devices.DEVICES_VARIABLE: ",".join(self.names),
            devices.LOCKS_VARIABLE: str(folder / "locks"),
        }

    def start(self, count, seconds, dies=False):
        command = [sys.executable, "-c", JOB, str(self.folder / "witnesses"), str(count), str(seconds)]
        environment = os.environ | self.variables | {"PYTHONPATH": str(ROOT)}
        environment.pop("CUDA_VISIBLE_DEVICES", None)
        return subprocess.Popen(
            [*command, "dies" if dies else "lives"],
            env=environment,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )


def finish(job, count):
    """Wait for a job; return the devices that it held, as a set, and its exit status."""
    output, errors = job.communicate(timeout=PATIENCE)
    assert job.returncode in (0, -signal.SIGKILL), errors
    visible, *held = output.split() or [""]
    if held:
        assert visible == ",".join(held)
        assert len(set(held)) == count
    else:
        assert job.returncode
    return set(held), job.returncode


@pytest.mark.parametrize("number", [2, 4])
def test_fifty_jobs_with_random_kills(number, tmp_path):
    generator = random.Random(number)
    crowd = Crowd(tmp_path, number)
    counts = [generator.choice((1, 1, 2, number)) for _ in range(50)]
    # A job in five kills itself while it holds devices; as many are killed wherever they are.
    kinds = ["dies"] * 10 + ["is killed"] * 10 + ["lives"] * 30
    generator.shuffle(kinds)
    jobs = [
        crowd.start(count, generator.uniform(0.005, 0.03), dies=kind == "dies")
        for count, kind in zip(counts, kinds, strict=True)
    ]
    for job, kind in zip(jobs, kinds, strict=True):
        if kind == "is killed":
            time.sleep(generator.uniform(0, 0.05))
            job.kill()
    ends = [finish(job, count) for job, count in zip(jobs, counts, strict=True)]
    for (held, status), kind in zip(ends, kinds, strict=True):
        assert kind == "is killed" or bool(status) == (kind == "dies")
        assert held <= set(crowd.names)
    # Whatever was killed left nothing behind.
    assert finish(crowd.start(number, 0), number) == (set(crowd.names), 0)


def test_jobs_that_need_every_device_take_turns(tmp_path):
    crowd = Crowd(tmp_path, 2)
    jobs = [crowd.start(2, 0.01) for _ in range(12)]
    assert [finish(job, 2) for job in jobs] == [(set(crowd.names), 0)] * 12


def test_the_witness_notices_two_on_one(tmp_path):
    """The check of the jobs above fails where the lease does not work."""
    crowd = Crowd(tmp_path, 1)
    first = crowd.start(1, 30)
    assert first.stdout.readline()
    crowd.variables[devices.LOCKS_VARIABLE] = str(tmp_path / "elsewhere")
    second = crowd.start(1, 0)
    errors = second.communicate(timeout=PATIENCE)[1]
    first.kill()
    first.communicate()
    assert second.returncode == 1 and "BlockingIOError" in errors
