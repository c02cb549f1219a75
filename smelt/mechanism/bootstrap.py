"""Streaming sums with a bootstrap over documents, in memory that does not grow with the sample.

A Poisson bootstrap: in every draw each document counts Poisson(1) times. The weights are a function of the
document alone, so a document that is spread over several rows or batches is drawn as a whole.
Shape legend: n tokens, c columns of one statistic, w draws + 1 (row 0 is the sample itself), g documents.
"""

from __future__ import annotations

from collections.abc import Hashable

import numpy as np
import torch
from torch import Tensor

from smelt.errors import SmeltError

LOW, HIGH = 2.5, 97.5


class DocumentSums:
    """Weighted sums of named per-token statistics.

    Args:
        draws: bootstrap draws; 0 gives values without intervals.
        seed: of the document weights.
    """

    def __init__(self, draws: int, seed: int = 0) -> None:
        self.draws, self.seed = draws, seed
        self.documents: set[int] = set()
        self._sums: dict[Hashable, np.ndarray] = {}
        self._counts: dict[Hashable, np.ndarray] = {}

    def begin(self, documents_n: Tensor) -> None:
        """Announce the document of each token of the batch whose statistics follow; below 0 for padding."""
        ids_g, group_n = torch.unique(documents_n, return_inverse=True)
        ids = ids_g.tolist()
        self.documents.update(i for i in ids if i >= 0)
        # A product adds up in a fixed order; index_add_ on a GPU does not.
        self._member_gn = (group_n == torch.arange(len(ids), device=group_n.device)[:, None]).double()
        self._weights_wg = np.stack([self._document_weights(i) for i in ids], axis=1)

    def add(self, name: Hashable, values_nc: Tensor, valid_n: Tensor | None = None) -> None:
        """Add one value a token and column; tokens outside `valid_n` are left out of sum and count."""
        values_nc = values_nc.reshape(self._member_gn.shape[1], -1).double()
        if valid_n is None:
            counts_g = self._member_gn.sum(1)
        else:
            values_nc = torch.where(valid_n[:, None], values_nc, 0)
            counts_g = self._member_gn @ valid_n.double()
        sums_gc = self._member_gn @ values_nc
        self._accumulate(self._sums, name, self._weights_wg @ sums_gc.cpu().numpy())
        self._accumulate(self._counts, name, self._weights_wg @ counts_g.cpu().numpy())

    def mean(self, name: Hashable) -> np.ndarray:
        """Return the mean over valid tokens, `[w, c]`; NaN in draws without a token."""
        if not self._counts[name][0]:
            raise SmeltError(
                f"no token of the sample has a value of {name}: mechanism.tokens is too small or the "
                "documents are too short"
            )
        counts_w1 = self._counts[name][:, None]
        return np.divide(
            self._sums[name], counts_w1, where=counts_w1 > 0, out=np.full_like(self._sums[name], np.nan)
        )

    def count(self, name: Hashable) -> int:
        """Return how many tokens were valid for the statistic `name`."""
        return int(self._counts[name][0]) if name in self._counts else 0

    def _document_weights(self, document: int) -> np.ndarray:
        if document < 0:
            return np.zeros(self.draws + 1)
        rng = np.random.default_rng([self.seed, document])
        return np.concatenate([[1.0], rng.poisson(1.0, self.draws)])

    @staticmethod
    def _accumulate(store: dict[Hashable, np.ndarray], name: Hashable, value: np.ndarray) -> None:
        if name in store:
            store[name] += value
        else:
            store[name] = value


def interval(values_w: np.ndarray) -> tuple[float, float | None, float | None]:
    """Return the value (row 0) and the 2.5% and 97.5% points of the draws; None without draws."""
    draws = values_w[1:][np.isfinite(values_w[1:])]
    if len(draws) < 2:
        return float(values_w[0]), None, None
    low, high = np.percentile(draws, [LOW, HIGH])
    return float(values_w[0]), float(low), float(high)


def fields(values_w: np.ndarray, value: str, prefix: str = "") -> dict[str, float | None]:
    """Return the columns `value`, `<prefix>low` and `<prefix>high` of a result table."""
    point, low, high = interval(values_w)
    return {value: point, f"{prefix}low": low, f"{prefix}high": high}


def diagnostic(
    run: str, name: str, value_w: np.ndarray, reference_w: np.ndarray | None = None
) -> dict[str, object]:
    """Return a row of `diagnostics`: a number of the whole run, what it is compared with, and the difference.

    The difference is taken draw by draw, so that its interval is that of a paired comparison.
    """
    row = {"run": run, "diagnostic": name, **fields(value_w, "value")}
    if reference_w is None:
        for prefix in ("reference", "difference"):
            row |= {prefix: None, f"{prefix}_low": None, f"{prefix}_high": None}
        return row
    row |= fields(reference_w, "reference", "reference_")
    return row | fields(value_w - reference_w, "difference", "difference_")
