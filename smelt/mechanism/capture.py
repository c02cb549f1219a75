"""One pass over a held-out sample that feeds every statistic, without keeping activations beyond a batch."""

from __future__ import annotations

import time
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import torch
from torch import Tensor

from smelt.errors import SmeltError
from smelt.mechanism.attention import Attention
from smelt.mechanism.bootstrap import DocumentSums
from smelt.mechanism.interventions import Interventions
from smelt.mechanism.likeness import Likeness
from smelt.mechanism.residual import Residual, Updates
from smelt.mechanism.routing import Routing
from smelt.mechanism.walk import Pass
from smelt.model import LoopedLM
from smelt.results.stages import OF_GRID_RUN

TABLES = OF_GRID_RUN["mechanism"]

Rows = dict[str, list[dict[str, Any]]]


@dataclass(frozen=True)
class SampleBatch:
    """A batch of held-out text; `documents_bt` is below 0 on padding, `category_bt` an index."""

    inputs_bt: Tensor
    targets_bt: Tensor
    segments_bt: Tensor
    positions_bt: Tensor
    documents_bt: Tensor
    category_bt: Tensor


@dataclass
class Cost:
    """Seconds (of the processor, or of the clock on a GPU) and the tokens they were spent on.

    `forward` is the time inside the model's own steps, `statistics` that of everything that reads them.
    """

    tokens: int = 0
    forward: float = 0.0
    statistics: float = 0.0
    interventions: float = 0.0

    def __str__(self) -> str:
        """Give the costs per 1,000 tokens and as multiples of the forward pass alone."""
        parts = {
            "forward pass": self.forward,
            "capture": self.forward + self.statistics,
            "interventions": self.interventions,
        }
        costs = [
            f"{name} {1e6 * seconds / self.tokens:.1f} ms ({seconds / self.forward:.1f}x)"
            for name, seconds in parts.items()
            if seconds
        ]
        return f"{self.tokens:,} tokens; per 1,000: {', '.join(costs)}"


@dataclass
class Capture:
    """Every statistic of one model, fed batch by batch.

    Attributes:
        categories: names of the texts' categories.
        draws: of the bootstrap.
        mixed: see `Pass`.
    """

    model: LoopedLM
    categories: Sequence[str]
    draws: int
    mixed: bool = False
    cost: Cost = field(default_factory=Cost)

    def __post_init__(self) -> None:
        geometry = self.geometry = self.model.config.geometry
        self.sums = DocumentSums(self.draws)
        self.attention = Attention(geometry, self.sums)
        self.observers = [Residual(geometry, self.sums), Updates(geometry, self.sums), self.attention]
        self.interventions = None
        if geometry.looped:
            self.observers += [Routing(geometry, self.sums), Likeness(geometry, self.sums)]
            self.interventions = Interventions(geometry, self.sums, self.categories)
            self.observers.append(self.interventions)

    @torch.inference_mode()
    def add(self, batch: SampleBatch) -> None:
        """Walk one batch through the model and through every intervention."""
        lap = Lap()
        self.sums.begin(batch.documents_bt.flatten())
        self.attention.begin_batch(batch.segments_bt)
        self.cost.statistics += lap()
        walk = Pass(self.model, batch.inputs_bt, batch.segments_bt, batch.positions_bt, self.mixed)
        for step in walk.steps():
            self.cost.forward += lap()
            for observer in self.observers:
                observer.observe(step)
            self.cost.statistics += lap()
        for observer in self.observers:
            observer.end_batch()
        self.cost.statistics += lap()
        losses_n = walk.losses(step.after_btd, batch.targets_bt)
        self.cost.forward += lap()
        self.cost.tokens += batch.inputs_bt.numel()
        if self.interventions is not None:
            self.interventions.run(walk, losses_n, batch.targets_bt, batch.category_bt)
            self.cost.interventions += lap()

    def tables(self, run: str) -> Rows:
        """Return the rows of every table that the sample feeds.

        Raises:
            SmeltError: the sample holds fewer than two documents, so nothing can be drawn.
        """
        if len(self.sums.documents) < 2:
            raise SmeltError(
                f"the sample holds {len(self.sums.documents)} document(s); mechanism.tokens must cover 2"
            )
        return merge(observer.tables(run) for observer in self.observers)


class Lap:
    """Seconds since the last call, of the processor; of the clock where a GPU does the work."""

    def __init__(self) -> None:
        self._last = self._now()

    def __call__(self) -> float:
        """Return the seconds since the last call."""
        last, self._last = self._last, self._now()
        return self._last - last

    @staticmethod
    def _now() -> float:
        if torch.cuda.is_available():
            torch.cuda.synchronize()
            return time.perf_counter()
        return time.process_time()


def merge(parts: Iterable[Rows]) -> Rows:
    """Join the rows of several sources by table; every table of this room is there, empty if need be."""
    tables: Rows = {name: [] for name in TABLES}
    for part in parts:
        for name, rows in part.items():
            tables[name] += rows
    return tables


def sample(
    corpus: Any, context: int, tokens: int, device: torch.device, batch_tokens: int = 4096
) -> Iterable[SampleBatch]:
    """Yield the held-out sample as tensors on `device`.

    Args:
        corpus: see `smelt.corpus.Corpus`.
        tokens: size of the sample.

    Raises:
        SmeltError: the sample is shorter than one context.
    """
    if tokens < context:
        raise SmeltError(
            f"mechanism.tokens is {tokens}; it must be at least corpus.context, which is {context}"
        )
    _, index_of_document = category_index(corpus.documents)
    for batch in corpus.validation(context, tokens, max(1, batch_tokens // context)):
        documents_bt = np.asarray(batch.documents_bt)
        arrays = (
            batch.inputs_bt,
            batch.targets_bt,
            batch.segments_bt,
            batch.positions_bt,
            documents_bt,
            index_of_document[documents_bt],
        )
        yield SampleBatch(*(torch.as_tensor(np.asarray(a).astype(np.int64)).to(device) for a in arrays))


def category_index(documents: Mapping[str, Any]) -> tuple[list[str], np.ndarray]:
    """Return the sorted categories and the index of each document's in them."""
    names = np.asarray(documents["category"], dtype=str)
    categories, index = np.unique(names, return_inverse=True)
    return categories.tolist(), index
