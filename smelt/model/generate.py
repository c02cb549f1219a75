"""Greedy generation with a cache of keys and values.

Shapes: b rows, t tokens, v vocabulary.
"""

from __future__ import annotations

from collections.abc import Sequence

import torch

from smelt.errors import SmeltError
from smelt.model.cache import KVCache
from smelt.model.lm import LoopedLM

# Segment of the padding on the left of a short prompt: no token of a prompt sees it.
_PADDING = -1


@torch.inference_mode()
def generate(
    model: LoopedLM, prompts: Sequence[Sequence[int]], tokens: int, stop: int | None = None
) -> list[list[int]]:
    """Return the most probable continuation of each prompt, token by token, without the prompt.

    Args:
        model: any `LoopedLM`.
        prompts: token ids of each prompt, at least one id each; lengths may differ.
        tokens: most tokens to add.
        stop: id that ends a continuation; it is not part of the result.

    Raises:
        SmeltError: there is no prompt, one is empty, or `tokens` is below 1.
    """
    if not prompts or not all(prompts):
        raise SmeltError("every prompt needs at least one token")
    if tokens < 1:
        raise SmeltError(f"tokens is {tokens}; it must be at least 1")
    device, width = model.head.weight.device, max(map(len, prompts))
    inputs_bt = torch.zeros(len(prompts), width, dtype=torch.int64, device=device)
    segments_bt = torch.full_like(inputs_bt, _PADDING)
    for row, prompt in enumerate(prompts):
        inputs_bt[row, width - len(prompt) :] = torch.tensor(prompt, device=device)
        segments_bt[row, width - len(prompt) :] = 0
    cache = KVCache(model.config, len(prompts), width + tokens, model.head.weight.dtype, device)
    added, done_b = [], torch.zeros(len(prompts), dtype=torch.bool, device=device)
    for _ in range(tokens):
        next_b1 = model(inputs_bt, segments_bt, cache=cache)[:, -1:].argmax(-1)
        added.append(next_b1)
        done_b |= next_b1[:, 0] == stop if stop is not None else False
        if done_b.all():
            break
        inputs_bt, segments_bt = next_b1, torch.zeros_like(next_b1)
    rows = torch.cat(added, 1).tolist()
    return [row[: row.index(stop)] if stop in row else row for row in rows]
