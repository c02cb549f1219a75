"""Attention rows: the sink, and how much two visits attend alike (figures 14a-b, 17, 19, 25).

Shape legend: b rows of the batch, t query positions, s key positions, h query heads, g key heads,
d head size.
"""

from __future__ import annotations

import math
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
# Rows reach up to the last query of their block: small blocks compute little of the future.
QUERY_BLOCK = 64


def attention_rows(q_bthd: Tensor, k_bsgd: Tensor, allowed_bts: Tensor) -> Tensor:
    """Return the attention probabilities in float32, `[b, h, t, s]`, of queries on the keys they may see."""
    groups = q_bthd.shape[2] // k_bsgd.shape[2]
    q_bhtd = q_bthd.float().transpose(1, 2)
    k_bhds = k_bsgd.float().repeat_interleave(groups, dim=2).permute(0, 2, 3, 1)
    scores_bhts = (q_bhtd @ k_bhds).div_(math.sqrt(q_bthd.shape[-1]))
    return scores_bhts.masked_fill_(~allowed_bts[:, None], -math.inf).softmax(-1)


def segment_starts(segments_bt: Tensor) -> Tensor:
    """Return the index in the row of the first position of each position's segment, `[b, t]`."""
    positions_t = torch.arange(segments_bt.shape[1], device=segments_bt.device)
    changed_bt = torch.ones_like(segments_bt, dtype=torch.bool)
    changed_bt[:, 1:] = segments_bt[:, 1:] != segments_bt[:, :-1]
    return torch.where(changed_bt, positions_t, 0).cummax(dim=1).values


@dataclass(frozen=True)
class QueryBlock:
    """Consecutive queries, the keys up to the last of them, and which of those each query may see."""

    queries: slice
    keys: slice
    allowed_bts: Tensor

    def rows(self, q_bthd: Tensor, k_btgd: Tensor) -> Tensor:
        """Return the block's attention rows of one execution, `[b, h, t, s]`."""
        return attention_rows(q_bthd[:, self.queries], k_btgd[:, self.keys], self.allowed_bts)


def query_blocks(segments_bt: Tensor, block: int = QUERY_BLOCK) -> Iterator[QueryBlock]:
    """Cut a batch into blocks of queries, so that no full square of attention is ever held."""
    length = segments_bt.shape[1]
    positions_t = torch.arange(length, device=segments_bt.device)
    for start in range(0, length, block):
        stop = min(start + block, length)
        same_bts = segments_bt[:, start:stop, None] == segments_bt[:, None, :stop]
        causal_ts = positions_t[start:stop, None] >= positions_t[None, :stop]
        yield QueryBlock(slice(start, stop), slice(0, stop), same_bts & causal_ts)


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
        """Take the rows of one execution, block by block."""
        execution = step.execution
        if execution.looped and execution.visit == 0:
            self._first[execution.layer] = (step.q_bthd, step.k_btgd)
        sinks, likeness = [], []
        for block in self._blocks:
            rows_bhts = block.rows(step.q_bthd, step.k_btgd)
            starts_bt = self._starts_bt[:, block.queries]
            index_bht1 = starts_bt[:, None, :, None].expand(*rows_bhts.shape[:3], 1)
            sinks.append(rows_bhts.gather(3, index_bht1).squeeze(3).transpose(1, 2))
            if execution.visit:
                likeness.append(self._likeness(block.rows(*self._first[execution.layer]), rows_bhts))
        key = (execution.layer, execution.visit)
        self.sums.add(("sink", *key), torch.cat(sinks, dim=1), self._some_n)
        if likeness:
            valid = {"top1": self._some_n, "top8": self._many_n, "mass": self._some_n}
            for kind in KINDS:
                for part in likeness[0][kind]:
                    values_bth = torch.cat([block[kind][part] for block in likeness], dim=1)
                    self.sums.add((kind, part, *key), values_bth, valid[kind])

    def end_batch(self) -> None:
        """Forget the batch."""
        self._first.clear()

    def _likeness(self, first_bhts: Tensor, later_bhts: Tensor) -> dict[str, dict[str, Tensor]]:
        """Return for each kind the values across visits and of the control, `[b, t, h]` each."""
        tops = [top_tokens(rows_bhts) for rows_bhts in (first_bhts, later_bhts)]
        result = {
            kind: {"value": value_bht.transpose(1, 2)}
            for kind, value_bht in zip(KINDS, _alike(*tops, first_bhts, later_bhts), strict=True)
        }
        if self.shift is not None:
            controls = [
                _alike(top, top.roll(-self.shift, 1), rows, rows.roll(-self.shift, 1))
                for top, rows in zip(tops, (first_bhts, later_bhts), strict=True)
            ]
            for kind, first_bht, later_bht in zip(KINDS, *controls, strict=True):
                result[kind]["control"] = ((first_bht + later_bht) / 2).transpose(1, 2)
        return result

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
