"""What the jobs of a run ask of a cluster: devices, nodes, memory and time, from the study's plan."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from smelt.budget.plan import (
    ENDPOINT_BYTES,
    MACHINES,
    MICRO_TOKENS,
    STATE_BYTES,
    Machine,
    activation_bytes,
    choose_machine,
    device_hours,
    placement,
    stored_parameters,
)
from smelt.errors import SmeltError
from smelt.study import RunSpec, Study

MEGA = 1e6
PROCESS_MB = 2000  # interpreter, libraries, a batch, Snakemake's own process in the job
DEVICE_PROCESS_MB = 8000  # with CUDA's libraries, pinned memory and two processes that load batches
DEVICE_THREADS = 4  # the process of a device and its loaders
MEMORY_MARGIN = 1.25
TIME_MARGIN = 1.5
START_MINUTES = 30  # imports, compilation, checksums, the last checkpoint


@dataclass(frozen=True)
class Share:
    """What one job takes.

    Attributes:
        devices: accelerators in all; 0 on processors.
        nodes: machines.
        local: processes that the launcher starts on each machine; 1 where the job starts its own.
        threads: processor cores of each process.
        memory_mb: megabytes of host memory on each machine.
        minutes: time limit.
    """

    devices: int
    nodes: int
    local: int
    threads: int
    memory_mb: int
    minutes: int

    @property
    def launched(self) -> bool:
        """Whether the launcher starts the processes, one for each device."""
        return self.nodes * self.local > 1

    def launch(self, threads: int) -> str:
        """Return what stands before the program in the command; empty for a single process.

        Args:
            threads: processor cores of each process, as the job was submitted with.
        """
        if not self.launched:
            return ""
        return (
            f"srun --nodes={self.nodes} --ntasks={self.nodes * self.local} --ntasks-per-node={self.local} "
            f"--cpus-per-task={threads} --kill-on-bad-exit=1 "
        )

    # The next four are resources of the SLURM executor, absent (None) where it should start one process. It
    # wants `tasks_per_node` above 1, else `tasks`, which it would take for tasks of each device.

    @property
    def mpi(self) -> str | None:
        """What makes the executor leave the launch to the command."""
        return "srun" if self.launched else None

    @property
    def tasks_per_node(self) -> int | None:
        """Processes on each node, where they are several."""
        return self.local if self.launched and self.local > 1 else None

    @property
    def tasks(self) -> int | None:
        """Processes in all, where each node has one."""
        return self.nodes if self.launched and self.local == 1 else None

    @property
    def tasks_per_gpu(self) -> int | None:
        """Nothing, where there are `tasks`."""
        return None if self.tasks is None else 0


def training_share(study: Study, spec: RunSpec, cluster: Mapping[str, Any]) -> Share:
    """Return what training a run takes of a cluster.

    Args:
        study: the study of the run.
        spec: the run.
        cluster: the section `cluster` of the workflow's configuration. `device` names a machine of the
            plan, by default the study's; `node_devices` tells how many of them a node has; a training that
            would last longer than `hours` is spread over more; `launcher` allows several nodes.

    Raises:
        SmeltError: the run does not fit, or its batch cannot be divided over the devices that it needs.
    """
    machine = choose_machine(study, cluster.get("device"), None)
    hours, limit = device_hours(study, spec, machine), 60 * cluster.get("hours", math.inf)
    if not _accelerated(machine):
        return Share(0, 1, 1, 1, _processor_memory(spec), math.ceil(min(limit, _minutes(hours, 1))))
    stored = stored_parameters(spec.geometry, spec.corpus.vocab)
    least = placement(spec.geometry, stored, spec.training.precision, machine, spec.corpus.context).devices
    devices = _devices(spec, least, hours, limit)
    nodes, local = _layout(spec, devices, cluster)
    return Share(
        devices=devices,
        nodes=nodes,
        local=local if "launcher" in cluster else 1,
        threads=DEVICE_THREADS * (1 if "launcher" in cluster else local),
        memory_mb=_device_memory(stored, local, devices if least > 1 else 1),
        minutes=math.ceil(min(limit, _minutes(hours, devices))),
    )


def reading_share(study: Study, spec: RunSpec, cluster: Mapping[str, Any], minutes: int) -> Share:
    """Return what a job takes that loads the weights of a run and trains nothing."""
    accelerated = _accelerated(choose_machine(study, cluster.get("device"), None))
    weights = ENDPOINT_BYTES * stored_parameters(spec.geometry, spec.corpus.vocab) / MEGA
    process = DEVICE_PROCESS_MB if accelerated else PROCESS_MB
    memory = process + PROCESS_MB + MEMORY_MARGIN * 2 * weights
    return Share(int(accelerated), 1, 1, 1, math.ceil(memory), minutes)


def _accelerated(machine: Machine) -> bool:
    return machine.name != MACHINES["core"].name


def _minutes(hours: float, devices: int) -> float:
    return START_MINUTES + TIME_MARGIN * 60 * hours / devices


def _devices(spec: RunSpec, least: int, hours: float, limit: float) -> int:
    """Return at least `least` devices, a power of two, and no more than end the run within `limit` minutes.

    Where the batch has too few sequences for that, as many as it can be divided over.
    """
    devices, batch = least, spec.training.batch
    if batch % devices:
        raise SmeltError(
            f"run {spec.point.run} needs {devices} devices, so training.batch must be a multiple of them; "
            f"it is {batch}"
        )
    while _minutes(hours, devices) > limit and batch % (2 * devices) == 0:
        devices *= 2
    return devices


def _layout(spec: RunSpec, devices: int, cluster: Mapping[str, Any]) -> tuple[int, int]:
    """Return how many nodes a run takes and how many devices of each."""
    most = cluster.get("node_devices", devices)
    local = min(devices, 1 << (most.bit_length() - 1))  # as `devices`, a power of two
    nodes = devices // local
    if nodes > 1 and "launcher" not in cluster:
        raise SmeltError(
            f"run {spec.point.run} needs {devices} devices, but a node has {most} and the configuration "
            "names no cluster.launcher that starts processes on several"
        )
    return nodes, local


def _processor_memory(spec: RunSpec) -> int:
    """Return megabytes of a training on processors: its state and its activations."""
    stored = stored_parameters(spec.geometry, spec.corpus.vocab)
    tokens = min(MICRO_TOKENS, spec.training.batch * spec.corpus.context)
    used = STATE_BYTES * stored + activation_bytes(spec.geometry, spec.training.precision) * tokens
    return math.ceil(PROCESS_MB + MEMORY_MARGIN * used / MEGA)


def _device_memory(stored: int, local: int, shards: int) -> int:
    """Return megabytes of host memory beside `local` devices of a node.

    The state is only on its way there: initial weights of each process, checkpoints of each shard, and the
    first process gathers whole endpoints.
    """
    writers = local if shards > 1 else 1
    used = (STATE_BYTES * writers / shards + ENDPOINT_BYTES * (1 if shards > 1 else local)) * stored
    return math.ceil(DEVICE_PROCESS_MB * local + MEMORY_MARGIN * used / MEGA)
