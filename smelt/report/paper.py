"""The paper's printed numbers (`data/paper/*.csv`)."""

from __future__ import annotations

import functools

import pandas as pd

from smelt.files import ROOT


@functools.cache
def published(name: str) -> pd.DataFrame:
    """Return a published table, such as `table03_loop_span`."""
    return pd.read_csv(ROOT / "data" / "paper" / f"{name}.csv")
