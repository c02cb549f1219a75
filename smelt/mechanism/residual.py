"""The residual stream and what each execution writes to it (figures 13, 14d-h and 15)."""

from __future__ import annotations

from typing import Any

import numpy as np
import torch
from torch import Tensor
from torch.nn.functional import normalize

from smelt.mechanism.bootstrap import DocumentSums, diagnostic, fields
from smelt.mechanism.statistics import rms
from smelt.mechanism.walk import Step
from smelt.study import Geometry

COMPONENTS = ("stream", "update", "attention", "moe", "norm", "moe_norm")
# Figure 14e-h: the four norm ratios of claim C17.
RATIOS = ("update", "attention", "moe", "norm")


class Residual:
    """Mean over tokens of each token's root mean square over channels, for every execution.

    Components: `stream` before the execution; `update`, `attention` and `moe` what it adds, scaled as added;
    `norm` and `moe_norm` the outputs of the two RMSNorms.
    """

    def __init__(self, geometry: Geometry, sums: DocumentSums) -> None:
        self.geometry, self.sums = geometry, sums

    def observe(self, step: Step) -> None:
        """Take the norms of one execution."""
        parts = (
            step.stream_btd,
            step.update_btd,
            step.attention_btd,
            step.moe_btd,
            step.normed_btd,
            step.moe_normed_btd,
        )
        values_nc = torch.stack([rms(part_btd).flatten() for part_btd in parts], dim=1)
        self.sums.add(("rms", step.execution.layer, step.execution.visit), values_nc)

    def end_batch(self) -> None:
        """Nothing is kept between executions."""

    def tables(self, run: str) -> dict[str, list[dict[str, Any]]]:
        """Return the rows of `residual_flow`, `norm_ratios` and the diagnostics `<component>_ratio`.

        `relative` is the component's mean over the stream's. A ratio is a later visit's mean over visit 0's;
        its diagnostic averages the ratios of the span's layers and later visits and compares them with 1.
        """
        flow, ratios, spans = [], [], {name: [] for name in RATIOS}
        for execution in self.geometry.schedule():
            key = {"run": run, "layer": execution.layer, "visit": execution.visit}
            rms_wc = self.sums.mean(("rms", execution.layer, execution.visit))
            first_wc = self.sums.mean(("rms", execution.layer, 0))
            for index, component in enumerate(COMPONENTS):
                relative_w = rms_wc[:, index] / rms_wc[:, 0]
                flow.append(
                    {
                        **key,
                        "component": component,
                        **fields(rms_wc[:, index], "rms"),
                        **fields(relative_w, "relative", "relative_"),
                    }
                )
                if execution.visit:
                    ratio_w = rms_wc[:, index] / first_wc[:, index]
                    ratios.append({**key, "component": component, **fields(ratio_w, "ratio")})
                    if component in spans:
                        spans[component].append(ratio_w)
        means = {name: np.mean(values, axis=0) for name, values in spans.items() if values}
        diagnostics = [
            diagnostic(run, f"{name}_ratio", mean_w, np.ones_like(mean_w)) for name, mean_w in means.items()
        ]
        return {"residual_flow": flow, "norm_ratios": ratios, "diagnostics": diagnostics}


class Updates:
    """Cosine of every pair of updates of one token, in the order of execution."""

    def __init__(self, geometry: Geometry, sums: DocumentSums) -> None:
        self.geometry, self.sums = geometry, sums
        self._units: list[Tensor] = []

    def observe(self, step: Step) -> None:
        """Keep the direction of one execution's update until the end of the batch."""
        self._units.append(normalize(step.update_btd.flatten(0, 1).float(), dim=-1))

    def end_batch(self) -> None:
        """Add the cosines of the batch and forget it."""
        units_nld = torch.stack(self._units, dim=1)
        self.sums.add("update_cosine", torch.bmm(units_nld, units_nld.transpose(1, 2)))
        self._units.clear()

    def tables(self, run: str) -> dict[str, list[dict[str, Any]]]:
        """Return the rows of `update_cosine` and, for a looped model, the diagnostic `update_cosine`.

        That is the mean over same-layer pairs of visit 0 and a later visit; its reference is the mean over
        the pairs of different layers of the span in the same two visits (claim C18).
        """
        schedule = self.geometry.schedule()
        cosines_wij = self.sums.mean("update_cosine").reshape(-1, len(schedule), len(schedule))
        rows = [
            {
                "run": run,
                "i": i,
                "j": j,
                "layer_i": a.layer,
                "visit_i": a.visit,
                "layer_j": b.layer,
                "visit_j": b.visit,
                **fields(cosines_wij[:, i, j], "cosine"),
            }
            for i, a in enumerate(schedule)
            for j, b in enumerate(schedule)
        ]
        cross = [
            (cosines_wij[:, i, j], a.layer == b.layer)
            for i, a in enumerate(schedule)
            for j, b in enumerate(schedule)
            if a.looped and b.looped and a.visit == 0 and b.visit > 0
        ]
        same = [cosine_w for cosine_w, equal in cross if equal]
        other = [cosine_w for cosine_w, equal in cross if not equal]
        diagnostics = []
        if same:
            reference_w = np.mean(other, axis=0) if other else None
            diagnostics.append(diagnostic(run, "update_cosine", np.mean(same, axis=0), reference_w))
        return {"update_cosine": rows, "diagnostics": diagnostics}
