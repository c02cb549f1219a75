"""What a person sees: lines, a bar in a terminal, curves in a logger."""

import fcntl
import os
import pty
import struct
import sys
import termios
from dataclasses import replace

import pytest
from lightning.pytorch.loggers import CSVLogger

from smelt.errors import SmeltError
from smelt.train import engine
from smelt.train.hardware import plan
from smelt.train.progress import make_logger
from tests.train.tiny import PROCESSES, RandomCorpus, tiny_spec


def train_here(out):
    spec = tiny_spec()
    engine.train(spec, RandomCorpus(), out, plan(spec))


def test_without_a_terminal_the_last_line_says_what_came_out(tmp_path, capsys):
    train_here(tmp_path)
    captured = capsys.readouterr()
    assert captured.out == ""
    assert captured.err.startswith("xs-s85-smelt: 100%, step 10 (branch at 7), loss 3.")
    assert captured.err.endswith(" tokens/s, 0:00 left\n")


def _train_on(name, out):
    sys.stdout = open(name, "w")  # noqa: SIM115
    train_here(out)


def test_in_a_terminal_there_is_a_bar(tmp_path):
    outside, inside = pty.openpty()
    fcntl.ioctl(inside, termios.TIOCSWINSZ, struct.pack("HHHH", 24, 120, 0, 0))
    process = PROCESSES.Process(target=_train_on, args=(os.ttyname(inside), tmp_path))
    process.start()
    process.join()
    shown = os.read(outside, 1 << 16).decode()
    assert process.exitcode == 0
    assert "xs-s85-smelt: 100%" in shown
    assert "at=branch at 7, loss=3." in shown


def test_a_logger_gets_a_curve_for_the_trunk_and_one_for_each_branch(tmp_path, monkeypatch):
    monkeypatch.setattr(engine, "make_logger", lambda spec, out: CSVLogger(out, name="csv", version="run"))
    train_here(tmp_path)
    lines = (tmp_path / "csv" / "run" / "metrics.csv").read_text().splitlines()
    header = lines[0].split(",")
    column = [line.split(",")[header.index("trunk/loss")] for line in lines[1:]]
    assert sum(value != "" for value in column) == 7
    assert {f"branch at {h}/grad_norm" for h in (4, 7)} < set(header)


@pytest.mark.parametrize("name", ["tensorboard", "wandb"])
def test_a_logger_that_is_not_installed_is_named(name, tmp_path, monkeypatch):
    for package in ("tensorboard", "tensorboardX", "wandb"):
        monkeypatch.setitem(sys.modules, package, None)
    monkeypatch.setattr("lightning.fabric.loggers.tensorboard._TENSORBOARD_AVAILABLE", False)
    monkeypatch.setattr("lightning.fabric.loggers.tensorboard._TENSORBOARDX_AVAILABLE", False)
    monkeypatch.setattr("lightning.pytorch.loggers.wandb._WANDB_AVAILABLE", False)
    spec = tiny_spec()
    spec = replace(spec, training=replace(spec.training, logger=name))
    with pytest.raises(SmeltError, match=f"training.logger is '{name}'; that needs the package {name}"):
        make_logger(spec, tmp_path)
