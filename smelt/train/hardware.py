"""What a run trains on: devices, processes, how the state is spread, precision, pieces of a batch."""

from __future__ import annotations

import math
import os
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch

from smelt.budget.plan import MACHINES, MICRO_TOKENS
from smelt.errors import SmeltError
from smelt.model import ModelConfig
from smelt.study import RunSpec
from smelt.train.lean import DDPStrategy, LightningEnvironment, ModelParallelStrategy, SLURMEnvironment
from smelt.train.placement import started_group

PEAK_VARIABLE = "SMELT_PEAK_FLOPS"
_PRECISIONS = {"bf16": "bf16-mixed", "fp32": "32-true"}


@dataclass(frozen=True)
class Hardware:
    """A plan for one run.

    Attributes:
        cuda: whether the processes have a GPU each.
        world: processes over all machines.
        local: processes on this machine.
        launcher: what else started the processes, `torchrun` or `srun`; None where Lightning does.
        sharded: whether the state is spread over the processes (FSDP2) or each holds all of it (DDP).
        precision: `bf16` (autocast) or `fp32`.
        pieces: how many parts a process cuts its part of a batch into, so that activations fit.
        name: in words, for tables.
        peak: FLOP/s of all devices together, None where unknown.
    """

    cuda: bool
    world: int
    local: int
    launcher: str | None
    sharded: bool
    precision: str
    pieces: int
    name: str
    peak: float | None

    @property
    def flush_every(self) -> int:
        """Updates between two reads of measurements; on a GPU each read waits for the device."""
        return 50 if self.cuda or self.world > 1 else 1

    @property
    def workers(self) -> int:
        """Processes that load batches ahead."""
        return 2 if self.cuda else 0

    def trainer_arguments(self) -> dict[str, Any]:
        """Return the arguments of Lightning's trainer that concern devices."""
        strategy: Any = "auto"
        if self.sharded:
            strategy = ModelParallelStrategy(data_parallel_size=self.world, tensor_parallel_size=1)
        elif self.world > 1:
            strategy = DDPStrategy(gradient_as_bucket_view=True, broadcast_buffers=False)
        return {
            "accelerator": "gpu" if self.cuda else "cpu",
            "devices": self.local,
            "num_nodes": self.world // self.local,
            "strategy": strategy,
            "precision": _PRECISIONS[self.precision],
            "plugins": _environment(self.launcher),
        }


def plan(spec: RunSpec, leased: int = 0, micro_tokens: int = MICRO_TOKENS, sharded: bool = False) -> Hardware:
    """Plan a run.

    Processes that torchrun or srun started share the run. Else there is one for each of `leased` devices,
    or one on the processor. `micro_tokens` and `sharded` are the run's `place` in the devices' memory.

    Raises:
        SmeltError: the batch cannot be divided over the processes, or an environment variable is no number.
    """
    group = started_group()
    world = group.world if group else max(1, leased)
    local = group.local if group else world
    cuda = torch.cuda.is_available() and (leased > 0 or group is not None)
    precision = spec.training.precision
    if precision == "auto":
        precision = "bf16" if cuda else "fp32"
    if precision == "bf16":
        _check_bf16(spec)
    name = torch.cuda.get_device_name() if cuda else _processor()
    return Hardware(
        cuda=cuda,
        world=world,
        local=local,
        launcher=group.launcher if group else None,
        sharded=sharded and world > 1,
        precision=precision,
        pieces=_pieces(spec, world, micro_tokens),
        name=name if world == 1 else f"{world} x {name}",
        peak=_peak(name, world),
    )


def _environment(launcher: str | None) -> list[Any]:
    """Return what tells Lightning about the processes of a run; torchrun's it finds by itself."""
    if launcher == "srun":
        return [SLURMEnvironment(auto_requeue=False)]  # the state is saved and resumed by our own means
    # Without this Lightning would take a scheduler's variables for an order to train on many nodes.
    return [] if launcher else [LightningEnvironment()]


def _processor() -> str:
    """Return the processor's name, where the system tells, and how many threads compute."""
    try:
        lines = Path("/proc/cpuinfo").read_text().splitlines()
    except OSError:
        lines = []
    names = (line.partition(":")[2].strip() for line in lines if line.startswith("model name"))
    threads = torch.get_num_threads()
    return f"{next(names, 'CPU')}, {threads} thread{'s' if threads > 1 else ''}"


def _check_bf16(spec: RunSpec) -> None:
    """Refuse sizes that only float32 can take.

    The precision must not depend on the sizes of one run: both members of a pair train in the same.
    """
    try:
        ModelConfig.from_spec(spec).check_alignment(bytes_per_element=2)
    except SmeltError as error:
        raise SmeltError(
            f"run {spec.point.run} cannot train in bf16: {error}; set training.precision to fp32 or "
            "loop.align to 8"
        ) from None


def _pieces(spec: RunSpec, world: int, micro_tokens: int) -> int:
    """Return the fewest equal parts of a process's rows with at most `micro_tokens` tokens each."""
    rows, rest = divmod(spec.training.batch, world)
    if rest or not rows:
        raise SmeltError(
            f"training.batch is {spec.training.batch}; it must be a multiple of the {world} processes"
        )
    fitting = max(1, micro_tokens // spec.corpus.context)
    return next(pieces for pieces in range(1, rows + 1) if rows % pieces == 0 and rows // pieces <= fitting)


def _peak(name: str, devices: int) -> float | None:
    """Return the peak of all devices: the variable's for each, else the one that the budget's plan uses."""
    known = next((machine.peak for machine in MACHINES.values() if machine.name in name), None)
    peak = float_variable(PEAK_VARIABLE, known)
    return None if peak is None else peak * devices


def float_variable(name: str, default: float | None) -> float | None:
    """Return an environment variable that must be a number of at least 0."""
    text = os.environ.get(name)
    if text is None:
        return default
    try:
        value = float(text)
    except ValueError:
        value = math.nan
    if not value >= 0:
        raise SmeltError(f"the environment variable {name} is {text!r}; it must be a number of at least 0")
    return value
