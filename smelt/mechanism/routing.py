"""Experts shared by two visits of a layer (figures 12 and 14c)."""

from __future__ import annotations

from typing import Any

import numpy as np

from smelt.mechanism.bootstrap import DocumentSums, diagnostic, fields
from smelt.mechanism.statistics import chance_spread, hypergeometric, shared_count
from smelt.mechanism.walk import Step, require_visits
from smelt.study import Geometry


class Routing:
    """Counts, for every token and looped layer, the top-k experts that a later visit shares with visit 0."""

    def __init__(self, geometry: Geometry, sums: DocumentSums) -> None:
        require_visits(geometry)
        self.geometry, self.sums = geometry, sums
        self._first = {}

    def observe(self, step: Step) -> None:
        """Take the expert sets of one execution."""
        layer, visit = step.execution.layer, step.execution.visit
        if not step.execution.looped:
            return
        if visit == 0:
            self._first[layer] = step.experts_nk
            return
        shared_n = shared_count(self._first[layer], step.experts_nk)
        bins_s = shared_n.new_tensor(range(self.geometry.top_k + 1))
        self.sums.add(("shared", layer, visit), (shared_n[:, None] == bins_s).double())

    def end_batch(self) -> None:
        """Forget the batch."""
        self._first.clear()

    def tables(self, run: str) -> dict[str, list[dict[str, Any]]]:
        """Return the rows of `routing_overlap` and the diagnostic `expert_overlap`.

        `chance` is the probability that two random routers share that many; `chance_mean` is k^2/E and
        `chance_low` to `chance_high` hold at least 95% of tokens under chance.
        `expert_overlap` is the mean share of the k experts (figure 14c) with k/E as its reference.
        """
        experts, top_k = self.geometry.experts, self.geometry.top_k
        chance = hypergeometric(experts, top_k)
        low, high = chance_spread(experts, top_k)
        rows, overlaps = [], []
        for layer in self.geometry.span:
            for visit in range(1, self.geometry.loop_count):
                fractions_ws = self.sums.mean(("shared", layer, visit))
                overlaps.append(fractions_ws @ np.arange(top_k + 1) / top_k)
                rows += [
                    {
                        "run": run,
                        "layer": layer,
                        "visit": visit,
                        "shared": shared,
                        **fields(fractions_ws[:, shared], "fraction"),
                        "chance": chance[shared],
                        "chance_mean": top_k**2 / experts,
                        "chance_low": low,
                        "chance_high": high,
                    }
                    for shared in range(top_k + 1)
                ]
        overlap_w = np.mean(overlaps, axis=0)
        reference_w = np.full_like(overlap_w, top_k / experts)
        return {
            "routing_overlap": rows,
            "diagnostics": [diagnostic(run, "expert_overlap", overlap_w, reference_w)],
        }
