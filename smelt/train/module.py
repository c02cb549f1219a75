"""One update: losses of the pieces of a batch, backward, clipping, AdamW, and what is logged of it.

Shape suffixes: b sequences, t positions, x executed layers, e experts.
"""

from __future__ import annotations

import contextlib
import time
from collections.abc import Iterator
from typing import Any

import torch
from torch import Tensor, nn

from smelt.errors import SmeltError
from smelt.study import RunSpec
from smelt.train.lean import LightningModule
from smelt.train.log import Row
from smelt.train.schedule import Itinerary
from smelt.train.sharding import shard, whole

# The load of an expert is measured over about 20 updates: an update before the last counts this much less.
_MEMORY = 0.95


def parameter_groups(model: nn.Module, weight_decay: float) -> list[dict[str, Any]]:
    """Split parameters: matrices (embedding and stacks of experts included) decay, vectors do not."""
    matrices = [parameter for parameter in model.parameters() if parameter.ndim > 1]
    vectors = [parameter for parameter in model.parameters() if parameter.ndim <= 1]
    return [
        {"params": matrices, "weight_decay": weight_decay},
        {"params": vectors, "weight_decay": 0.0},
    ]


class TrainingModule(LightningModule):
    """The model under training.

    Gradients are those of the mean over all targets of the global batch, whatever the number of processes
    and pieces: each piece's mean is weighted by its share of the targets.

    Attributes:
        sharded: whether parameters are spread over the processes; the model is on the meta device then.
        slots_xe: token slots of each expert in each execution, summed with weights that fade with age.
        rows: one `Row` per update made, in order.
        agreed: sums over all processes of the flags that `flags` returned before the update.
        flags: two numbers that this process wants to tell the others before each update.
    """

    def __init__(
        self, model: nn.Module, spec: RunSpec, itinerary: Itinerary, flush_every: int, sharded: bool
    ) -> None:
        super().__init__()
        self.automatic_optimization = False
        self.sharded = sharded
        self.model = model
        shape = (spec.geometry.effective_layers, spec.geometry.experts)
        self.register_buffer("slots_xe", torch.zeros(shape), persistent=False)
        self.rows: list[Row] = []
        self.agreed = (0, 0)
        self.flags = lambda: (0, 0)
        self._seed = spec.point.seed
        self._training = spec.training
        self._itinerary = itinerary
        self._flush_every = flush_every
        self._pending: list[tuple[int, Tensor]] = []
        self._mark = 0.0

    def configure_model(self) -> None:
        """Spread the parameters over the processes where the plan says so."""
        if self.sharded:
            shard(self.model, self.device_mesh["data_parallel"], self._seed)

    def configure_optimizers(self) -> torch.optim.Optimizer:
        """Return AdamW with decoupled weight decay; its rate is set before every update."""
        training = self._training
        return torch.optim.AdamW(
            parameter_groups(self.model, training.weight_decay),
            lr=0.0,
            betas=(training.beta1, training.beta2),
            fused=True,
        )

    def training_step(self, batch: Any, batch_index: int) -> None:
        """Make the update that `batch` (an item of `Updates`) belongs to."""
        number, targets, pieces = batch
        total, *self.agreed = self._sum([targets, *self.flags()])
        optimizer = self.optimizers()
        for group in optimizer.param_groups:
            group["lr"] = self._itinerary[number].lr
        scalars, counts_xe = self._backward(pieces, total)
        norm = nn.utils.clip_grad_norm_(self.model.parameters(), self._training.clip_norm)
        optimizer.step()
        optimizer.zero_grad()
        self.slots_xe.mul_(_MEMORY).add_(counts_xe)
        loads = expert_loads(self.slots_xe)
        self._pending.append((number, torch.stack([*scalars, *loads, whole(norm)])))
        if len(self._pending) == self._flush_every:
            self.flush()

    def _backward(self, pieces: list[dict[str, Tensor]], total: int) -> tuple[list[Tensor], Tensor]:
        """Accumulate gradients; return this process's part of loss and balance loss, and the counts."""
        world, training = self.trainer.world_size, self._training
        parts = 1.0 / (world * len(pieces))
        losses = balances = counts = 0
        for left, piece in zip(reversed(range(len(pieces))), pieces, strict=True):
            out = self.model.loss(**piece)
            weight = (piece["targets_bt"] >= 0).sum() / total
            auxiliary = training.balance_loss * out.balance + training.z_loss * out.z
            # The processes' gradients are averaged afterwards, hence the factor.
            with self._gradients_exchanged(after=left == 0):
                self.manual_backward(world * (weight * out.ce + parts * auxiliary))
            losses += (weight * out.ce).detach()
            balances += (parts * out.balance).detach()
            counts += out.counts_xe
        return [losses, balances], counts

    @contextlib.contextmanager
    def _gradients_exchanged(self, after: bool) -> Iterator[None]:
        """Let the processes exchange gradients only after the last piece of a batch."""
        if self.sharded:
            self.model.set_requires_gradient_sync(after)
        quiet = not after and self.trainer.world_size > 1 and not self.sharded
        with self.trainer.strategy.block_backward_sync() if quiet else contextlib.nullcontext():
            yield

    def _sum(self, values: list[int]) -> list[int]:
        if self.trainer.world_size == 1:
            return values
        tensor = torch.tensor(values, dtype=torch.int64, device=self.device)
        return self.trainer.strategy.reduce(tensor, reduce_op="sum").tolist()

    def start_clock(self) -> None:
        """Count the time from here on towards the next updates."""
        self._mark = time.perf_counter()

    def flush(self) -> None:
        """Turn pending device values into rows.

        Raises:
            SmeltError: the loss or the gradient norm is not finite.
        """
        if not self._pending:
            return
        numbers, scalars = zip(*self._pending, strict=True)
        self._pending.clear()
        values_sn = torch.stack(scalars)
        if self.trainer.world_size > 1:
            # Only the losses are this process's part; loads and norm are those of all processes already.
            values_sn[:, :2] = self.trainer.strategy.reduce(values_sn[:, :2].clone(), reduce_op="sum")
        values = values_sn.tolist()
        seconds = (time.perf_counter() - self._mark) / len(values)
        self.start_clock()
        for number, value in zip(numbers, values, strict=True):
            row = Row(number, *value, seconds)
            if not row.finite():
                update = self._itinerary[number]
                raise SmeltError(
                    f"training diverged at step {update.step} ({update.phase}): loss {row.loss}, gradient "
                    f"norm {row.grad_norm}; lower training.lr or training.clip_norm"
                )
            self.rows.append(row)


def expert_loads(slots_xe: Tensor) -> tuple[Tensor, Tensor]:
    """Return the smallest and the largest load of an expert in any executed layer.

    A load is the tokens routed to an expert relative to an equal share; 1 is perfect balance.
    """
    loads_xe = slots_xe / slots_xe.mean(-1, keepdim=True)
    return loads_xe.amin(), loads_xe.amax()


def state_tensors(
    model: nn.Module, optimizer: torch.optim.Optimizer
) -> Iterator[tuple[str, nn.Parameter, dict[str, Tensor]]]:
    """Yield name, parameter and optimiser state of every parameter, creating the state where it is absent."""
    for name, parameter in model.named_parameters():
        state = optimizer.state[parameter]
        if not state:
            state["step"] = torch.zeros((), dtype=torch.float32, device=parameter.device)
            state["exp_avg"] = torch.zeros_like(parameter, requires_grad=False)
            state["exp_avg_sq"] = torch.zeros_like(parameter, requires_grad=False)
        yield name, parameter, state
