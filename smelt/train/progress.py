"""What a person sees of a run: a bar in a terminal, else a line now and then."""

from __future__ import annotations

import sys
import time
from typing import Any

from smelt.train.lean import Callback, Trainer
from smelt.train.module import TrainingModule
from smelt.train.schedule import Itinerary

_SECONDS = 20.0


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
        place = "trunk" if not update.horizon else f"branch at {update.horizon}"
        speed = self._itinerary.tokens_per_update / pace
        return (
            f"{self._run}: {(number + 1) / total:4.0%}, step {update.step} ({place}), loss {row.loss:.3f}, "
            f"{speed:,.0f} tokens/s, {left // 60}:{left % 60:02d} left"
        )
