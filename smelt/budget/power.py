"""How large a gap between the members of a pair the paper's law expects, before anything is trained."""

from __future__ import annotations

import csv
import functools
import math
import re
import statistics
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from smelt.budget.accounting import budget, sparsity
from smelt.budget.resolve import baseline_geometry
from smelt.errors import SmeltError
from smelt.files import ROOT
from smelt.results.parquet import read_rows
from smelt.study import Study

LAW = ROOT / "data" / "paper" / "table06_scaling_fit.csv"
# Total training FLOPs of the endpoints that the law was fitted on, 1.3e19 to 2.2e21 as far as two digits
# tell, and their sparsity (sections 4 and 5).
WINDOW_FLOPS = (1.25e19, 2.25e21)
WINDOW_SPARSITY = (0.83, 0.98)


@dataclass(frozen=True)
class Law:
    """Loss in nats per token, L(F, S, D) = E + A (1-S)^b / F^a + K / D^c (section 5)."""

    E: float
    A: float
    K: float
    a: float
    b: float
    c: float

    def loss(self, flops: float, sparse: float, tokens: float) -> float:
        """Return the loss at FLOPs per token, sparsity in [0, 1) and training tokens."""
        return self.E + self.A * (1 - sparse) ** self.b / flops**self.a + self.K / tokens**self.c


@functools.cache
def published_fits() -> dict[str, dict[str, float]]:
    """Return the printed fits of table 6 by architecture: E, A, K, a, b, c, and rmse in nats."""
    try:
        with open(LAW, newline="", encoding="utf-8") as stream:
            rows = list(csv.DictReader(stream))
    except FileNotFoundError:
        raise SmeltError(f"{LAW} does not exist; it holds the printed fits") from None
    return {row["arch"]: {name: float(row[name]) for name in (*"EAKabc", "rmse")} for row in rows}


def published_laws() -> dict[str, Law]:
    """Return the printed laws of table 6 by architecture."""
    return {
        arch: Law(**{name: fit[name] for name in Law.__dataclass_fields__})
        for arch, fit in published_fits().items()
    }


def predicted_gap(flops: float, sparse: float, tokens: float, vocab: int) -> float | None:
    """Return SMELT's loss minus the Baseline's in nats; negative where looping is expected to help.

    None where a law's loss is above ln(vocab), that of a uniform guess: there it says nothing.
    """
    losses = {arch: law.loss(flops, sparse, tokens) for arch, law in published_laws().items()}
    if max(losses.values()) > math.log(vocab):
        return None
    return losses["smelt"] - losses["baseline"]


def endpoint_tokens(study: Study, horizon: int) -> int:
    """Return training tokens at the end of the branch that forks at trunk step `horizon`."""
    training = study.training
    return (horizon + training.decay_steps) * training.batch * study.corpus.context


def power_rows(study: Study) -> list[dict[str, Any]]:
    """Return rows of the table `power`: the expected gap for every cell and horizon.

    FLOPs and sparsity are the Baseline's. `in_window` says whether the endpoint lies inside the FLOPs and
    the sparsity that the law was fitted on; outside, the number is an extrapolation and proves nothing.
    """
    return [row for cell in _cells(study) for row in cell]


def _cells(study: Study) -> Iterator[list[dict[str, Any]]]:
    attended = study.corpus.attended_context
    for scale in study.scales:
        control = budget(baseline_geometry(study, scale, study.model.top_k), attended)
        for percent, experts in study.sparsities.items():
            cost = budget(baseline_geometry(study, scale, experts), attended)
            sparse = max(0.0, sparsity(cost, control))
            rows = []
            for horizon in study.training.horizons:
                tokens = endpoint_tokens(study, horizon)
                flops = cost.flops * tokens
                rows.append(
                    {
                        "cell": f"{scale}-s{percent}",
                        "horizon": horizon,
                        "flops": flops,
                        "tokens": float(tokens),
                        "gap_predicted": predicted_gap(cost.flops, sparse, tokens, study.corpus.vocab),
                        "in_window": WINDOW_FLOPS[0] <= flops <= WINDOW_FLOPS[1]
                        and WINDOW_SPARSITY[0] <= sparse <= WINDOW_SPARSITY[1],
                    }
                )
            yield rows


def seed_spread(study: Study, results: Path) -> dict[tuple[str, int], float]:
    """Return the standard deviation of the Baseline's loss over seeds, by cell and horizon.

    Known are the cells whose Baseline was evaluated with at least two seeds under `results`.

    Raises:
        SmeltError: a file of endpoints is damaged.
    """
    losses: dict[tuple[str, int], list[float]] = {}
    for path in sorted(results.glob("evaluate/*/endpoints.parquet")):
        base = re.sub(r"-seed\d+$", "", path.parent.name)
        cell = base.removesuffix("-baseline")
        if cell == base:
            continue
        for row in read_rows(path):
            losses.setdefault((cell, row["horizon"]), []).append(row["val_loss"])
    cells = {f"{scale}-s{percent}" for scale in study.scales for percent in study.sparsities}
    return {
        key: statistics.stdev(values) for key, values in losses.items() if key[0] in cells and len(values) > 1
    }
