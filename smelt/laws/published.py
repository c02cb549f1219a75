"""The paper's own endpoints: sizes of tables 9 and 10, horizons of section 2, accounting of section 3."""

from __future__ import annotations

import csv

import numpy as np

from smelt.files import ROOT
from smelt.laws.fit import Design
from smelt.laws.simulate import Truth
from smelt.laws.surface import published_surface

CONFIGS = ROOT / "data" / "paper" / "table09_10_configs.csv"
STEPS = (10_000, 20_000, 50_000, 100_000, 150_000, 196_075)
TOKENS_PER_STEP = 256 * 4096
BRANCH_TOKENS = 10e9
ATTENDED_CONTEXT = 395.0


def published_designs() -> tuple[Design, Design]:
    """Return the 72 sparse endpoints of each architecture, Baseline first, with losses on its surface."""
    with open(CONFIGS, newline="", encoding="utf-8") as stream:
        rows = [row for row in csv.DictReader(stream) if row["sparsity"] != "0"]
    designs = []
    for arch in ("baseline", "smelt"):
        mine = [row for row in rows if row["arch"] == arch]
        flops = np.repeat([_flops_per_token(row) for row in mine], len(STEPS))
        sparsity = np.repeat([float(row["sparsity_measured_pct"]) / 100 for row in mine], len(STEPS))
        tokens = np.tile([step * TOKENS_PER_STEP + BRANCH_TOKENS for step in STEPS], len(mine))
        cell = np.repeat([f"{row['scale']}-s{100 * float(row['sparsity']):.0f}" for row in mine], len(STEPS))
        scale = np.repeat([row["scale"] for row in mine], len(STEPS))
        level = np.repeat([round(100 * float(row["sparsity"])) for row in mine], len(STEPS))
        loss = published_surface(arch)[0].loss(flops, sparsity, tokens)
        designs.append(Design(flops, sparsity, tokens, loss, cell, scale, level))
    return designs[0], designs[1]


def published_truths() -> tuple[Truth, Truth]:
    """Return table 6 as truths: coefficients, and the printed RMSE as noise."""
    return Truth(*published_surface("baseline")), Truth(*published_surface("smelt"))


def _flops_per_token(row: dict[str, str]) -> float:
    """Return F = L_eff (6 (attention + k expert + router) + 12 n_h d_h c), section 3."""
    hidden, experts, top_k = int(row["hidden"]), int(row["experts"]), int(row["top_k"])
    heads, kv_heads = int(row["derived_heads"]), int(row["derived_kv_heads"])
    head_dim, expert_dim = int(row["derived_head_dim"]), int(row["derived_expert_dim"])
    attention = 2 * hidden * (heads + kv_heads) * head_dim
    products = attention + top_k * 3 * hidden * expert_dim + hidden * experts
    return int(row["effective_depth"]) * (6 * products + 12 * heads * head_dim * ATTENDED_CONTEXT)
