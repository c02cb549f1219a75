"""What each parameter update of a run does: a pure function of its number (no torch import).

A run is one list of updates, `Itinerary`: the trunk up to the first horizon, the branch that forks there,
the trunk up to the second horizon, its branch, and so on (section 2: warmup-stable-decay). Whatever a
resumed run needs to know beside weights and optimiser state follows from how many of them are done.
"""

from __future__ import annotations

import math
from bisect import bisect_right
from collections.abc import Sequence
from dataclasses import dataclass

from smelt.study import RunSpec

TRUNK = "trunk"
DECAY = "decay"


@dataclass(frozen=True)
class Update:
    """One parameter update.

    Attributes:
        phase: `trunk` or `decay`.
        horizon: 0 in the trunk, the trunk step of the fork in a branch.
        index: which batch of the phase it reads, 0-based; every branch reads the same ones.
        step: updates behind the model afterwards, trunk and branch together.
        tokens: tokens behind the model afterwards, trunk and branch together.
        lr: learning rate.
        forks: whether a branch forks from the state after it.
        ends: whether it is the last of its branch.
    """

    phase: str
    horizon: int
    index: int
    step: int
    tokens: int
    lr: float
    forks: bool
    ends: bool


def trunk_lr(peak: float, warmup_steps: int, step: int) -> float:
    """Return the rate of trunk update `step` (from 1): linear warm-up reaching `peak` at `warmup_steps`."""
    return peak * min(1.0, step / warmup_steps)


def decay_lr(start: float, final: float, decay_steps: int, step: int) -> float:
    """Return the rate of branch update `step` (from 1): a cosine from `start` towards `final`.

    The first update still has the rate of the fork and the one after the last would have `final`, so that
    with `final == 0` no update is wasted.
    """
    return final + (start - final) * 0.5 * (1.0 + math.cos(math.pi * (step - 1) / decay_steps))


class Itinerary(Sequence[Update]):
    """All updates of a run in the order in which they are made."""

    def __init__(self, spec: RunSpec) -> None:
        self._training = spec.training
        self._lr = spec.lr
        self._tokens_per_update = spec.training.batch * spec.corpus.context
        self._starts = [0]
        for start, horizon in zip((0, *self.horizons), self.horizons, strict=False):
            self._starts += [self._starts[-1] + horizon - start]
            self._starts += [self._starts[-1] + self._training.decay_steps]

    @property
    def horizons(self) -> tuple[int, ...]:
        """Trunk steps at which a branch forks, increasing."""
        return self._training.horizons

    @property
    def tokens_per_update(self) -> int:
        """Tokens of the global batch."""
        return self._tokens_per_update

    def __len__(self) -> int:
        return self._starts[-1]

    def __getitem__(self, number: int) -> Update:
        if not 0 <= number < len(self):
            raise IndexError(f"update {number} of {len(self)}")
        segment = bisect_right(self._starts, number) - 1
        offset = number - self._starts[segment]
        branch = segment % 2 == 1
        return self._decay(segment // 2, offset) if branch else self._trunk(segment // 2, offset)

    def fork_of(self, done: int) -> int | None:
        """Return how many updates precede the branch in which `done` updates end, None outside a branch.

        A state after a branch's last update still belongs to it: the trunk goes on from the fork.
        """
        if done == 0:
            return None
        segment = bisect_right(self._starts, done - 1) - 1
        return self._starts[segment] if segment % 2 else None

    def _trunk(self, fork: int, offset: int) -> Update:
        step = (self.horizons[fork - 1] if fork else 0) + offset + 1
        return Update(
            phase=TRUNK,
            horizon=0,
            index=step - 1,
            step=step,
            tokens=step * self._tokens_per_update,
            lr=trunk_lr(self._lr, self._training.warmup_steps, step),
            forks=step == self.horizons[fork],
            ends=False,
        )

    def _decay(self, fork: int, offset: int) -> Update:
        training, horizon = self._training, self.horizons[fork]
        start = trunk_lr(self._lr, training.warmup_steps, horizon)
        final = training.final_lr_fraction * start
        step = horizon + offset + 1
        return Update(
            phase=DECAY,
            horizon=horizon,
            index=offset,
            step=step,
            tokens=step * self._tokens_per_update,
            lr=decay_lr(start, final, training.decay_steps, offset + 1),
            forks=False,
            ends=offset + 1 == training.decay_steps,
        )
