"""The loss surface L(F, S, D) = E + A (1-S)^b / F^a + K / D^c (docs/paper.md section 5)."""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np

from smelt.budget.power import LAW, published_fits
from smelt.errors import SmeltError

PARAMETERS = ("E", "A", "K", "a", "b", "c")


@dataclass(frozen=True)
class Surface:
    """The six coefficients of one architecture, or arrays of them (one entry a bootstrap draw).

    `E` is in nats per token, `F` in training FLOPs per token, `D` in tokens; `S` is a fraction.
    """

    E: np.ndarray
    A: np.ndarray
    K: np.ndarray
    a: np.ndarray
    b: np.ndarray
    c: np.ndarray

    def loss(self, flops: np.ndarray, sparsity: np.ndarray, tokens: np.ndarray) -> np.ndarray:
        """Return the predicted loss in nats per token; arguments and coefficients broadcast."""
        # Powers of 1e9 and more in logarithms: a large exponent must not overflow before it is divided.
        size = np.exp(
            np.log(self.A)
            + self.b * np.log1p(-np.asarray(sparsity, dtype=float))
            - self.a * np.log(np.asarray(flops, dtype=float))
        )
        data = np.exp(np.log(self.K) - self.c * np.log(np.asarray(tokens, dtype=float)))
        return self.E + size + data

    @property
    def gamma(self) -> np.ndarray:
        """Exponent of the compute-optimal frontier, ac / (a + c)."""
        return self.a * self.c / (self.a + self.c)

    def columns(self) -> dict[str, np.ndarray]:
        """Return the coefficients by name."""
        return {name: getattr(self, name) for name in PARAMETERS}

    def with_columns(self, **values: np.ndarray) -> Surface:
        """Return a copy with some coefficients replaced."""
        return replace(self, **values)

    def draw(self, index: int | slice | np.ndarray) -> Surface:
        """Return the coefficients at `index` of arrays of draws."""
        return Surface(**{name: value[index] for name, value in self.columns().items()})


def published_surface(arch: str) -> tuple[Surface, float]:
    """Return the printed coefficients of table 6 and the printed RMSE in nats for `baseline` or `smelt`."""
    fits = published_fits()
    if arch not in fits:
        raise SmeltError(f"{LAW.name} has no arch {arch!r}; it has {', '.join(fits)}")
    return Surface(**{name: fits[arch][name] for name in PARAMETERS}), fits[arch]["rmse"]
