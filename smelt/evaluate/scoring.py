"""Losses of answers under a model, one batched pass over trees of sequences.

Shape suffixes: b rows, t and s positions, d hidden, n scored tokens, v vocabulary.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Sequence

import numpy as np
import torch
from torch import Tensor
from torch.nn import functional as F

from smelt.evaluate.sequences import Scored
from smelt.evaluate.trees import TreeBatch, batches, plant
from smelt.model import LoopedLM
from smelt.model.context import Context
from smelt.study import RunSpec

# Called after each forward pass with the number of cases and of input tokens it has done.
Progress = Callable[[int, int], None]

# Input tokens of one forward pass: small models are fastest when a layer's activations stay in cache.
BATCH_TOKENS = {"cpu": 4096, "cuda": 32768}
# Elements of one block of logits.
_LOGITS = 1 << 22


@dataclasses.dataclass(frozen=True)
class AnswerLosses:
    """What one pass yields for each sequence, in the order given.

    Attributes:
        nll: sum over the answer's tokens of -log p, nats, float64.
        tokens: how many answer tokens.
        greedy: whether every answer token is the most likely one at its place.
    """

    nll: np.ndarray
    tokens: np.ndarray
    greedy: np.ndarray


def computes_in_half(spec: RunSpec, device: str) -> bool:
    """Return whether the layers run in bfloat16: as in the run's training."""
    return spec.training.precision == "bf16" or (spec.training.precision == "auto" and device == "cuda")


def hidden_states(model: LoopedLM, inputs_bt: Tensor, context: Context, half: bool) -> Tensor:
    """Return the normed last hidden states `[b, t, d]`, float32; no routing record is made."""
    with torch.autocast(inputs_bt.device.type, torch.bfloat16, enabled=half):
        x_btd = model.embed(inputs_bt)
        for index, execution in enumerate(model.config.geometry.schedule()):
            x_btd = model.layers[execution.layer](x_btd, context.at(index), execution.scale)
        return model.norm(x_btd).float()


def tree_mask(branches_bt: Tensor) -> Tensor:
    """Return `[b, 1, t, s]`, True where position t sees position s: s <= t, in the trunk or on t's branch."""
    t = branches_bt.shape[1]
    index_t = torch.arange(t, device=branches_bt.device)
    mine_bts = branches_bt[:, :, None] == branches_bt[:, None, :]
    shared_bts = (branches_bt == 0)[:, None, :]
    return ((mine_bts | shared_bts) & (index_t[:, None] >= index_t[None, :])).unsqueeze(1)


@torch.inference_mode()
def score(
    model: LoopedLM,
    cases: Sequence[Sequence[Scored]],
    pad: int,
    batch_tokens: int | None = None,
    half: bool = False,
    progress: Progress = lambda prompts, tokens: None,
) -> AnswerLosses:
    """Score the answers of all cases; a case is the sequences of one item, which share their beginning.

    Args:
        pad: id to fill rows with; what it is changes nothing.
        batch_tokens: input tokens of one forward pass; changes results by rounding only.
        half: run the layers in bfloat16; logits and losses are float32 in any case.
    """
    device = model.embed.weight.device
    trees = [plant(case) for case in cases]
    answers = [answer for tree in trees for answer in tree.targets]
    nll = np.zeros(len(answers))
    greedy = np.ones(len(answers), bool)
    for batch in batches(trees, batch_tokens or BATCH_TOKENS[device.type], pad):
        losses_n, hits_n = _score_batch(model, batch, device, half)
        np.add.at(nll, batch.owners, losses_n)
        np.logical_and.at(greedy, batch.owners, hits_n)
        progress(len(batch.ids_bt), int((batch.branches_bt >= 0).sum()))
    return AnswerLosses(nll, np.array([len(answer) for answer in answers]), greedy)


def _score_batch(
    model: LoopedLM, batch: TreeBatch, device: torch.device, half: bool
) -> tuple[np.ndarray, np.ndarray]:
    inputs_bt, positions_bt, branches_bt = (
        torch.from_numpy(array).to(device) for array in (batch.ids_bt, batch.positions_bt, batch.branches_bt)
    )
    context = model.context(inputs_bt, positions_bt=positions_bt)
    # A batch without branches is plain causal attention: padding is on the right.
    if branches_bt.max() > 0:
        context = dataclasses.replace(context, mask=tree_mask(branches_bt))
    x_btd = hidden_states(model, inputs_bt, context, half)
    # Options with one token each are predicted at the same place: its logits are made once.
    places, which_n = np.unique(batch.rows * batch.ids_bt.shape[1] + batch.columns, return_inverse=True)
    x_nd = x_btd.flatten(0, 1)[torch.from_numpy(places).to(device)]
    block = max(1, _LOGITS // model.config.vocab)
    losses_n, hits_n = np.empty(len(which_n)), np.empty(len(which_n), bool)
    for start in range(0, len(places), block):
        mine = np.flatnonzero((which_n >= start) & (which_n < start + block))
        logits_nv = model.head(x_nd[start : start + block]).float()
        which = torch.from_numpy(which_n[mine] - start).to(device)
        targets = torch.from_numpy(batch.targets[mine]).to(device)
        log_p_nv = F.log_softmax(logits_nv, -1)
        losses_n[mine] = -log_p_nv[which, targets].double().cpu().numpy()
        hits_n[mine] = (logits_nv.argmax(-1)[which] == targets).cpu().numpy()
    return losses_n, hits_n
