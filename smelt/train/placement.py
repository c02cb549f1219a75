"""How many devices a run takes, and the lease of them (no torch import, for the workflow's sake)."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Iterator
from dataclasses import dataclass

from smelt import devices
from smelt.budget.plan import MICRO_TOKENS, Machine, Placement, placement, stored_parameters
from smelt.errors import SmeltError
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


# Rank, processes in all, processes on this machine.
_TORCHRUN = ("RANK", "WORLD_SIZE", "LOCAL_WORLD_SIZE")
_SRUN = ("SLURM_PROCID", "SLURM_STEP_NUM_TASKS", "SLURM_NTASKS_PER_NODE")


@dataclass(frozen=True)
class Group:
    """This process as one of several that something else started for a run.

    Attributes:
        launcher: `torchrun` or `srun`.
        rank: number of this process among all.
        world: processes over all machines.
        local: processes on this machine.
    """

    launcher: str
    rank: int
    world: int
    local: int


def started_group() -> Group | None:
    """Return the group that torchrun or srun started this process in; None where it is on its own.

    Raises:
        SmeltError: srun was not told how many processes a node has.
    """
    if "TORCHELASTIC_RUN_ID" in os.environ:
        return Group("torchrun", *(int(os.environ[name]) for name in _TORCHRUN))
    if os.environ.get("SLURM_STEP_NUM_TASKS", "1") == "1":
        return None  # a job of one task has the variables of srun too
    try:
        return Group("srun", *(int(os.environ[name]) for name in _SRUN))
    except KeyError as error:
        raise SmeltError(f"srun left {error} unset; give it --ntasks-per-node") from None


def check_group(spec: RunSpec, placed: Placement) -> None:
    """Refuse a run in fewer processes than the devices that it needs.

    Raises:
        SmeltError: the group is too small.
    """
    group = started_group()
    if group is not None and group.world < placed.devices:
        raise SmeltError(
            f"run {spec.point.run} needs {placed.devices} devices of this kind, but {group.launcher} started "
            f"{group.world} processes; on a cluster, cluster.device must name what the nodes have"
        )


@contextlib.contextmanager
def own_devices(count: int) -> Iterator[tuple[str, ...]]:
    """Lease `count` devices; in a process that was started for one rank, take what it was given."""
    if "LOCAL_RANK" in os.environ or started_group() is not None:
        yield devices.visible()
    else:
        with devices.lease(count) as leased:
            yield leased
