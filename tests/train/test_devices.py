import os
import signal
import subprocess
import sys
import time

import pytest

from smelt import devices
from smelt.budget import resolve_run
from smelt.errors import SmeltError
from smelt.study import load_study
from smelt.train.hardware import plan
from smelt.train.placement import own_devices, place

HOLD = (
    "from smelt import devices\nwith devices.lease({count}) as held:\n print(*held, flush=True)\n input()\n"
)


@pytest.fixture(autouse=True)
def stand_ins(monkeypatch, tmp_path):
    monkeypatch.setenv(devices.DEVICES_VARIABLE, "gpu-a,gpu-b")
    monkeypatch.setenv(devices.LOCKS_VARIABLE, str(tmp_path / "locks"))
    monkeypatch.delenv("CUDA_VISIBLE_DEVICES", raising=False)


@pytest.fixture
def holder():
    """Start processes that hold devices; end them afterwards."""
    started = []

    def start(count=1):
        process = subprocess.Popen(
            [sys.executable, "-c", HOLD.format(count=count)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )
        started.append(process)
        return process

    yield start
    for process in started:
        process.kill()
        process.communicate()


def test_a_lease_sets_the_visible_devices_and_puts_them_back():
    with devices.lease() as held:
        assert held == ("gpu-a",)
        assert os.environ["CUDA_VISIBLE_DEVICES"] == "gpu-a"
        with devices.lease() as other:
            assert other == ("gpu-b",)
    assert "CUDA_VISIBLE_DEVICES" not in os.environ


def test_processes_side_by_side_get_different_devices(holder):
    names = {holder().stdout.readline().strip() for _ in range(2)}
    assert names == {"gpu-a", "gpu-b"}


def test_a_killed_process_frees_its_device(holder):
    first = holder(count=2)
    assert first.stdout.readline().split() == ["gpu-a", "gpu-b"]
    waiting = holder()
    time.sleep(0.5)
    assert waiting.poll() is None
    first.send_signal(signal.SIGKILL)
    assert waiting.stdout.readline().strip() == "gpu-a"


def test_too_few_devices_is_an_error_that_names_them():
    with pytest.raises(SmeltError, match="3 devices are needed; this process may use 2: gpu-a, gpu-b"):
        devices.lease(3).__enter__()


def test_a_machine_without_devices_leases_nothing(monkeypatch):
    monkeypatch.setenv(devices.DEVICES_VARIABLE, "")
    with devices.lease() as held:
        assert held == ()
    assert "CUDA_VISIBLE_DEVICES" not in os.environ


def test_hidden_devices_are_not_used(monkeypatch):
    monkeypatch.delenv(devices.DEVICES_VARIABLE)
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "-1")
    assert devices.visible() == ()


@pytest.fixture
def driver(monkeypatch, tmp_path):
    """Return a function that puts a driver's tool on the path: two devices of so many MiB."""
    monkeypatch.delenv(devices.DEVICES_VARIABLE)
    monkeypatch.setenv("PATH", str(tmp_path), prepend=os.pathsep)

    def install(*sizes):
        tool = tmp_path / "nvidia-smi"
        lines = "\n".join(str(size) for size in sizes)
        tool.write_text(f'#!/bin/sh\ncase "$1" in *index) echo "0\n1";; *) echo "{lines}";; esac\n')
        tool.chmod(0o755)

    return install


def test_the_driver_is_asked_for_devices_and_memory(driver):
    assert devices.memory() is None
    driver(81559, 143771)
    assert devices.visible() == ("0", "1")
    assert devices.memory() == 81559 * 2**20


def test_a_run_larger_than_a_device_takes_more(driver):
    spec = resolve_run(load_study("smoke"), "xs-s85-smelt")
    assert place(spec).devices == 1
    driver(141000)
    assert (place(spec).devices, place(spec).micro_tokens) == (1, 32768)
    driver(10)
    placed = place(spec)
    assert (placed.devices, placed.micro_tokens) == (2, 128)
    # Each of two processes has 4 of the 8 rows of 128 tokens.
    assert plan(spec, placed.devices, placed.micro_tokens, sharded=True).pieces == 4


def test_a_rank_takes_the_devices_that_it_was_given(monkeypatch):
    monkeypatch.setenv("LOCAL_RANK", "1")
    with own_devices(2) as given, own_devices(2) as again:
        assert given == again == ("gpu-a", "gpu-b")
