"""`make test-slurm` says why it is skipped, and a mirror that cannot be reached fails no test."""

import os

import pytest

from tests.workflow import slurm_cluster
from workflow.scripts import slurm_tests


@pytest.fixture
def programs(monkeypatch, tmp_path):
    """Leave no program on the path but those that the returned function writes, each with a shell script."""
    monkeypatch.setenv("PATH", str(tmp_path))
    monkeypatch.setattr(os, "geteuid", lambda: 0)
    monkeypatch.setattr(os, "execv", lambda *command: pytest.fail(f"would run {command}"))

    def write(name, script):
        path = tmp_path / name
        path.write_text(f"#!/bin/sh\n{script}\n")
        path.chmod(0o755)

    return write


def skipped(capsys):
    assert slurm_tests.main() == 0
    *_, last = capsys.readouterr().out.splitlines()
    assert last.startswith("SLURM tests skipped: ")
    return last


def test_without_apt(programs, capsys):
    assert "no apt-get" in skipped(capsys)


def test_without_root(programs, capsys, monkeypatch):
    monkeypatch.setattr(os, "geteuid", lambda: 1000)
    assert "root" in skipped(capsys)


def test_a_mirror_that_cannot_be_reached(programs, capsys):
    programs("apt-get", 'echo "W: a warning" >&2; echo "E: Failed to fetch, no route" >&2; exit 100')
    assert skipped(capsys).endswith("E: Failed to fetch, no route")


def test_an_apt_that_hangs(programs, capsys, monkeypatch):
    monkeypatch.setattr(slurm_tests, "SECONDS", 0.2)
    programs("apt-get", "exec /bin/sleep 60")
    assert "longer than 0.2 s" in skipped(capsys)


def test_settings_of_another_cluster_are_left_alone(programs, capsys, monkeypatch, tmp_path):
    for name in slurm_cluster.PROGRAMS:
        programs(name, "exit 1")
    monkeypatch.setattr(slurm_cluster, "SETTINGS", tmp_path)
    (tmp_path / "slurm.conf").write_text("ClusterName=precious\n")
    assert "slurm.conf is that of another cluster" in skipped(capsys)
    assert (tmp_path / "slurm.conf").read_text() == "ClusterName=precious\n"


def test_what_was_installed_is_used(programs, monkeypatch, tmp_path):
    for name in slurm_cluster.PROGRAMS:
        programs(name, "exit 1")
    monkeypatch.setattr(slurm_cluster, "SETTINGS", tmp_path)
    ran = []
    monkeypatch.setattr(os, "execv", lambda program, command: ran.append(command))
    slurm_tests.main()
    assert ran and ran[0][-1] == "tests/workflow/test_slurm.py"
