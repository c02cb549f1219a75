"""The choice of the k most probable experts of each token.

Shapes: n tokens, e experts, k chosen experts.
"""

from __future__ import annotations

import numpy as np
import torch
from torch import Tensor

# NumPy's sort of short rows, up to 256 keys, is a network of vector operations.
GROUP = 128


def choose(logits_ne: Tensor, k: int) -> Tensor:
    """Return the ids of the k largest logits of each token, `[n, k]` int64, largest first; no gradient.

    On a processor equal logits go to the expert of the higher id where they are positive, else of the lower.
    """
    if logits_ne.device.type == "cpu" and logits_ne.dtype == torch.float32:
        return _choose(logits_ne.detach(), k)
    return logits_ne.detach().topk(k, dim=-1).indices


@torch.library.custom_op("smelt::choose", mutates_args=())
def _choose(logits_ne: Tensor, k: int) -> Tensor:
    # PyTorch's top-k of many short rows is slow, NumPy's sort of them is vectorised. A float32 leaves the
    # low 29 bits of a float64 free: the expert's id goes there and is sorted along.
    bits = (1 << 29) - 1
    ids_e = torch.arange(logits_ne.shape[1])
    key_ne = logits_ne.double().view(torch.int64).bitwise_or_(ids_e).numpy().view(np.float64)
    largest_nk = _largest(key_ne, k).view(np.int64)
    return torch.from_numpy(largest_nk & bits)


def _largest(key_ne: np.ndarray, k: int) -> np.ndarray:
    """Return the k largest of each row, largest first; the rows of `key_ne` are sorted in part."""
    n, e = key_ne.shape
    if e <= 2 * GROUP or k >= GROUP:
        key_ne.sort(axis=1)
        return np.ascontiguousarray(key_ne[:, : -k - 1 : -1])
    whole = e - e % GROUP
    key_ngs = np.ascontiguousarray(key_ne[:, :whole]).reshape(n, -1, GROUP)
    key_ngs.sort(axis=2)
    best = [key_ngs[:, :, -k:].reshape(n, -1), key_ne[:, whole:]]
    return _largest(np.concatenate(best, axis=1), k)


@_choose.register_fake
def _(logits_ne, k):
    return logits_ne.new_empty(logits_ne.shape[0], k, dtype=torch.int64)
