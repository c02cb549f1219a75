"""The batches of a run's updates, as a Lightning data module."""

from __future__ import annotations

import signal
from dataclasses import dataclass
from typing import Any

import torch
from torch.utils.data import DataLoader, Dataset

from smelt.study import RunSpec
from smelt.train.lean import LightningDataModule
from smelt.train.schedule import Itinerary

FIELDS = ("inputs_bt", "targets_bt", "segments_bt", "positions_bt")
IGNORED = -100


@dataclass(frozen=True)
class Share:
    """One process's part of the global batch: `micro` pieces, of which it is the `rank`-th of `world`."""

    rank: int = 0
    world: int = 1
    micro: int = 1


class Updates(Dataset):
    """Item `i` holds the tokens of update `first + i` that belong to this process.

    Every item is `(number, targets, pieces)`: the update's number, how many targets all pieces have, and
    for each piece the arguments of `LoopedLM.loss`. A piece is what a rank of a larger world would get, so
    that the pieces of all processes are the global batch whatever their number.
    """

    def __init__(self, spec: RunSpec, corpus: Any, itinerary: Itinerary, first: int, share: Share) -> None:
        self._spec = spec
        self._corpus = corpus
        self._itinerary = itinerary
        self._first = first
        self._share = share

    def __len__(self) -> int:
        return len(self._itinerary) - self._first

    def __getitem__(self, item: int) -> tuple[int, int, list[dict[str, torch.Tensor]]]:
        number = self._first + item
        pieces = [self._piece(number, piece) for piece in range(self._share.micro)]
        targets = sum(int((piece["targets_bt"] != IGNORED).sum()) for piece in pieces)
        return number, targets, pieces

    def _piece(self, number: int, piece: int) -> dict[str, torch.Tensor]:
        update, share = self._itinerary[number], self._share
        batch = self._corpus.batch(
            update.phase,
            self._spec.point.seed,
            update.index,
            self._spec.training.batch,
            self._spec.corpus.context,
            rank=share.rank * share.micro + piece,
            world=share.world * share.micro,
        )
        return {name: torch.from_numpy(getattr(batch, name)).long() for name in FIELDS}


def _leave_signals_to_parent(worker: int) -> None:
    # A signal to the whole group must not end a loader before the trainer has finished its update.
    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, signal.SIG_IGN)


class UpdateData(LightningDataModule):
    """Loads the updates of a run from number `start.done` on, which is known when training starts."""

    def __init__(
        self, spec: RunSpec, corpus: Any, itinerary: Itinerary, start: Any, micro: int, workers: int
    ) -> None:
        super().__init__()
        self._parts = (spec, corpus, itinerary)
        self._start = start
        self._micro = micro
        self._workers = workers

    def train_dataloader(self) -> DataLoader:
        """Return the loader; an item is an update, so there is nothing left to collate."""
        share = Share(self.trainer.global_rank, self.trainer.world_size, self._micro)
        return DataLoader(
            Updates(*self._parts, self._start.done, share),
            batch_size=None,
            num_workers=self._workers,
            worker_init_fn=_leave_signals_to_parent,
            pin_memory=self.trainer.strategy.root_device.type == "cuda",
        )
