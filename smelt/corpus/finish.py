"""The last step of every build: enough text for the study, measured context, manifest."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np

from smelt.corpus.batches import RowSampler
from smelt.corpus.corpus import DOCUMENTS, FORMAT, MANIFEST, PHASES, TOKENIZER, Corpus
from smelt.corpus.shards import Shard, ShardReader, token_type
from smelt.corpus.split import SPLITS
from smelt.corpus.tokenizer import BOS_ID, PAD_ID
from smelt.errors import SmeltError
from smelt.files import sha256_file, write_json
from smelt.study import Study
from smelt.study.study import CorpusSpec, TrainingSpec

# Contexts over which the mean attended context is measured.
_MEASURED_TOKENS = 1 << 20


def finish(study: Study, out: Path, shards: list[Shard], facts: dict[str, Any]) -> Corpus:
    """Write the manifest of the corpus in `out` and open it.

    Args:
        shards: all shards, those of a split in the order that `documents.parquet` numbers them in.
        facts: what else the manifest says (`sources`: a hash of each source's documents, ...).

    Raises:
        SmeltError: the study asks for more epochs than `corpus.max_epochs`.
    """
    dtype = token_type(study.corpus.vocab)
    samplers = {
        phase: RowSampler(
            ShardReader(out, [shard for shard in shards if shard.split == phase], dtype),
            study.corpus.context,
            BOS_ID,
            key,
        )
        for phase, key in PHASES.items()
    }
    rows = {phase: sampler.rows for phase, sampler in samplers.items()}
    check_epochs(f"study {study.name}", study.corpus, study.training, rows)
    manifest = {
        "format": FORMAT,
        "vocab": study.corpus.vocab,
        "bos": BOS_ID,
        "pad": PAD_ID,
        "context": study.corpus.context,
        "attended_context": attended_context(samplers["trunk"]),
        "shards": [shard.to_dict() for shard in shards],
        "splits": {split: sum(s.tokens for s in shards if s.split == split) for split in SPLITS},
        "files": {name: sha256_file(out / name) for name in (TOKENIZER, DOCUMENTS)},
        **facts,
    }
    write_json(out / MANIFEST, manifest)
    return Corpus.open(out)


def attended_context(sampler: RowSampler) -> float:
    """Return how many tokens a token attends to on average, itself included, in the sampler's contexts."""
    count = min(sampler.rows, max(1, _MEASURED_TOKENS // sampler.context))
    return float(np.mean(sampler.batch(0, 0, count).positions_bt + 1.0))


def check_epochs(
    who: str, corpus: CorpusSpec, training: TrainingSpec, rows: dict[str, int]
) -> dict[str, float]:
    """Return how many epochs of each phase the longest run of a training protocol takes.

    Args:
        who: who asks, for the message.
        rows: contexts that the corpus has in each phase (`Corpus.rows`).

    Raises:
        SmeltError: more than `corpus.max_epochs`; the message says how many.
    """
    asked = {
        "trunk": training.horizons[-1] * training.batch,
        "decay": training.decay_steps * training.batch,
    }
    epochs = {phase: asked[phase] / rows[phase] if rows[phase] else float("inf") for phase in asked}
    for phase, value in epochs.items():
        if value > corpus.max_epochs:
            raise SmeltError(
                f"{who} asks for {asked[phase]} contexts of {corpus.context} tokens in its {phase} phase, "
                f"which is {value:.2f} epochs of the {rows[phase]} that there are; "
                f"corpus.max_epochs allows {corpus.max_epochs:g}"
            )
    return epochs
