"""Beyond the paper: what the loss loses when a part of the later visits is taken away.

Every intervention changes all later visits of the span at once and is paired token by token with the intact
pass. Replaced parts come from visit 0 of the same pass.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import Tensor

from smelt.mechanism.bootstrap import DocumentSums, fields
from smelt.mechanism.walk import Edit, Pass, Step, require_visits
from smelt.study import Execution, Geometry

ALL = "all"
INTACT = "none"
# Later visits repeat these parts of visit 0; the pattern is what queries and keys make.
REUSE = {
    "queries": frozenset("q"),
    "keys": frozenset("k"),
    "pattern": frozenset("qk"),
    "values": frozenset("v"),
    "attention": frozenset("qkv"),
    "routing": frozenset("r"),
}
# Factors on the loop's factor of the attention's and the experts' write at later visits.
SKIP = {"skip": (0.0, 0.0), "skip_attention": (0.0, 1.0), "skip_experts": (1.0, 0.0)}
# No later visit, and visit 0 at full strength: the span as an unlooped model would run it.
SINGLE = "single_visit"
INTERVENTIONS = (*REUSE, *SKIP, SINGLE)


@dataclass
class Kept:
    """What visit 0 of a layer computed: queries, keys and values; weights and ids of its experts."""

    qkv: dict[int, tuple[Tensor, Tensor, Tensor]] = field(default_factory=dict)
    routing: dict[int, tuple[Tensor, Tensor]] = field(default_factory=dict)

    def copy(self) -> Kept:
        """Return a copy that can be added to."""
        return Kept(dict(self.qkv), dict(self.routing))


class Reuse(Edit):
    """Later visits use visit 0's queries, keys, values or routing.

    Args:
        parts: some of `q`, `k`, `v`, `r`.
        kept: of the layers whose visit 0 the pass will not repeat.
    """

    def __init__(self, parts: frozenset[str], kept: Kept | None = None) -> None:
        self.parts = parts
        self.kept = kept.copy() if kept else Kept()

    def qkv(self, execution: Execution, q: Tensor, k: Tensor, v: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        """Keep visit 0's, put them in place of a later visit's."""
        if execution.visit == 0:
            self.kept.qkv[execution.layer] = (q, k, v)
            return q, k, v
        first = self.kept.qkv[execution.layer]
        return tuple(
            old if part in self.parts else new for part, old, new in zip("qkv", first, (q, k, v), strict=True)
        )

    def routing(self, execution: Execution, weights_nk: Tensor, ids_nk: Tensor) -> tuple[Tensor, Tensor]:
        """Keep visit 0's experts and weights, put them in place of a later visit's."""
        if execution.visit == 0:
            self.kept.routing[execution.layer] = (weights_nk, ids_nk)
        elif "r" in self.parts:
            return self.kept.routing[execution.layer]
        return weights_nk, ids_nk


class Scale(Edit):
    """Visit 0 and later visits of the span write with the given multiples of the loop's factor."""

    def __init__(self, first: tuple[float, float], later: tuple[float, float]) -> None:
        self.first, self.later = first, later

    def scales(self, execution: Execution) -> tuple[float, float]:
        """Return the changed factors."""
        if not execution.looped:
            return execution.scale, execution.scale
        attention, moe = self.later if execution.visit else self.first
        return execution.scale * attention, execution.scale * moe


class Interventions:
    """Rise of the loss under each intervention, by category of the text.

    Args:
        categories: names that the batches' `category_bt` indexes.
    """

    def __init__(self, geometry: Geometry, sums: DocumentSums, categories: Sequence[str]) -> None:
        require_visits(geometry)
        self.geometry, self.sums, self.categories = geometry, sums, categories
        schedule = geometry.schedule()
        self._span = next(i for i, execution in enumerate(schedule) if execution.looped)
        self._later = next(i for i, execution in enumerate(schedule) if execution.visit)
        self._kept, self._streams = Kept(), {}

    def observe(self, step: Step) -> None:
        """Keep of the intact pass what the interventions start from."""
        if step.index < self._later and step.execution.looped:
            self._kept.qkv[step.execution.layer] = (step.q_bthd, step.k_btgd, step.v_btgd)
            self._kept.routing[step.execution.layer] = (step.weights_nk, step.experts_nk)
        if step.index in (self._span, self._later):
            self._streams[step.index] = step.stream_btd

    def end_batch(self) -> None:
        """Keep what `run` starts from."""

    def run(self, batch: Pass, intact_n: Tensor, targets_bt: Tensor, category_bt: Tensor) -> None:
        """Run the batch whose intact pass was observed under every intervention, then forget it.

        `intact_n` are the losses of the intact pass.
        """
        losses = [intact_n]
        for name in INTERVENTIONS:
            start = self._span if name == SINGLE else self._later
            final_btd = batch.final(self._edit(name), start, self._streams[start])
            losses.append(batch.losses(final_btd, targets_bt))
        losses_nc = torch.stack(losses, dim=1)
        values_nc = torch.cat([losses_nc, losses_nc - losses_nc[:, :1]], dim=1)
        predicted_n = (targets_bt >= 0).flatten()
        for index, category in enumerate(self.categories):
            valid_n = predicted_n & (category_bt == index).flatten()
            self.sums.add(("rise", category), values_nc, valid_n)
        self.sums.add(("rise", ALL), values_nc, predicted_n)
        self._kept, self._streams = Kept(), {}

    def _edit(self, name: str) -> Edit:
        if name in REUSE:
            return Reuse(REUSE[name], self._kept)
        if name in SKIP:
            return Scale((1, 1), SKIP[name])
        visits = self.geometry.loop_count
        return Scale((visits, visits), (0, 0))

    def tables(self, run: str) -> dict[str, list[dict[str, Any]]]:
        """Return the rows of `interventions`: the loss in nats per token and its rise over the intact pass.

        The row `none` is the intact pass. A category without a token in the sample has no row.
        """
        rows, names = [], (INTACT, *INTERVENTIONS)
        for category in (*self.categories, ALL):
            tokens = self.sums.count(("rise", category))
            if not tokens:
                continue
            mean_wc = self.sums.mean(("rise", category))
            for index, name in enumerate(names):
                rows.append(
                    {
                        "run": run,
                        "intervention": name,
                        "category": category,
                        **fields(mean_wc[:, len(names) + index], "rise"),
                        **fields(mean_wc[:, index], "loss", "loss_"),
                        "tokens": tokens,
                    }
                )
        return {"interventions": rows}
