"""Forks, endpoints, checkpoints and signals, between two updates."""

from __future__ import annotations

import os
import shutil
import signal
import time
from pathlib import Path
from typing import Any

import torch
from torch import distributed

from smelt.files import sha256_file
from smelt.model import save_weights
from smelt.train.hardware import float_variable
from smelt.train.lean import Callback, Trainer
from smelt.train.log import rows_from_tensor, rows_to_tensor
from smelt.train.module import TrainingModule, state_tensors
from smelt.train.resume import ROWS, Identity, Store, capture, restore
from smelt.train.schedule import Itinerary, Update
from smelt.train.sharding import whole

INTERVAL_VARIABLE = "SMELT_CHECKPOINT_SECONDS"
# Seconds between two checkpoints; and no more than 1 / _SHARE of the time goes into writing them.
_INTERVAL = 60.0
_SHARE = 20
SLOTS = "slots_xe"


class Keeper(Callback):
    """Keeps a run's state: saves it in time and at forks, brings it back after a branch or a restart.

    Attributes:
        done: updates behind the state that training starts from; known from `setup` on.
        stopped: whether a signal ended training early; the state was saved then.
        endpoints: manifest entries of the finished branches.
    """

    def __init__(self, run: Path, itinerary: Itinerary, spec_hash: str, corpus: str, flops: float) -> None:
        self.done = 0
        self.stopped = False
        self.endpoints: list[dict[str, Any]] = []
        self._run = run
        self._itinerary = itinerary
        self._spec_hash = spec_hash
        self._corpus = corpus
        self._flops = flops
        self._interval = float_variable(INTERVAL_VARIABLE, _INTERVAL)
        self._saved = time.monotonic()
        self._stop = False
        self._store: Store

    def setup(self, trainer: Trainer, module: TrainingModule, stage: str) -> None:
        """Find the checkpoint to start from."""
        sharded = module.sharded
        identity = Identity(self._spec_hash, self._corpus, trainer.world_size if sharded else 1)
        self._store = Store(self._run, identity, trainer.global_rank if sharded else 0)
        record = self._store.latest(self._itinerary.fork_of, lambda fine: _all(trainer, fine))
        if record is not None:
            self.done, self.endpoints = record.done, list(record.endpoints)
            module.rows = rows_from_tensor(self._store.rows(record.done))
        trainer.strategy.barrier()
        if trainer.is_global_zero:
            self._store.clear(after=self.done if record else -1)
            if record is None:  # endpoints of another specification
                shutil.rmtree(self._run / "endpoints", ignore_errors=True)

    def on_train_start(self, trainer: Trainer, module: TrainingModule) -> None:
        """Bring the state back and take over the signals."""
        if self.done:
            self._load(trainer, module, self.done)
        # Lightning's own handlers end the process without a checkpoint.
        for number in (signal.SIGTERM, signal.SIGINT):
            signal.signal(number, self._on_signal)
        module.flags = self._flags
        module.start_clock()

    def on_train_batch_end(
        self, trainer: Trainer, module: TrainingModule, outputs: Any, batch: Any, batch_index: int
    ) -> None:
        """Do what is due after an update."""
        done, update = batch[0] + 1, self._itinerary[batch[0]]
        stop, save = module.agreed
        if update.ends:
            self._end_branch(trainer, module, update, done)
        elif update.forks or stop or save:
            self._save(trainer, module, done)
        if stop and done < len(self._itinerary):
            self.stopped = trainer.should_stop = True

    def clear(self) -> None:
        """Remove the checkpoints of a finished run."""
        self._store.clear()

    def _on_signal(self, number: int, frame: Any) -> None:
        self._stop = True
        signal.signal(number, signal.SIG_DFL)  # a second one ends the process at once

    def _flags(self) -> tuple[int, int]:
        return int(self._stop), int(time.monotonic() - self._saved > self._interval)

    def _parts(self, trainer: Trainer, module: TrainingModule) -> Any:
        return state_tensors(module.model, trainer.optimizers[0])

    def _load(self, trainer: Trainer, module: TrainingModule, number: int) -> None:
        tensors = self._store.state(number)
        restore(self._parts(trainer, module), tensors)
        module.slots_xe.copy_(tensors[SLOTS])

    def _save(self, trainer: Trainer, module: TrainingModule, done: int) -> None:
        begin = time.monotonic()
        module.flush()
        files = {}
        if module.sharded or trainer.is_global_zero:
            part = trainer.global_rank if module.sharded else 0
            tensors = capture(self._parts(trainer, module)) | {SLOTS: module.slots_xe.cpu()}
            files = self._store.write(done, part, tensors)
        self._commit(trainer, module, done, done, files)
        if INTERVAL_VARIABLE not in os.environ:
            self._interval = max(_INTERVAL, _SHARE * (time.monotonic() - begin))

    def _commit(
        self, trainer: Trainer, module: TrainingModule, done: int, state: int, files: dict[str, str]
    ) -> None:
        files = _gather(trainer, files)
        if trainer.is_global_zero:
            files |= self._store.write(done, ROWS, {ROWS: rows_to_tensor(module.rows)})
            self._store.commit(done, state, files, self.endpoints)
            self._store.prune(self._itinerary.fork_of(done))
        trainer.strategy.barrier()
        self._saved = time.monotonic()
        module.start_clock()

    def _end_branch(self, trainer: Trainer, module: TrainingModule, update: Update, done: int) -> None:
        """Write the endpoint and go back to the fork."""
        module.flush()
        weights = {}
        for name, tensor in module.model.state_dict().items():
            value = whole(tensor)
            if trainer.is_global_zero:
                weights[name] = value.cpu()
        if trainer.is_global_zero:
            name = f"endpoints/h{update.horizon}.safetensors"
            save_weights(self._run / name, weights)
            self.endpoints.append(
                {
                    "horizon": update.horizon,
                    "step": update.step,
                    "tokens": update.tokens,
                    "flops": update.tokens * self._flops,
                    "weights": name,
                    "sha256": sha256_file(self._run / name),
                }
            )
        del weights
        fork = self._itinerary.fork_of(done)
        self._commit(trainer, module, done, fork, self._store.state_files(fork))
        if done < len(self._itinerary):
            self._load(trainer, module, done)
        module.start_clock()


def _all(trainer: Trainer, fine: bool) -> bool:
    if trainer.world_size == 1:
        return fine
    flag = torch.tensor(int(not fine), device=trainer.strategy.root_device)
    return trainer.strategy.reduce(flag, reduce_op="sum").item() == 0


def _gather(trainer: Trainer, files: dict[str, str]) -> dict[str, str]:
    """Return the files of all processes."""
    if trainer.world_size == 1:
        return dict(files)
    parts: list[dict[str, str]] = [{}] * trainer.world_size
    distributed.all_gather_object(parts, files)
    return {name: digest for part in parts for name, digest in part.items()}
