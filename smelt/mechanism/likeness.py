"""Cosine between two visits at each stage of the attention (figure 16)."""

from __future__ import annotations

from typing import Any

import numpy as np
import torch
from torch import Tensor

from smelt.mechanism.bootstrap import DocumentSums, diagnostic, fields
from smelt.mechanism.statistics import cosine
from smelt.mechanism.walk import Step, require_visits
from smelt.study import Geometry

STAGES = ("X", "Q", "K", "V", "PV", "O")


class Likeness:
    """Cosine of a token's vectors in visit 0 and a later one, all heads of a stage as one vector.

    Queries and keys are compared after the rotary embedding, which turns both visits' by the same angles.
    """

    def __init__(self, geometry: Geometry, sums: DocumentSums) -> None:
        require_visits(geometry)
        self.geometry, self.sums = geometry, sums
        self._first: dict[int, list[Tensor]] = {}

    def observe(self, step: Step) -> None:
        """Take the vectors of one execution."""
        execution = step.execution
        if not execution.looped:
            return
        stages = (step.normed_btd, step.q_bthd, step.k_btgd, step.v_btgd, step.pv_bthd, step.output_btd)
        vectors = [stage.flatten(0, 1).flatten(1) for stage in stages]
        if execution.visit == 0:
            self._first[execution.layer] = vectors
            return
        pairs = zip(self._first[execution.layer], vectors, strict=True)
        values_nc = torch.stack([cosine(first, later) for first, later in pairs], dim=1)
        self.sums.add(("cosine", execution.layer, execution.visit), values_nc)

    def end_batch(self) -> None:
        """Forget the batch."""
        self._first.clear()

    def tables(self, run: str) -> dict[str, list[dict[str, Any]]]:
        """Return the rows of `visit_cosine` and the diagnostics `cosine_<stage>`.

        A diagnostic is the mean over the span; its reference is that of X (claim C19).
        """
        rows, stages = [], []
        for layer in self.geometry.span:
            for visit in range(1, self.geometry.loop_count):
                cosines_wc = self.sums.mean(("cosine", layer, visit))
                stages.append(cosines_wc)
                key = {"run": run, "layer": layer, "visit": visit}
                rows += [
                    {**key, "stage": stage, **fields(cosines_wc[:, index], "cosine")}
                    for index, stage in enumerate(STAGES)
                ]
        mean_wc = np.mean(stages, axis=0)
        diagnostics = [
            diagnostic(run, f"cosine_{stage}", mean_wc[:, index], mean_wc[:, 0] if index else None)
            for index, stage in enumerate(STAGES)
        ]
        return {"visit_cosine": rows, "diagnostics": diagnostics}
