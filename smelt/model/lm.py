"""The looped language model: blocks executed in the order of the geometry's schedule.

Shapes: b rows, t tokens, d hidden, v vocabulary, x executions, e experts, n = b t.
"""

from __future__ import annotations

import functools
from dataclasses import dataclass

import torch
from torch import Tensor, nn
from torch.utils.checkpoint import checkpoint, create_selective_checkpoint_contexts

from smelt.model.attention import Attention
from smelt.model.cache import KVCache
from smelt.model.config import ModelConfig
from smelt.model.context import Context, RouterRecord, attention_mask, cached_mask, rotary_factors
from smelt.model.init import init_weights
from smelt.model.loss import IGNORE, auxiliary_losses, cross_entropy, token_losses
from smelt.model.moe import MoE
from smelt.model.norm import RMSNorm


@dataclass
class Losses:
    """What a training step needs.

    Attributes:
        ce: mean cross entropy over the targets of this call, nats.
        balance: balance loss, mean over executions; 1 where every expert gets the same load.
        z: router z-loss, mean over executions.
        counts_xe: token slots each expert received in each execution, summed over ranks.
        targets: how many positions of this call have a target.
    """

    ce: Tensor
    balance: Tensor
    z: Tensor
    counts_xe: Tensor
    targets: Tensor


class Block(nn.Module):
    """One physical layer: attention, then experts, each pre-normed (section 1)."""

    def __init__(self, config: ModelConfig) -> None:
        super().__init__()
        hidden = config.geometry.hidden
        self.attention_norm = RMSNorm(hidden)
        self.attention = Attention(config)
        self.moe_norm = RMSNorm(hidden)
        self.moe = MoE(config)

    def forward(self, x_btd: Tensor, context: Context, scale: float) -> Tensor:
        """Return the residual stream after both writes, each multiplied by `scale`."""
        x_btd = torch.add(x_btd, self.attention(self.attention_norm(x_btd), context), alpha=scale)
        return torch.add(x_btd, self.moe(self.moe_norm(x_btd), context), alpha=scale)


def _visit(layer: Block, x_btd: Tensor, context: Context, scale: float) -> tuple[Tensor, RouterRecord]:
    # Its own list makes a visit free of side effects, so that computing it again counts no token twice.
    records: list[RouterRecord] = []
    x_btd = layer(x_btd, context.recording(records), scale)
    return x_btd, records[0]


def _checkpointed_visit(
    layer: Block, x_btd: Tensor, context: Context, scale: float
) -> tuple[Tensor, RouterRecord]:
    keep = functools.partial(
        create_selective_checkpoint_contexts, [torch.ops.aten.topk.default, torch.ops.smelt.choose.default]
    )
    return checkpoint(_visit, layer, x_btd, context, scale, use_reentrant=False, context_fn=keep)


class LoopedLM(nn.Module):
    """Decoder-only mixture-of-experts language model with a looped span (section 1).

    Weights are float32 and a function of the configuration and the seed (`smelt.model.init`); on the meta
    device there are none. Set `checkpointing` to keep only each execution's input and its choice of experts
    for the backward pass, and to compute the rest again.
    """

    def __init__(self, config: ModelConfig, seed: int = 0, device: torch.device | str | None = None) -> None:
        super().__init__()
        self.config = config
        self.checkpointing = False
        sizes = config.geometry
        # Created without values first: PyTorch's own initialisation would draw from the global generator.
        with torch.device("meta"):
            self.embed = nn.Embedding(config.vocab, sizes.hidden)
            self.layers = nn.ModuleList(Block(config) for _ in range(sizes.layers))
            self.norm = RMSNorm(sizes.hidden)
            self.head = nn.Linear(sizes.hidden, config.vocab, bias=False)
        if device is None or torch.device(device).type != "meta":
            self.to_empty(device=device or "cpu")
            init_weights(self, seed)

    def context(
        self,
        inputs_bt: Tensor,
        segments_bt: Tensor | None = None,
        positions_bt: Tensor | None = None,
        cache: KVCache | None = None,
    ) -> Context:
        """Return what all layers share in a pass over `inputs_bt`; reserve the next positions of a cache."""
        b, t = inputs_bt.shape
        start = 0 if cache is None else cache.begin(b, t, segments_bt)
        if positions_bt is None:
            positions_bt = torch.arange(start, start + t, device=inputs_bt.device)[None]
        rotation = rotary_factors(positions_bt, self.config.geometry.head_dim, self.config.rope_base)
        mask = attention_mask(inputs_bt, segments_bt) if cache is None else cached_mask(cache, segments_bt, t)
        return Context(positions_bt, rotation, mask, cache)

    def hidden(self, inputs_bt: Tensor, context: Context) -> tuple[Tensor, list[RouterRecord]]:
        """Return the normed last hidden state `[b, t, d]` and a record of each execution's routing."""
        records = []
        visit = _checkpointed_visit if self.checkpointing and torch.is_grad_enabled() else _visit
        x_btd = self.embed(inputs_bt)
        for index, execution in enumerate(self.config.geometry.schedule()):
            layer = self.layers[execution.layer]
            x_btd, record = visit(layer, x_btd, context.at(index), execution.scale)
            records.append(record)
        return self.norm(x_btd), records

    def forward(
        self,
        inputs_bt: Tensor,
        segments_bt: Tensor | None = None,
        positions_bt: Tensor | None = None,
        cache: KVCache | None = None,
    ) -> Tensor:
        """Return logits `[b, t, v]`.

        Args:
            inputs_bt: token ids.
            segments_bt: document of each token; a token sees only earlier tokens of its own. One document
                a row when None.
            positions_bt: position in the document; counted from the row's (or the cache's) start when None.
            cache: keys and values of earlier tokens, extended by this call.
        """
        context = self.context(inputs_bt, segments_bt, positions_bt, cache)
        return self.head(self.hidden(inputs_bt, context)[0])

    def loss(
        self,
        inputs_bt: Tensor,
        targets_bt: Tensor,
        segments_bt: Tensor | None = None,
        positions_bt: Tensor | None = None,
    ) -> Losses:
        """Return the losses of a batch; `targets_bt` is -100 where there is nothing to predict.

        The logits are never held as a whole. Where several ranks train together, all of them must call this.
        """
        context = self.context(inputs_bt, segments_bt, positions_bt)
        x_btd, records = self.hidden(inputs_bt, context)
        ce = cross_entropy(x_btd.flatten(0, 1), self.head.weight, targets_bt.flatten())
        balance, z, counts_xe = auxiliary_losses(records, self.config.geometry)
        return Losses(ce, balance, z, counts_xe, (targets_bt != IGNORE).sum())

    @torch.no_grad()
    def token_losses(
        self,
        inputs_bt: Tensor,
        targets_bt: Tensor,
        segments_bt: Tensor | None = None,
        positions_bt: Tensor | None = None,
    ) -> Tensor:
        """Return the cross entropy of each target in nats, `[b, t]` float32, 0 where there is no target."""
        context = self.context(inputs_bt, segments_bt, positions_bt)
        x_btd, _ = self.hidden(inputs_bt, context)
        return token_losses(x_btd.flatten(0, 1), self.head.weight, targets_bt.flatten()).view_as(targets_bt)
