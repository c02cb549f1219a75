"""One forward pass, step by step, over the model's public parts; and the places where it can be changed.

This is the only place of the room that knows how a block is put together. Without an `Edit` the stream it
yields is the model's own, bit for bit.
Shape legend: b rows, t tokens, d hidden (in heads: head size), h query heads, g key heads, n = b t,
k chosen experts.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import torch
from torch import Tensor

from smelt.errors import SmeltError
from smelt.model import LoopedLM
from smelt.model.loss import token_losses
from smelt.study import Execution, Geometry


@dataclass(frozen=True)
class Step:
    """Everything that one execution computes.

    Attributes:
        index: place in the schedule.
        stream_btd: residual stream before the execution; `after_btd` behind it.
        normed_btd: input of the attention (X of figure 16).
        q_bthd, k_btgd, v_btgd: queries and keys after normalisation and rotation, values.
        pv_bthd: attention-weighted values of each head.
        output_btd: what the heads write (O), before the loop's factor.
        attention_btd, moe_btd: the two writes as added to the stream.
        moe_normed_btd: input of router and experts.
        weights_nk, experts_nk: the routing decision.
    """

    index: int
    execution: Execution
    stream_btd: Tensor
    normed_btd: Tensor
    q_bthd: Tensor
    k_btgd: Tensor
    v_btgd: Tensor
    pv_bthd: Tensor
    output_btd: Tensor
    attention_btd: Tensor
    moe_normed_btd: Tensor
    weights_nk: Tensor
    experts_nk: Tensor
    moe_btd: Tensor
    after_btd: Tensor

    @property
    def update_btd(self) -> Tensor:
        """The execution's whole update of the stream."""
        return self.attention_btd + self.moe_btd


class Edit:
    """What to change in a pass; this one changes nothing. `execution` says where the pass is."""

    def scales(self, execution: Execution) -> tuple[float, float]:
        """Return the factors on the attention's and the experts' write."""
        return execution.scale, execution.scale

    def qkv(self, execution: Execution, q: Tensor, k: Tensor, v: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        """Return the queries, keys and values to use."""
        return q, k, v

    def heads(self, execution: Execution, pv_bthd: Tensor) -> Tensor:
        """Return the weighted values to write."""
        return pv_bthd

    def routing(self, execution: Execution, weights_nk: Tensor, ids_nk: Tensor) -> tuple[Tensor, Tensor]:
        """Return the routing decision to follow."""
        return weights_nk, ids_nk


NO_EDIT = Edit()


def require_visits(geometry: Geometry) -> None:
    """Refuse an unlooped model where visits are compared."""
    if not geometry.looped:
        raise SmeltError("loop_count is 1; comparing visits needs a looped model, of at least 2")


class Pass:
    """A batch on its way through a model.

    Args:
        inputs_bt, segments_bt, positions_bt: as the model's forward takes them.
        mixed: compute in bfloat16 as training under `bf16-mixed` did; what reads the steps is not affected.
    """

    def __init__(
        self,
        model: LoopedLM,
        inputs_bt: Tensor,
        segments_bt: Tensor | None = None,
        positions_bt: Tensor | None = None,
        mixed: bool = False,
    ) -> None:
        self.model, self.inputs_bt, self.mixed = model, inputs_bt, mixed
        self.schedule = model.config.geometry.schedule()
        self.context = model.context(inputs_bt, segments_bt, positions_bt)

    def steps(self, edit: Edit = NO_EDIT, start: int = 0, stream_btd: Tensor | None = None) -> Iterator[Step]:
        """Yield the executions from `start` on; `stream_btd` is the stream before it."""
        x_btd = self.model.embed(self.inputs_bt) if stream_btd is None else stream_btd
        for index in range(start, len(self.schedule)):
            with self._precision():
                step = self._step(index, x_btd, edit)
            yield step
            x_btd = step.after_btd

    def final(self, edit: Edit = NO_EDIT, start: int = 0, stream_btd: Tensor | None = None) -> Tensor:
        """Return the stream behind the last execution."""
        for step in self.steps(edit, start, stream_btd):  # noqa: B007
            pass
        return step.after_btd

    def logits(self, stream_btd: Tensor) -> Tensor:
        """Return the logits `[b, t, v]` of the stream behind the last execution."""
        with self._precision():
            return self.model.head(self.model.norm(stream_btd))

    def losses(self, stream_btd: Tensor, targets_bt: Tensor) -> Tensor:
        """Return the cross entropy of each target in nats, `[n]` float32, 0 where there is no target."""
        with self._precision():
            normed_btd = self.model.norm(stream_btd)
            return token_losses(normed_btd.flatten(0, 1), self.model.head.weight, targets_bt.flatten())

    def _precision(self) -> torch.autocast:
        return torch.autocast(self.inputs_bt.device.type, torch.bfloat16, enabled=self.mixed)

    def _step(self, index: int, x_btd: Tensor, edit: Edit) -> Step:
        execution = self.schedule[index]
        block = self.model.layers[execution.layer]
        attention_scale, moe_scale = edit.scales(execution)
        normed_btd = block.attention_norm(x_btd)
        qkv = block.attention.qkv(normed_btd, self.context.positions_bt, self.context.rotation)
        q_bthd, k_btgd, v_btgd = edit.qkv(execution, *qkv)
        pv_bthd = edit.heads(execution, block.attention.attend(q_bthd, k_btgd, v_btgd, self.context.mask))
        output_btd = block.attention.write(pv_bthd)
        middle_btd = torch.add(x_btd, output_btd, alpha=attention_scale)
        moe_normed_btd = block.moe_norm(middle_btd)
        inputs_nd = moe_normed_btd.flatten(0, 1)
        weights_nk, ids_nk, _ = block.moe.route(inputs_nd)
        weights_nk, ids_nk = edit.routing(execution, weights_nk, ids_nk)
        experts_btd = block.moe.combine(inputs_nd, weights_nk, ids_nk).view_as(x_btd)
        return Step(
            index=index,
            execution=execution,
            stream_btd=x_btd,
            normed_btd=normed_btd,
            q_bthd=q_bthd,
            k_btgd=k_btgd,
            v_btgd=v_btgd,
            pv_bthd=pv_bthd,
            output_btd=output_btd,
            attention_btd=output_btd * attention_scale,
            moe_normed_btd=moe_normed_btd,
            weights_nk=weights_nk,
            experts_nk=ids_nk,
            moe_btd=experts_btd * moe_scale,
            after_btd=torch.add(middle_btd, experts_btd, alpha=moe_scale),
        )
