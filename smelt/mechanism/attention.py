"""Attention rows: the sink, and how much two visits attend alike (figures 14a-b, 17, 19, 25).

Shape legend: b rows of the batch, t query positions, s key positions, h query heads, g key heads,
d head size.
"""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from torch import Tensor

from smelt.mechanism.bootstrap import DocumentSums, diagnostic, fields
from smelt.mechanism.statistics import TOP_TOKENS, control_head, mass_overlap, shared_count, top_tokens
from smelt.mechanism.walk import Step
from smelt.study import Geometry

KINDS = ("top1", "top8", "mass")
# Rows reach from the first segment of their block to its last query: small blocks compute little unseen.
QUERY_BLOCK = 64


def attention_rows(q_bthd: Tensor, k_bsgd: Tensor, mask_bts: Tensor) -> Tensor:
    """Return the attention probabilities in float32, `[b, h, t, s]`.

    `mask_bts` is what to add to the scores: 0 on the keys that a query may see, minus infinity on the others.
    """
    heads, groups = q_bthd.shape[2], k_bsgd.shape[2]
    # The heads of a group become queries of its one key head.
    q_bgrtd = q_bthd.float().unflatten(2, (groups, -1)).permute(0, 2, 3, 1, 4)
    k_bgds = k_bsgd.float().permute(0, 2, 3, 1)
    scores_bhts = (q_bgrtd.flatten(2, 3) @ k_bgds).unflatten(2, (heads // groups, -1)).flatten(1, 2)
    return scores_bhts.div_(math.sqrt(q_bthd.shape[-1])).add_(mask_bts[:, None]).softmax(-1)


def additive_mask(allowed_bts: Tensor) -> Tensor:
    """Return 0 where a query may see a key and minus infinity elsewhere; adding is faster than filling."""
    return torch.zeros(allowed_bts.shape, device=allowed_bts.device).masked_fill_(~allowed_bts, -math.inf)


def segment_starts(segments_bt: Tensor) -> Tensor:
    """Return the index in the row of the first position of each position's segment, `[b, t]`."""
    positions_t = torch.arange(segments_bt.shape[1], device=segments_bt.device)
    changed_bt = torch.ones_like(segments_bt, dtype=torch.bool)
    changed_bt[:, 1:] = segments_bt[:, 1:] != segments_bt[:, :-1]
    return torch.where(changed_bt, positions_t, 0).cummax(dim=1).values


@dataclass(frozen=True)
class QueryBlock:
    """Consecutive queries, the keys that some of them may see, and the mask of those each query may see."""

    queries: slice
    keys: slice
    mask_bts: Tensor

    def rows(self, q_bthd: Tensor, k_btgd: Tensor) -> Tensor:
        """Return the block's attention rows of one execution, `[b, h, t, s]`."""
        return attention_rows(q_bthd[:, self.queries], k_btgd[:, self.keys], self.mask_bts)


def query_blocks(segments_bt: Tensor, block: int = QUERY_BLOCK) -> Iterator[QueryBlock]:
    """Cut a batch into blocks of queries, so that no full square of attention is ever held."""
    length, starts_bt = segments_bt.shape[1], segment_starts(segments_bt)
    positions_t = torch.arange(length, device=segments_bt.device)
    for start in range(0, length, block):
        stop = min(start + block, length)
        # Nothing before the block's first segments is seen, but a top-8 needs eight columns.
        first = max(0, min(int(starts_bt[:, start].min()), stop - TOP_TOKENS))
        queries, keys = slice(start, stop), slice(first, stop)
        same_bts = segments_bt[:, queries, None] == segments_bt[:, None, keys]
        causal_ts = positions_t[queries, None] >= positions_t[None, keys]
        yield QueryBlock(queries, keys, additive_mask(same_bts & causal_ts))


class Attention:
    """Sink mass of every execution, and the likeness of a later visit's rows to visit 0's.

    - `sink`: mass on the first position of the query's segment; that position itself, whose mass is 1 by
      necessity, is not counted.
    - `top1`: whether the most attended position stays; `top8`: share of the eight most attended positions
      that stay; `mass`: sum over positions of the smaller of the two probabilities.
    - The control compares the head with the one half the head count away in the same layer and visit,
      averaged over the two visits.

    A query counts for `top1` and `mass` when it sees at least two positions, for `top8` more than eight.
    """

    def __init__(self, geometry: Geometry, sums: DocumentSums) -> None:
        self.geometry, self.sums = geometry, sums
        self.shift = control_head(geometry.heads)
        self._first: dict[int, tuple[Tensor, Tensor]] = {}
        self._blocks: list[QueryBlock] = []

    def begin_batch(self, segments_bt: Tensor) -> None:
        """Prepare masks and the number of positions that each query sees."""
        self._blocks = list(query_blocks(segments_bt))
        self._starts_bt = segment_starts(segments_bt)
        positions_t = torch.arange(segments_bt.shape[1], device=segments_bt.device)
        seen_n = (positions_t - self._starts_bt + 1).flatten()
        self._some_n, self._many_n = seen_n > 1, seen_n > TOP_TOKENS
        if self.geometry.looped:
            self.sums.add("chance_top1", 1 / seen_n, self._some_n)
            self.sums.add("chance_top8", TOP_TOKENS / seen_n, self._many_n)

    def observe(self, step: Step) -> None:
        """Take the rows of one execution, block by block; those of visit 0 together with visit 1's."""
        layer, visit, now = step.execution.layer, step.execution.visit, (step.q_bthd, step.k_btgd)
        if step.execution.looped and visit == 0:
            self._first[layer] = now
            return
        parts = defaultdict(list)
        for block in self._blocks:
            rows_bhts = block.rows(*now)
            parts["sink", visit].append(self._sink(block, rows_bhts))
            if visit:
                first_bhts = block.rows(*self._first[layer])
                if visit == 1:
                    parts["sink", 0].append(self._sink(block, first_bhts))
                for kind, values in self._likeness(first_bhts, rows_bhts).items():
                    for part, values_bht in values.items():
                        parts[kind, part, visit].append(values_bht)
        valid = {"sink": self._some_n, "top1": self._some_n, "top8": self._many_n, "mass": self._some_n}
        for (*names, of_visit), blocks in parts.items():
            values_bth = torch.cat(blocks, dim=2).transpose(1, 2)
            self.sums.add((*names, layer, of_visit), values_bth, valid[names[0]])

    def end_batch(self) -> None:
        """Forget the batch."""
        self._first.clear()

    def _sink(self, block: QueryBlock, rows_bhts: Tensor) -> Tensor:
        """Return each query's mass on the first position of its segment, `[b, h, t]`."""
        starts_b1t1 = self._starts_bt[:, None, block.queries, None] - block.keys.start
        return rows_bhts.gather(3, starts_b1t1.expand(*rows_bhts.shape[:3], 1)).squeeze(3)

    def _likeness(self, first_bhts: Tensor, later_bhts: Tensor) -> dict[str, dict[str, Tensor]]:
        """Return for each kind the values across visits and of the control, `[b, h, t]` each."""
        tops = [top_tokens(rows_bhts) for rows_bhts in (first_bhts, later_bhts)]
        across = _alike(*tops, first_bhts, later_bhts)
        result = {kind: {"value": value_bht} for kind, value_bht in zip(KINDS, across, strict=True)}
        if self.shift is not None:
            controls = [
                self._heads_alike(top, rows) for top, rows in zip(tops, (first_bhts, later_bhts), strict=True)
            ]
            for kind, first_bht, later_bht in zip(KINDS, *controls, strict=True):
                result[kind]["control"] = (first_bht + later_bht) / 2
        return result

    def _heads_alike(self, top_bhtk: Tensor, rows_bhts: Tensor) -> list[Tensor]:
        """Return the likeness of each head's rows to those of its control in the same visit, `[b, h, t]`."""
        if self.geometry.heads == 2 * self.shift:
            # Each of a pair is the other's control: compared once.
            halves = _alike(*top_bhtk.chunk(2, dim=1), *rows_bhts.chunk(2, dim=1))
            return [value_bht.repeat(1, 2, 1) for value_bht in halves]
        other_bhtk, others_bhts = (x.roll(-self.shift, 1) for x in (top_bhtk, rows_bhts))
        return list(_alike(top_bhtk, other_bhtk, rows_bhts, others_bhts))

    def tables(self, run: str) -> dict[str, list[dict[str, Any]]]:
        """Return the rows of `sink` and `token_overlap` and their diagnostics.

        - `sink`: mean mass of the span at later visits, reference visit 0 (C21).
        - `sink_depth`: least-squares change of the sink mass from the first to the last physical layer, a
          layer's visits averaged, reference 0 (C21 for the Baseline).
        - `top1_overlap`, `top8_overlap`, `mass_overlap`: mean over span and heads, reference the control
          (C20, figures 14a-b and 17).
        """
        sink_rows, sinks = [], {}
        for execution in self.geometry.schedule():
            layer, visit = execution.layer, execution.visit
            mass_wh = self.sums.mean(("sink", layer, visit))
            sinks[layer, visit] = mass_wh.mean(1)
            for head in range(self.geometry.heads):
                key = {"run": run, "layer": layer, "visit": visit, "head": head}
                sink_rows.append({**key, **fields(mass_wh[:, head], "mass")})
        diagnostics = []
        if self.geometry.layers > 1:
            slope_w = _depth_slope(sinks, self.geometry.layers)
            diagnostics.append(diagnostic(run, "sink_depth", slope_w, np.zeros_like(slope_w)))
        if not self.geometry.looped:
            return {"sink": sink_rows, "token_overlap": [], "diagnostics": diagnostics}
        first = [sinks[layer, 0] for layer in self.geometry.span]
        later = [mass_w for (_, visit), mass_w in sinks.items() if visit]
        diagnostics.append(diagnostic(run, "sink", np.mean(later, axis=0), np.mean(first, axis=0)))
        overlap_rows = []
        for kind in KINDS:
            rows, row = self._overlap(run, kind)
            overlap_rows += rows
            diagnostics.append(row)
        return {"sink": sink_rows, "token_overlap": overlap_rows, "diagnostics": diagnostics}

    def _overlap(self, run: str, kind: str) -> tuple[list[dict[str, Any]], dict[str, Any]]:
        chance = None if kind == "mass" else self.sums.mean(f"chance_{kind}")[0, 0].item()
        rows, values, controls = [], [], []
        empty = {"control": None, "control_low": None, "control_high": None}
        for layer in self.geometry.span:
            for visit in range(1, self.geometry.loop_count):
                values_wh = self.sums.mean((kind, "value", layer, visit))
                values.append(values_wh.mean(1))
                if self.shift is not None:
                    controls_wh = self.sums.mean((kind, "control", layer, visit))
                    controls.append(controls_wh.mean(1))
                for head in range(self.geometry.heads):
                    row = {"run": run, "layer": layer, "visit": visit, "head": head, "kind": kind}
                    row |= fields(values_wh[:, head], "value") | empty | {"chance": chance}
                    if self.shift is not None:
                        row |= fields(controls_wh[:, head], "control", "control_")
                    rows.append(row)
        control_w = np.mean(controls, axis=0) if controls else None
        return rows, diagnostic(run, f"{kind}_overlap", np.mean(values, axis=0), control_w)


def _alike(top_a: Tensor, top_b: Tensor, rows_a: Tensor, rows_b: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """Return top-1 retention, top-8 overlap and mass overlap, `[b, h, t]` each."""
    return (
        (top_a[..., 0] == top_b[..., 0]).float(),
        shared_count(top_a, top_b) / top_a.shape[-1],
        mass_overlap(rows_a, rows_b),
    )


def _depth_slope(sinks: dict[tuple[int, int], np.ndarray], layers: int) -> np.ndarray:
    """Return the fitted change of sink mass over the whole physical depth, a value a draw."""
    mass_wl = np.stack(
        [
            np.mean([mass_w for (other, _), mass_w in sinks.items() if other == layer], axis=0)
            for layer in range(layers)
        ],
        axis=1,
    )
    depth_l = np.linspace(-0.5, 0.5, layers)
    return (mass_wl @ depth_l) / (depth_l @ depth_l)
