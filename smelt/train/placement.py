"""How many devices a run takes, and the lease of them (no torch import, for the workflow's sake)."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Iterator

from smelt import devices
from smelt.budget.plan import MICRO_TOKENS, Machine, Placement, placement, stored_parameters
from smelt.study import RunSpec


def place(spec: RunSpec) -> Placement:
    """Return how many of this machine's devices a run takes and how many tokens each holds at once.

    That is one, and as many tokens as the plan has at most, where there is no device to ask.

    Raises:
        SmeltError: no number of such devices holds the run.
    """
    memory = devices.memory()
    if memory is None:
        return Placement(devices=1, micro_tokens=MICRO_TOKENS, memory=0.0)
    machine = Machine("this machine's device", peak=1.0, mfu=1.0, memory=memory)
    stored = stored_parameters(spec.geometry, spec.corpus.vocab)
    return placement(spec.geometry, stored, spec.training.precision, machine, spec.corpus.context)


@contextlib.contextmanager
def own_devices(count: int) -> Iterator[tuple[str, ...]]:
    """Lease `count` devices; in a process that was started for one rank, take what it was given."""
    if "LOCAL_RANK" in os.environ:
        yield devices.visible()
    else:
        with devices.lease(count) as leased:
            yield leased
