import os
import signal
import subprocess
import sys
import time

import pytest

from smelt import devices
from smelt.errors import SmeltError

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


def test_the_driver_is_asked_for_devices_and_memory(monkeypatch, tmp_path):
    monkeypatch.delenv(devices.DEVICES_VARIABLE)
    tool = tmp_path / "nvidia-smi"
    tool.write_text(
        '#!/bin/sh\ncase "$1" in *index) printf "0\\n1\\n";; *) printf "81559\\n143771\\n";; esac\n'
    )
    tool.chmod(0o755)
    monkeypatch.setenv("PATH", str(tmp_path), prepend=os.pathsep)
    assert devices.visible() == ("0", "1")
    assert devices.memory() == 81559 * 2**20
