"""A tiny run, a corpus of random tokens, and training in a process that may be killed."""

import multiprocessing
import os
import signal
import socket
import sys
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace

import numpy as np

from smelt.budget import resolve_run
from smelt.budget.plan import MICRO_TOKENS
from smelt.study import load_study
from smelt.train.engine import STOPPED, train
from smelt.train.hardware import plan
from smelt.train.keeper import INTERVAL_VARIABLE, Keeper
from smelt.train.resume import Store

# Processes are forked from a server that has imported torch and Lightning once.
PROCESSES = multiprocessing.get_context("forkserver")
PROCESSES.set_forkserver_preload(["tests.train.tiny", "pandas"])


def tiny_spec(run="xs-s85-smelt", **training):
    """Return the run with a few updates of a few short sequences."""
    spec = resolve_run(load_study("smoke"), run)
    settings = {"batch": 4, "horizons": (4, 7), "decay_steps": 3, "warmup_steps": 2, **training}
    return replace(
        spec,
        geometry=replace(
            spec.geometry,
            hidden=32,
            layers=2,
            loop_start=0,
            loop_length=int(spec.geometry.looped),
            experts=12,
            expert_dim=8,
        ),
        corpus=replace(spec.corpus, vocab=260, context=16),
        training=replace(spec.training, **settings),
    )


class RandomCorpus:
    """Batches are a pure function of their arguments; a row has two documents."""

    vocab_size = 260
    sha256 = "c" * 64

    def __init__(self):
        self.asked = []

    def rows(self, phase, context):
        return 1000

    def batch(self, phase, seed, step, batch, context, rank=0, world=1):
        self.asked.append((phase, seed, step))
        generator = np.random.default_rng([{"trunk": 0, "decay": 1}[phase], seed, step])
        # Part of the tokens repeats, so that there is something to learn.
        tokens = generator.integers(4, 260, (batch, context + 1)) // 8 * 8
        cut = generator.integers(1, context, (batch, 1))
        column = np.arange(context + 1)
        segments = (column >= cut).astype(np.int64)
        positions = column - cut * segments
        targets = np.where(segments[:, 1:] == segments[:, :-1], tokens[:, 1:], -100)
        rows = slice(rank * batch // world, (rank + 1) * batch // world)
        return SimpleNamespace(
            inputs_bt=tokens[rows, :-1],
            targets_bt=targets[rows],
            segments_bt=segments[rows, :-1],
            positions_bt=positions[rows, :-1],
        )


def run_tiny(out, die_after=None, kind=signal.SIGKILL, where="update", interval=0.0):
    """Train the tiny run in another process; return its exit status, negative for a signal.

    With `die_after` the process sends itself a signal when that many updates are done: after everything
    that is due (`update`), between the files of the checkpoint and its record (`commit`), or before
    the first update (`start`).
    """
    arguments = (str(out), die_after, kind, where, interval)
    process = PROCESSES.Process(target=_train, args=arguments)
    process.start()
    process.join()
    return process.exitcode


def run_ranks(out, sharded, die_after=None, world=2, micro_tokens=MICRO_TOKENS, **training):
    """Train the tiny run in `world` gloo processes; return their exit statuses."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    processes = [
        PROCESSES.Process(
            target=_train_rank,
            args=(str(out), sharded, rank, world, port, die_after, micro_tokens, training),
        )
        for rank in range(world)
    ]
    for process in processes:
        process.start()
    for process in processes:
        process.join()
    return [process.exitcode for process in processes]


def _train_rank(out, sharded, rank, world, port, die_after, micro_tokens, training):
    variables = {"RANK": rank, "LOCAL_RANK": rank, "WORLD_SIZE": world, "LOCAL_WORLD_SIZE": world}
    variables |= {"MASTER_ADDR": "127.0.0.1", "MASTER_PORT": port, "TORCHELASTIC_RUN_ID": "test"}
    os.environ |= {name: str(value) for name, value in variables.items()}
    spec = tiny_spec(**training)
    hardware = plan(spec, micro_tokens=micro_tokens, sharded=sharded)
    _train(out, die_after, signal.SIGKILL, "update", 0.0, rank, spec, hardware)


def errors(out):
    """Return what the last process wrote to standard error."""
    return Path(f"{out}.err").read_text()


def _train(out, die_after, kind, where, interval, rank=0, spec=None, hardware=None):
    os.environ[INTERVAL_VARIABLE] = str(interval)
    sys.stderr = open(f"{out}.err{rank or ''}", "w")  # noqa: SIM115
    if die_after is not None:
        die = {"update": _die_after_update, "commit": _die_in_commit, "start": _die_at_start}[where]
        die(die_after, kind)
    spec = spec or tiny_spec()
    hardware = hardware or plan(spec)
    sys.exit(75 if train(spec, RandomCorpus(), Path(out), hardware) == STOPPED else 0)


def _die_after_update(number, kind):
    original = Keeper.on_train_batch_end

    def patched(self, trainer, module, outputs, batch, batch_index):
        original(self, trainer, module, outputs, batch, batch_index)
        if batch[0] + 1 == number:
            os.kill(os.getpid(), kind)

    Keeper.on_train_batch_end = patched


def _die_in_commit(number, kind):
    original = Store.commit

    def patched(self, done, *others):
        if done == number:
            os.kill(os.getpid(), kind)
        original(self, done, *others)

    Store.commit = patched


def _die_at_start(_, kind):
    original = Keeper.on_train_start

    def patched(self, trainer, module):
        os.kill(os.getpid(), kind)
        original(self, trainer, module)

    Keeper.on_train_start = patched


def digest(out):
    """Return what must be the same in every repetition: the manifest, which names the weights by hash."""
    return (Path(out) / "manifest.json").read_bytes()
