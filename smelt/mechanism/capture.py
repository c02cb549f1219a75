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

TABLES = (
    "diagnostics",
    "routing_overlap",
    "residual_flow",
    "norm_ratios",
    "update_cosine",
    "visit_cosine",
    "token_overlap",
    "sink",
    "dyck_heads",
    "dyck_map",
    "dyck_mass",
    "interventions",
)

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
    """Processor time in seconds, and the tokens it was spent on.

    `plain` is the model's own forward pass over the first batch, repeated once the code is warm.
    """

    tokens: int = 0
    capture: float = 0.0
    interventions: float = 0.0
    plain_tokens: int = 0
    plain: float = 0.0

    def __str__(self) -> str:
        """Give the costs per 1,000 tokens and as multiples of a plain forward pass."""
        plain = self.plain / self.plain_tokens
        parts = [("capture", self.capture / self.tokens), ("interventions", self.interventions / self.tokens)]
        times = ", ".join(f"{name} {1e6 * cost:.1f} ms ({cost / plain:.1f}x)" for name, cost in parts)
        return f"per 1,000 tokens of {self.tokens:,}: plain forward {1e6 * plain:.1f} ms, {times}"


@dataclass
class Capture:
    """Every statistic of one model, fed batch by batch."""

    model: LoopedLM
    categories: Sequence[str]
    draws: int
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

    @torch.inference_mode()
    def add(self, batch: SampleBatch) -> None:
        """Walk one batch through the model and through every intervention."""
        inputs = batch.inputs_bt, batch.segments_bt, batch.positions_bt
        if not self.cost.plain_tokens:
            self.model(*inputs)
            started = _clock()
            self.model(*inputs)
            self.cost.plain, self.cost.plain_tokens = _clock() - started, batch.inputs_bt.numel()
        started = _clock()
        self.sums.begin(batch.documents_bt.flatten())
        self.attention.begin_batch(batch.segments_bt)
        walk = Pass(self.model, *inputs)
        for step in walk.steps():
            for observer in self.observers:
                observer.observe(step)
            if self.interventions is not None:
                self.interventions.observe(step)
        for observer in self.observers:
            observer.end_batch()
        walked = _clock()
        if self.interventions is not None:
            self.interventions.run(walk, batch.targets_bt, batch.category_bt)
        self.cost.tokens += batch.inputs_bt.numel()
        self.cost.capture += walked - started
        self.cost.interventions += _clock() - walked

    def tables(self, run: str) -> Rows:
        """Return the rows of every table that the sample feeds.

        Raises:
            SmeltError: the sample holds fewer than two documents, so nothing can be drawn.
        """
        if len(self.sums.documents) < 2:
            raise SmeltError(
                f"the sample holds {len(self.sums.documents)} document(s); mechanism.tokens must cover 2"
            )
        parts = [observer.tables(run) for observer in self.observers]
        if self.interventions is not None:
            parts.append(self.interventions.tables(run))
        return merge(parts)


def _clock() -> float:
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
