"""What a person sees of a run: a bar in a terminal, else a line now and then; and a logger if asked for."""

from __future__ import annotations

import sys
import time
from pathlib import Path
from typing import Any

from smelt.errors import SmeltError
from smelt.files import write_json
from smelt.study import RunSpec
from smelt.train.lean import Callback, Logger, TensorBoardLogger, TQDMProgressBar, Trainer, WandbLogger
from smelt.train.module import TrainingModule
from smelt.train.schedule import Itinerary, Update

_SECONDS = 20.0
_LOGGED = ("loss", "balance_loss", "grad_norm", "load_min", "load_max")


def display(run: str, itinerary: Itinerary) -> Callback:
    """Return the bar where standard output is a terminal, else the lines."""
    return ProgressBar(run, itinerary) if sys.stdout.isatty() else ProgressLines(run, itinerary)


def make_logger(spec: RunSpec, out: Path) -> Logger | bool:
    """Return the logger of the study key `training.logger`, False for `none`.

    Raises:
        SmeltError: its package is not installed.
    """
    name, run = spec.training.logger, spec.point.run
    try:
        if name == "tensorboard":
            return TensorBoardLogger(out, name="tensorboard", version=run)
        if name == "wandb":
            return WandbLogger(name=run, group=spec.point.cell, project="smelt", save_dir=out)
    except ModuleNotFoundError:
        raise SmeltError(f"training.logger is {name!r}; that needs the package {name}") from None
    return False


def _place(update: Update) -> str:
    return f"branch at {update.horizon}" if update.horizon else "trunk"


class ProgressFile(Callback):
    """Tells the workflow how far the run is: `progress.json`, renewed every other second."""

    SECONDS = 2.0

    def __init__(self, out: Path, itinerary: Itinerary) -> None:
        self._path = out / "progress.json"
        self._itinerary = itinerary
        self._written = 0.0

    def on_train_batch_end(
        self, trainer: Trainer, module: TrainingModule, outputs: Any, batch: Any, batch_index: int
    ) -> None:
        """Write the share of updates that is done, when it is time."""
        now = time.monotonic()
        if trainer.is_global_zero and now - self._written > self.SECONDS:
            self._written = now
            write_json(self._path, {"fraction": (batch[0] + 1) / len(self._itinerary)})


class ProgressLines(Callback):
    """Prints share done, loss, speed and time left to stderr every few seconds and at the end."""

    def __init__(self, run: str, itinerary: Itinerary) -> None:
        self._run = run
        self._itinerary = itinerary
        self._printed = self._started = time.monotonic()
        self._first: int | None = None

    def on_train_start(self, trainer: Trainer, module: TrainingModule) -> None:
        """Start the clock."""
        self._printed = self._started = time.monotonic()

    def on_train_batch_end(
        self, trainer: Trainer, module: TrainingModule, outputs: Any, batch: Any, batch_index: int
    ) -> None:
        """Print a line when it is time."""
        number, now = batch[0], time.monotonic()
        if self._first is None:
            self._first = number
        last = number + 1 == len(self._itinerary)
        if module.rows and trainer.is_global_zero and (last or now - self._printed > _SECONDS):
            self._printed = now
            print(self._line(number, now, module), file=sys.stderr, flush=True)

    def _line(self, number: int, now: float, module: TrainingModule) -> str:
        row, update, total = module.rows[-1], self._itinerary[number], len(self._itinerary)
        pace = (now - self._started) / (number + 1 - self._first)
        left = round(pace * (total - number - 1))
        speed = self._itinerary.tokens_per_update / pace
        return (
            f"{self._run}: {(number + 1) / total:4.0%}, step {update.step} ({_place(update)}), "
            f"loss {row.loss:.3f}, {speed:,.0f} tokens/s, {left // 60}:{left % 60:02d} left"
        )


class ProgressBar(TQDMProgressBar):
    """Lightning's bar with the run's name, the place in the itinerary and the loss."""

    def __init__(self, run: str, itinerary: Itinerary) -> None:
        super().__init__(refresh_rate=10)
        self._run = run
        self._itinerary = itinerary

    def on_train_epoch_start(self, trainer: Trainer, *others: Any) -> None:
        """Name the bar after the run; there is one epoch."""
        super().on_train_epoch_start(trainer, *others)
        self.train_progress_bar.set_description(self._run)

    def get_metrics(self, trainer: Trainer, module: TrainingModule) -> dict[str, str]:
        """Return what stands behind the bar."""
        if not module.rows:
            return {}
        row = module.rows[-1]
        return {"at": _place(self._itinerary[row.number]), "loss": f"{row.loss:.3f}"}


class MetricsLogger(Callback):
    """Hands each row to the trainer's logger, the trunk and every branch as curves of their own."""

    def __init__(self, itinerary: Itinerary) -> None:
        self._itinerary = itinerary
        self._logged = 0

    def on_train_start(self, trainer: Trainer, module: TrainingModule) -> None:
        """Leave out what an earlier process logged."""
        self._logged = len(module.rows)

    def on_train_batch_end(
        self, trainer: Trainer, module: TrainingModule, outputs: Any, batch: Any, batch_index: int
    ) -> None:
        """Log the rows that are new."""
        for row in module.rows[self._logged :]:
            update = self._itinerary[row.number]
            values = {name: getattr(row, name) for name in _LOGGED} | {"lr": update.lr}
            named = {f"{_place(update)}/{name}": value for name, value in values.items()}
            trainer.logger.log_metrics(named, step=update.step)
        self._logged = len(module.rows)
