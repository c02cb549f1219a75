"""Router and experts of one layer.

Shapes: n tokens, d hidden, e experts, k chosen experts, i expert size.
"""

from __future__ import annotations

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from smelt.model.choice import choose
from smelt.model.config import ModelConfig
from smelt.model.context import Context, RouterRecord
from smelt.model.experts import moe_experts


class MoE(nn.Module):
    """Top-k mixture of SwiGLU experts without capacity limit: no token is dropped."""

    def __init__(self, config: ModelConfig) -> None:
        super().__init__()
        sizes = config.geometry
        self.top_k, self.backend = sizes.top_k, "auto"
        self.router = nn.Linear(sizes.hidden, sizes.experts, bias=False)
        self.w13 = nn.Parameter(torch.empty(sizes.experts, 2 * sizes.expert_dim, sizes.hidden))
        self.w2 = nn.Parameter(torch.empty(sizes.experts, sizes.hidden, sizes.expert_dim))

    def route(self, x_nd: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        """Return weights `[n, k]` (summing to 1), expert ids `[n, k]` and router logits `[n, e]`, in float32.

        The softmax over the chosen logits equals the softmax over all, renormalised to the chosen.
        """
        with torch.autocast(x_nd.device.type, enabled=False):
            dtype = torch.promote_types(x_nd.dtype, torch.float32)
            logits_ne = F.linear(x_nd.to(dtype), self.router.weight.to(dtype))
            ids_nk = choose(logits_ne, self.top_k)
            return logits_ne.gather(1, ids_nk).softmax(-1), ids_nk, logits_ne

    def combine(self, x_nd: Tensor, weights_nk: Tensor, ids_nk: Tensor) -> Tensor:
        """Return the weighted sum of the chosen experts' outputs, `[n, d]`."""
        w13, w2 = self.w13, self.w2
        device = x_nd.device.type
        if torch.is_autocast_enabled(device):
            dtype = torch.get_autocast_dtype(device)
            x_nd, w13, w2 = x_nd.to(dtype), w13.to(dtype), w2.to(dtype)
        return moe_experts(x_nd, w13, w2, weights_nk, ids_nk, self.backend)

    def forward(self, x_btd: Tensor, context: Context) -> Tensor:
        """Return the write of the normed input `[b, t, d]`; append a record where the context keeps them."""
        x_nd = x_btd.flatten(0, 1)
        weights_nk, ids_nk, logits_ne = self.route(x_nd)
        if context.records is not None:
            context.records.append(record(logits_ne, ids_nk))
        return self.combine(x_nd, weights_nk, ids_nk).view_as(x_btd)


def record(logits_ne: Tensor, ids_nk: Tensor) -> RouterRecord:
    """Return what the balance loss and the z-loss need of one routing decision."""
    count_e = torch.zeros(logits_ne.shape[1], dtype=torch.int64, device=ids_nk.device)
    count_e.scatter_add_(0, ids_nk.flatten(), torch.ones_like(ids_nk.flatten()))
    p_ne = logits_ne.softmax(-1)
    # The chosen expert's probability gives the log-sum-exp without a second exponential of every logit.
    first_n1 = ids_nk[:, :1]
    lse_n1 = logits_ne.gather(1, first_n1) - p_ne.gather(1, first_n1).log()
    return RouterRecord(p_ne.mean(0), count_e, lse_n1.square().mean())
