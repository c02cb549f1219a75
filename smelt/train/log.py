"""What is recorded of every update, and the tables made of it."""

from __future__ import annotations

import math
from dataclasses import astuple, dataclass, fields
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from smelt.results.parquet import write_table
from smelt.train.schedule import DECAY, TRUNK, Itinerary

# The first updates of a phase pay for warming up caches and loading; they are not part of a speed.
WARM_UP_UPDATES = 3


@dataclass(frozen=True)
class Row:
    """Measurements of one update; what else a table says of it follows from `number`.

    Attributes:
        number: position in the itinerary, 0-based.
        loss: mean cross entropy of the batch before the update, nats per token.
        balance_loss: balance loss, mean over executed layers, before its coefficient.
        load_min, load_max: smallest and largest load of an expert over about 20 updates; 1 is an equal share.
        grad_norm: global gradient norm before clipping.
        seconds: wall-clock time.
    """

    number: int
    loss: float
    balance_loss: float
    load_min: float
    load_max: float
    grad_norm: float
    seconds: float

    def finite(self) -> bool:
        """Whether loss and gradient norm are numbers."""
        return math.isfinite(self.loss) and math.isfinite(self.grad_norm)


def rows_to_tensor(rows: list[Row]) -> Tensor:
    """Return the rows as float64 `[rows, fields]` for a checkpoint."""
    return torch.tensor([astuple(row) for row in rows], dtype=torch.float64).reshape(-1, len(fields(Row)))


def rows_from_tensor(values: Tensor) -> list[Row]:
    """Invert `rows_to_tensor`."""
    return [Row(int(number), *others) for number, *others in values.tolist()]


@dataclass(frozen=True)
class Rate:
    """What turns tokens and seconds into FLOPs and utilisation.

    Attributes:
        flops_per_token: training FLOPs of the executed layers per token.
        peak: peak FLOP/s of all devices together; None where it is not known.
        device: what the run runs on, in words.
    """

    flops_per_token: float
    peak: float | None
    device: str

    def mfu(self, tokens_per_s: float) -> float | None:
        """Return the model FLOPs utilisation at a speed."""
        return None if self.peak is None else tokens_per_s * self.flops_per_token / self.peak


def write_log(folder: Path, run: str, itinerary: Itinerary, rows: list[Row], rate: Rate) -> None:
    """Write `train_log.parquet`; all columns but the two of speed are the same in every repetition."""
    table = []
    for row in rows:
        update = itinerary[row.number]
        speed = itinerary.tokens_per_update / row.seconds
        table.append(
            {
                "run": run,
                "phase": update.phase,
                "horizon": update.horizon,
                "step": update.step,
                "tokens": update.tokens,
                "flops": update.tokens * rate.flops_per_token,
                "loss": row.loss,
                "lr": update.lr,
                "grad_norm": row.grad_norm,
                "balance_loss": row.balance_loss,
                "load_min": row.load_min,
                "load_max": row.load_max,
                "tokens_per_s": speed,
                "mfu": rate.mfu(speed),
            }
        )
    write_table(folder, "train_log", table)


def write_throughput(folder: Path, run: str, itinerary: Itinerary, rows: list[Row], rate: Rate) -> None:
    """Write `throughput.parquet`: the speed of each phase, time for checkpoints left out."""
    table: list[dict[str, Any]] = []
    for phase in (TRUNK, DECAY):
        seconds = [row.seconds for row in rows if itinerary[row.number].phase == phase]
        timed = seconds[WARM_UP_UPDATES:] or seconds
        speed = len(timed) * itinerary.tokens_per_update / sum(timed)
        table.append(
            {
                "run": run,
                "phase": phase,
                "tokens_per_s": speed,
                "mfu": rate.mfu(speed),
                "peak_flops": rate.peak,
                "device": rate.device,
                "seconds": sum(seconds),
            }
        )
    write_table(folder, "throughput", table)
