"""The verdicts on the paper's claims as the report shows them."""

from __future__ import annotations

import pandas as pd

from smelt.report.data import Data

VERDICTS = ("reproduced", "contradicted", "inconclusive", "not measured")
MARKS = dict(zip(VERDICTS, "✓✗?–", strict=True))


def ledger(data: Data) -> pd.DataFrame:
    """Return the claims in the order of their numbers; raise NotMeasured where there are none."""
    data.need("claims")
    return data.frame("SELECT * FROM claims ORDER BY number")
