"""Train one run: model, data, devices and Lightning's trainer put together."""

from __future__ import annotations

import logging
import warnings
from pathlib import Path
from typing import Any

import torch

from smelt.budget.accounting import flops_per_token
from smelt.corpus import check_epochs
from smelt.errors import SmeltError
from smelt.files import write_json
from smelt.model import LoopedLM, ModelConfig
from smelt.study import RunSpec
from smelt.study.records import SPEC
from smelt.train.complete import is_complete, write_manifest
from smelt.train.data import UpdateData
from smelt.train.hardware import Hardware
from smelt.train.keeper import Keeper
from smelt.train.lean import Callback, SIGTERMException, Trainer
from smelt.train.log import Rate, write_log, write_throughput
from smelt.train.module import TrainingModule
from smelt.train.progress import MetricsLogger, ProgressBar, ProgressFile, display, make_logger
from smelt.train.schedule import Itinerary

COMPLETE, STOPPED = "complete", "stopped"


def check_corpus(spec: RunSpec, corpus: Any) -> None:
    """Refuse a corpus of another vocabulary, or with fewer tokens than the run may repeat."""
    if corpus.vocab_size != spec.corpus.vocab:
        raise SmeltError(
            f"the corpus has a vocabulary of {corpus.vocab_size}; corpus.vocab of run {spec.point.run} is "
            f"{spec.corpus.vocab}"
        )
    # A longer horizon does not build the corpus again, so it is refused here.
    rows = {phase: corpus.rows(phase, spec.corpus.context) for phase in ("trunk", "decay")}
    check_epochs(f"run {spec.point.run}", spec.corpus, spec.training, rows)


def train(spec: RunSpec, corpus: Any, out: Path, hardware: Hardware) -> str:
    """Train a run to its end, going on from its last checkpoint; return `COMPLETE` or `STOPPED`.

    `manifest.json` is written last. Of a run that is complete already only `spec.json` is written anew, and
    what of manifest and tables is missing or damaged, from their second copy.

    Raises:
        SmeltError: the corpus does not fit, training diverges, or a checkpoint breaks while in use.
    """
    check_corpus(spec, corpus)
    if is_complete(out, spec, corpus):
        write_json(out / SPEC, spec.to_dict())
        return COMPLETE
    flops = flops_per_token(spec.geometry, spec.corpus.attended_context)
    itinerary = Itinerary(spec)
    keeper = Keeper(out, itinerary, spec.spec_hash, corpus.sha256, flops)
    device = "meta" if hardware.sharded else None
    model = LoopedLM(ModelConfig.from_spec(spec), spec.point.seed, device)
    if hardware.cuda:
        compile_blocks(model)
    module = TrainingModule(model, spec, itinerary, hardware.flush_every, hardware.sharded)
    data = UpdateData(spec, corpus, itinerary, keeper, hardware.pieces, hardware.workers)
    logger = make_logger(spec, out)
    callbacks = [keeper, ProgressFile(out, itinerary), display(spec.point.run, itinerary)]
    callbacks += [MetricsLogger(itinerary)] if logger else []
    trainer = _trainer(out, hardware, callbacks, logger)
    if trainer.is_global_zero:
        write_json(out / SPEC, spec.to_dict())
    try:
        trainer.fit(module, datamodule=data)
    except SIGTERMException:  # it came before the keeper took over the signals
        return STOPPED
    if keeper.stopped:
        return STOPPED
    if trainer.is_global_zero:
        rate = Rate(flops, hardware.peak, hardware.name)
        write_log(out, spec.point.run, itinerary, module.rows, rate)
        write_throughput(out, spec.point.run, itinerary, module.rows, rate)
        write_manifest(out, spec, corpus, keeper.endpoints)
        (out / "progress.json").unlink(missing_ok=True)
        keeper.clear()
    return COMPLETE


def compile_blocks(model: LoopedLM, backend: str = "inductor") -> None:
    """Compile each block's forward pass; blocks of equal shapes share the result.

    What cannot be compiled runs as it is, with a warning. Hooks around a block, as sharding sets them, stay
    outside, and so do names of parameters.
    """
    torch._dynamo.config.suppress_errors = True
    for layer in model.layers:
        layer.forward = torch.compile(layer.forward, dynamic=False, backend=backend)


def _trainer(out: Path, hardware: Hardware, callbacks: list[Callback], logger: Any) -> Trainer:
    logging.getLogger("lightning.pytorch").setLevel(logging.WARNING)
    logging.getLogger("lightning.fabric").setLevel(logging.WARNING)
    for message in (
        ".*does not have many workers",
        "Total length of",
        ".*isinstance.treespec, LeafSpec",
        "The `srun` command is available",
    ):
        warnings.filterwarnings("ignore", message=message)
    return Trainer(
        **hardware.trainer_arguments(),
        max_epochs=1,
        callbacks=callbacks,
        logger=logger,
        enable_checkpointing=False,
        enable_progress_bar=any(isinstance(callback, ProgressBar) for callback in callbacks),
        enable_model_summary=False,
        log_every_n_steps=1,
        limit_val_batches=0,
        num_sanity_val_steps=0,
        use_distributed_sampler=False,
        default_root_dir=out,
    )
