"""Held-out loss by source, category and document length.

Shape suffixes: b rows, t positions.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch

from smelt.corpus import length_bucket
from smelt.errors import SmeltError
from smelt.evaluate.scoring import Progress, hidden_states
from smelt.model import LoopedLM
from smelt.model.loss import token_losses


@dataclass(frozen=True)
class DocumentLosses:
    """Sums over documents' validated tokens: loss in nats and tokens, one entry per corpus document."""

    loss: np.ndarray
    tokens: np.ndarray


@torch.inference_mode()
def document_losses(
    model: LoopedLM,
    batches: Iterable[Any],
    documents: int,
    half: bool = False,
    progress: Progress = lambda prompts, tokens: None,
) -> DocumentLosses:
    """Return loss and token sums of every document that `batches` (of `Corpus.validation`) touch.

    A token counts where it has a target, that is where the next token belongs to the same document. `half`
    runs the layers in bfloat16.
    """
    device = model.embed.weight.device
    loss, tokens = np.zeros(documents), np.zeros(documents, np.int64)
    for batch in batches:
        inputs_bt, targets_bt, segments_bt, positions_bt = (
            torch.from_numpy(np.ascontiguousarray(array)).long().to(device)
            for array in (batch.inputs_bt, batch.targets_bt, batch.segments_bt, batch.positions_bt)
        )
        context = model.context(inputs_bt, segments_bt, positions_bt)
        x_btd = hidden_states(model, inputs_bt, context, half)
        ce_n = token_losses(x_btd.flatten(0, 1), model.head.weight, targets_bt.flatten())
        counted = np.asarray(batch.targets_bt).ravel() >= 0
        owner = np.asarray(batch.documents_bt).ravel()[counted]
        loss += np.bincount(owner, ce_n.double().cpu().numpy()[counted], minlength=documents)
        tokens += np.bincount(owner, minlength=documents)
        progress(0, int(counted.sum()))
    return DocumentLosses(loss, tokens)


def validation_rows(
    run: str, horizon: int, losses: DocumentLosses, documents: Mapping[str, Sequence]
) -> list[dict[str, Any]]:
    """Return rows of table `validation`: sums per source, category and length bucket.

    `documents` are the corpus's columns `source`, `category` and `tokens`. Only cells with tokens are rows.
    """
    bucket = length_bucket(np.asarray(documents["tokens"]))
    cells: dict[tuple[str, str, int], list[float]] = {}
    for i in np.flatnonzero(losses.tokens):
        key = (documents["source"][i], documents["category"][i], int(bucket[i]))
        cell = cells.setdefault(key, [0, 0.0, 0])
        cell[0] += int(losses.tokens[i])
        cell[1] += float(losses.loss[i])
        cell[2] += 1
    return [
        {
            "run": run,
            "horizon": horizon,
            "source": source,
            "category": category,
            "length_bucket": length,
            "tokens": tokens,
            "loss_sum": loss,
            "documents": count,
        }
        for (source, category, length), (tokens, loss, count) in sorted(cells.items())
    ]


def validation_loss(rows: Iterable[Mapping[str, Any]]) -> float:
    """Return the validation loss in nats per token.

    Section 2 says "token-weighted cross entropy averaged over the sources"; read here as: within a source
    every token counts equally, and the sources count equally.

    Raises:
        SmeltError: there are no rows.
    """
    sums: dict[str, list[float]] = {}
    for row in rows:
        pair = sums.setdefault(row["source"], [0.0, 0])
        pair[0] += row["loss_sum"]
        pair[1] += row["tokens"]
    if not sums:
        raise SmeltError("the validation split has no tokens; there is no loss to average")
    return sum(loss / tokens for loss, tokens in sums.values()) / len(sums)
