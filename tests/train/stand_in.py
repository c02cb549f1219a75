"""A tiny run and a corpus of random tokens, for tests of the trainer alone."""

from dataclasses import replace
from types import SimpleNamespace

import numpy as np

from smelt.budget import resolve_run
from smelt.study import load_study


def tiny_spec(run="xs-s85-smelt", **training):
    """Return the run with a few updates of a few short sequences."""
    spec = resolve_run(load_study("smoke"), run)
    settings = {"batch": 4, "horizons": (4, 7), "decay_steps": 3, "warmup_steps": 2, **training}
    return replace(
        spec,
        geometry=replace(spec.geometry, layers=2, loop_start=0, loop_length=1, experts=12, expert_dim=8),
        corpus=replace(spec.corpus, vocab=260, context=16),
        training=replace(spec.training, **settings),
    )


class RandomCorpus:
    """Batches are a pure function of their arguments; a row has two documents."""

    vocab_size = 260
    sha256 = "c" * 64

    def __init__(self):
        self.asked = []

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
