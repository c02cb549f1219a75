"""What a run trains on: device, number of processes, precision, pieces of a batch."""

from __future__ import annotations

import os
from dataclasses import dataclass
from typing import Any

import torch

from smelt.errors import SmeltError
from smelt.study import RunSpec

# Dense bf16 peak without sparsity, FLOP/s, from the vendor's data sheets.
PEAK_FLOPS = {
    "H200": 989e12,
    "H100": 989e12,
    "A100": 312e12,
    "L40S": 362e12,
    "RTX 4090": 165e12,
}
PEAK_VARIABLE = "SMELT_PEAK_FLOPS"


@dataclass(frozen=True)
class Hardware:
    """A plan for one run.

    Attributes:
        accelerator: Lightning's name, `cpu` or `gpu`.
        devices: processes on this machine.
        nodes: machines.
        precision: Lightning's name.
        micro: pieces that a process cuts its part of a batch into.
        name: in words, for tables.
        peak: FLOP/s of all devices, None where unknown.
        strategy: Lightning's strategy, a name or an object.
        flush_every: updates between two transfers of measurements.
        workers: loader processes.
    """

    accelerator: str
    devices: int
    nodes: int
    precision: str
    micro: int
    name: str
    peak: float | None
    strategy: Any
    flush_every: int
    workers: int

    def trainer_arguments(self) -> dict[str, Any]:
        """Return the part of Lightning's trainer arguments that concerns devices."""
        return {
            "accelerator": self.accelerator,
            "devices": self.devices,
            "num_nodes": self.nodes,
            "strategy": self.strategy,
            "precision": self.precision,
        }


def plan(spec: RunSpec) -> Hardware:
    """Plan a run for the devices that this process may use."""
    cuda = torch.cuda.is_available()
    world = int(os.environ.get("WORLD_SIZE", 1))
    precision = spec.training.precision
    if precision == "auto":
        precision = "bf16" if cuda else "fp32"
    name = torch.cuda.get_device_name() if cuda else f"CPU, {torch.get_num_threads()} thread(s)"
    if spec.training.batch % world:
        raise SmeltError(
            f"training.batch is {spec.training.batch}; it must be a multiple of the {world} processes"
        )
    return Hardware(
        accelerator="gpu" if cuda else "cpu",
        devices=world,
        nodes=1,
        precision={"bf16": "bf16-mixed", "fp32": "32-true"}[precision],
        micro=1,
        name=name,
        peak=_peak(name, world),
        strategy="auto" if world == 1 else "ddp",
        flush_every=50 if cuda else 1,
        workers=2 if cuda else 0,
    )


def _peak(name: str, devices: int) -> float | None:
    if PEAK_VARIABLE in os.environ:
        try:
            return float(os.environ[PEAK_VARIABLE]) * devices
        except ValueError:
            raise SmeltError(
                f"{PEAK_VARIABLE} is {os.environ[PEAK_VARIABLE]!r}; it must be FLOP/s of a device"
            ) from None
    return next((peak * devices for key, peak in PEAK_FLOPS.items() if key in name), None)
