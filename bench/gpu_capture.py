"""The capture of the second pass on a device against the processor: a part of `bench.gpu_check`.

A tiny looped model reads the same documents on both. Rounding flips a token between two experts or positions
now and then, and a flip moves a share of tokens by a whole one: hence tolerances far above those of a sum.
"""

from __future__ import annotations

import copy

import numpy as np
import torch

from smelt.mechanism.capture import Capture, Rows, SampleBatch, merge
from smelt.mechanism.dyck import dyck_tables
from smelt.mechanism.prompts import ANSWER, BOS, DEMONSTRATION, DEMONSTRATION_ANSWER, QUERY, TARGETS, Prompt
from smelt.mechanism.walk import Pass
from smelt.model import LoopedLM, ModelConfig
from smelt.results.schemas import TABLES
from smelt.study import Geometry

GEOMETRY = Geometry(64, 4, 4, 2, 16, 16, 4, 32, 1, 2, 2)
VOCAB, ROWS, LENGTH, DOCUMENT = 256, 4, 256, 64
# Largest error of a number of the tables, relative to its column's largest above 1.
TOLERANCES = {"float32": 0.003, "mixed bf16": 0.03}


def sample(device: torch.device) -> SampleBatch:
    """Return documents of equal length, several a row, in two categories."""
    tokens_bt = torch.randint(1, VOCAB, (ROWS, LENGTH), generator=torch.Generator().manual_seed(0))
    place_bt = torch.arange(LENGTH).expand(ROWS, LENGTH)
    segments_bt, positions_bt = place_bt // DOCUMENT, place_bt % DOCUMENT
    inputs_bt = tokens_bt.masked_fill(positions_bt == 0, 0)
    targets_bt = inputs_bt.roll(-1, 1).masked_fill(positions_bt == DOCUMENT - 1, -100)
    documents_bt = segments_bt + torch.arange(ROWS)[:, None] * (LENGTH // DOCUMENT)
    tensors = (inputs_bt, targets_bt, segments_bt, positions_bt, documents_bt, documents_bt % 2)
    return SampleBatch(*(tensor.contiguous().to(device) for tensor in tensors))


def prompts(seed: int, count: int = 4) -> list[Prompt]:
    """Return prompts of random tokens with the parts of a Dyck prompt."""
    roles = [BOS, *[DEMONSTRATION] * 24, *[DEMONSTRATION_ANSWER] * 4, *[QUERY] * 12, *[ANSWER] * TARGETS]
    last = tuple(range(len(roles) - TARGETS, len(roles)))
    generator = torch.Generator().manual_seed(seed)
    rows = torch.randint(1, VOCAB, (count, len(roles) - 1), generator=generator).tolist()
    return [Prompt((0, *row), tuple(roles), tuple(map(str, (0, *row))), last) for row in rows]


def tables(model: LoopedLM, batch: SampleBatch, mixed: bool, dyck: bool) -> tuple[Rows, float]:
    """Return the capture's tables, and how far logits in its pass and after it are from those before it."""
    inputs = batch.inputs_bt, batch.segments_bt, batch.positions_bt
    precision = torch.autocast(batch.inputs_bt.device.type, torch.bfloat16, enabled=mixed)
    capture, walk = Capture(model, ["even", "odd"], 0, mixed), Pass(model, *inputs, mixed)
    with torch.inference_mode():
        with precision:
            before_btv = model(*inputs)
        capture.add(batch)
        inside_btv = walk.logits(walk.final())
        with precision:
            after_btv = model(*inputs)
    rows = capture.tables("run")
    if dyck:
        rows = merge([rows, dyck_tables("run", model, prompts(0), prompts(1), 0, mixed)])
    changed = max((x_btv - before_btv).abs().max().item() for x_btv in (inside_btv, after_btv))
    return rows, changed


def difference(wanted: Rows, found: Rows) -> float:
    """Return the largest error of a number of the tables, relative to its column's largest above 1."""
    worst = 0.0
    for name, rows in wanted.items():
        for column in (c.name for c in TABLES[name].columns if c.kind == "f"):
            pairs = [
                (row[column], other[column])
                for row, other in zip(rows, found[name], strict=True)
                if row[column] is not None
            ]
            wanted_r, found_r = np.array(pairs, dtype=float).reshape(-1, 2).T
            errors_r = np.abs(found_r - wanted_r) / max(1.0, np.abs(wanted_r).max(initial=0))
            worst = np.maximum(worst, errors_r.max(initial=0))  # not a number remains so
    return float(worst)


def check_capture(device: torch.device) -> dict[str, tuple[float, float]]:
    """Return the error of every part and what it may be.

    The reference is float32 on the processor. In float32 both sides take a plain loop over experts, since
    grouped products on a device are made for bf16. Beside the capture logits may not change at all.
    """
    plain = LoopedLM(ModelConfig(GEOMETRY, VOCAB, init_std=0.2), seed=0).eval()
    for layer in plain.layers:
        layer.moe.backend = "reference"
    found = {}
    for precision, tolerance in TOLERANCES.items():
        model, mixed = copy.deepcopy(plain).to(device), precision != "float32"
        # The rise of an untrained model's perplexity without a head is nothing but rounding in bf16.
        dyck = not mixed
        if mixed:
            for layer in model.layers:
                layer.moe.backend = "auto"
        wanted, _ = tables(plain, sample(torch.device("cpu")), False, dyck)
        rows, changed = tables(model, sample(device), mixed, dyck)
        found[f"capture, {precision}"] = difference(wanted, rows), tolerance
        found[f"logits beside it, {precision}"] = changed, 0.0
    return found
