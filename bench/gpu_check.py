"""Check and time the model on a CUDA device, in under five minutes: `python -m bench.gpu_check`.

Every backend of the experts, flex attention and the chunked cross entropy are held to plain float64 code, and
the capture of the second pass to that of the processor; then one layer of the 600M scale and 20 full steps
are timed at sequence 4096 in mixed bf16, and the model FLOPs utilisation (MFU) is compared with the goal.
FLOPs are those of the budgets: executed layers, no head.
The status is 1 where a check fails or the MFU is below what is acceptable, 0 on a machine without a device.
"""

from __future__ import annotations

import argparse
import importlib.util
import statistics
import sys
import time
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import torch
from torch import Tensor
from torch.nn import functional as F

from bench.gpu_capture import check_capture
from smelt.budget.accounting import flops_per_token
from smelt.budget.plan import MACHINES
from smelt.files import ROOT, write_json
from smelt.model import LoopedLM, ModelConfig
from smelt.model.context import segment_block_mask
from smelt.model.experts import moe_experts, reference
from smelt.model.loss import cross_entropy
from smelt.study import Geometry

LARGE = Geometry(1792, 20, 14, 2, 128, 64, 8, 600)
OUT = ROOT / "results" / "bench" / "gpu_check.json"
VOCAB, CONTEXT, ROWS, DOCUMENT = 65536, 4096, 8, 790
STEPS, WARM_UP = 20, 5
# Share of the device's peak: below the first a change is rejected, the others are the goals.
REJECT, GOAL, STRETCH = 0.20, 0.30, 0.40
# Largest error of a result or gradient, relative to its largest element, in bf16.
TOLERANCE = 0.03


def errors_of(function: Callable, exact: Callable, tensors: list[Tensor]) -> float:
    """Return the largest relative error of a result and its gradients against float64."""
    generator = torch.Generator(tensors[0].device).manual_seed(1)
    worst, grad, results = 0.0, None, []
    for call, dtype in ((exact, torch.float64), (function, tensors[0].dtype)):
        leaves = [tensor.to(dtype).requires_grad_() for tensor in tensors]
        out = call(*leaves)
        if grad is None:
            grad = torch.randn(out.shape, generator=generator, device=out.device, dtype=torch.float64)
        results.append([out, *torch.autograd.grad(out, leaves, grad.to(out.dtype))])
    for wanted, found in zip(*results, strict=True):
        worst = max(worst, ((found.double() - wanted).abs().max() / wanted.abs().max()).item())
    return worst


def backends(device: torch.device) -> list[str]:
    """Return the backends of the experts that can run on a device, beside the reference."""
    if device.type == "cpu":
        return ["grouped", "cpu"]
    return ["grouped", "liger"] if importlib.util.find_spec("liger_kernel") else ["grouped"]


def normal(device: torch.device, dtype: torch.dtype, *shape: int) -> Tensor:
    """Return normal numbers that are the same on every device."""
    return torch.randn(*shape, generator=torch.Generator().manual_seed(sum(shape))).to(device, dtype)


def check(device: torch.device, dtype: torch.dtype) -> dict[str, float]:
    """Return the largest relative error of every part that has a plain float64 counterpart."""
    found = {}
    cases = {"even": (512, 64, 48, 16, 4), "sparse": (100, 64, 32, 200, 8), "one token": (1, 64, 32, 8, 2)}
    for case, (n, hidden, inner, count, k) in cases.items():
        ids_nk = normal(device, torch.float32, n, count).topk(k).indices
        tensors = [
            normal(device, dtype, n, hidden),
            normal(device, dtype, count, 2 * inner, hidden) / hidden**0.5,
            normal(device, dtype, count, hidden, inner) / inner**0.5,
            normal(device, torch.float32, n, k).softmax(-1).to(dtype),
        ]
        for backend in backends(device):
            found[f"experts {backend}, {case}"] = errors_of(
                lambda *t, ids=ids_nk, name=backend: moe_experts(*t, ids, backend=name),
                lambda *t, ids=ids_nk: reference(*t, ids),
                tensors,
            )
    found["cross entropy"] = _check_cross_entropy(device, dtype)
    if device.type == "cuda":
        found["flex attention"] = _check_attention(device, dtype)
    return found


def _check_cross_entropy(device: torch.device, dtype: torch.dtype) -> float:
    targets_n = torch.arange(300, device=device) % 1000
    targets_n[::5] = -100
    return errors_of(
        lambda x, w: cross_entropy(x, w, targets_n),
        lambda x, w: F.cross_entropy(x @ w.T, targets_n),
        [normal(device, dtype, 300, 64), normal(device, dtype, 1000, 64)],
    )


def _check_attention(device: torch.device, dtype: torch.dtype) -> float:
    config = ModelConfig(replace(LARGE, hidden=256, heads=4, head_dim=112, layers=1, expert_dim=64), 1024)
    attention = LoopedLM(config, device="meta").layers[0].attention
    segments_bt = documents(2, 512, 100, device)
    index_t = torch.arange(512, device=device)
    seen = (index_t[:, None] >= index_t) & (segments_bt[:, :, None] == segments_bt[:, None, :])
    mask = segment_block_mask(segments_bt)
    shapes = [(2, 512, 4, 112), (2, 512, 2, 112), (2, 512, 2, 112)]
    return errors_of(
        lambda q, k, v: attention.attend(q, k, v, mask),
        lambda q, k, v: attention.attend(q, k, v, seen[:, None]),
        [normal(device, dtype, *shape) for shape in shapes],
    )


def documents(rows: int, length: int, mean: int, device: torch.device) -> Tensor:
    """Return segments whose lengths are geometric with a mean, `[rows, length]`."""
    starts = torch.rand(rows, length, generator=torch.Generator().manual_seed(0)) < 1 / mean
    return starts.cumsum(1).to(device)


def attended(segments_bt: Tensor) -> float:
    """Return the mean number of tokens that a token attends to, itself included."""
    index_t = torch.arange(segments_bt.shape[1], device=segments_bt.device)
    new_bt = torch.cat([torch.ones_like(segments_bt[:, :1]), segments_bt.diff(dim=1)], 1) > 0
    start_bt = torch.where(new_bt, index_t, 0).cummax(1).values
    return (index_t - start_bt + 1).double().mean().item()


def time_layer(device: torch.device, geometry: Geometry, rows: int, length: int, backend: str) -> float:
    """Return the median milliseconds of one layer forward and backward in mixed bf16."""
    model = LoopedLM(ModelConfig(replace(geometry, layers=1), 64), device=device)
    layer, segments_bt = model.layers[0], documents(rows, length, DOCUMENT, device)
    layer.moe.backend = backend
    context = model.context(segments_bt, segments_bt)
    x_btd = torch.randn(rows, length, geometry.hidden, device=device, requires_grad=True)
    run = torch.compile(layer) if device.type == "cuda" else layer
    taken = []
    for _ in range(3 + 7):
        start = _now(device)
        with torch.autocast(device.type, torch.bfloat16):
            out_btd = run(x_btd, context, 1.0)
        out_btd.backward(out_btd.detach())
        taken.append(_now(device) - start)
    return 1000 * statistics.median(taken[3:])


def train(device: torch.device, geometry: Geometry, vocab: int, rows: int, length: int) -> dict[str, Any]:
    """Return tokens/s, FLOP/s and peak bytes of full training steps in mixed bf16."""
    model = LoopedLM(ModelConfig(geometry, vocab), device=device)
    if device.type == "cuda":
        for layer in model.layers:
            layer.compile()
    optimiser = torch.optim.AdamW(model.parameters(), lr=1e-4, fused=True)
    segments_bt = documents(rows, length, DOCUMENT, device)
    tokens_bt = torch.randint(0, vocab, (rows, length + 1), generator=torch.Generator().manual_seed(0))
    tokens_bt = tokens_bt.to(device)
    taken, losses = [], []
    for _ in range(WARM_UP + STEPS):
        start = _now(device)
        with torch.autocast(device.type, torch.bfloat16):
            out = model.loss(tokens_bt[:, :-1], tokens_bt[:, 1:], segments_bt)
        (out.ce + 0.01 * out.balance).backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimiser.step()
        optimiser.zero_grad()
        taken.append(_now(device) - start)
        losses.append(out.ce.item())
    seconds = statistics.median(taken[WARM_UP:])
    flops = flops_per_token(geometry, attended(segments_bt))
    return {
        "layers": geometry.layers,
        "tokens_per_step": rows * length,
        "tokens_per_s": rows * length / seconds,
        "flops_per_token": flops,
        "flops_per_s": flops * rows * length / seconds,
        "slowest_step_s": max(taken[WARM_UP:]),
        "first_loss": losses[0],
        "last_loss": losses[-1],
        "peak_bytes": torch.cuda.max_memory_allocated() if device.type == "cuda" else None,
    }


def _now(device: torch.device) -> float:
    if device.type == "cuda":
        torch.cuda.synchronize()
    return time.perf_counter()


def layers_that_fit(memory: int) -> int:
    """Return how many layers of the 600M scale leave a third of the memory to activations."""
    layer = sum(
        p.numel() for p in LoopedLM(ModelConfig(replace(LARGE, layers=1), 64), device="meta").parameters()
    )
    head = 2 * VOCAB * LARGE.hidden
    # Weights, gradients and both moments in float32.
    return max(1, min(LARGE.layers, int((memory * 2 / 3 / 16 - head) // layer)))


def verdict(mfu: float | None) -> str:
    """Return what the utilisation means."""
    if mfu is None:
        return "peak of the device unknown"
    for limit, word in (
        (STRETCH, "stretch goal reached"),
        (GOAL, "goal reached"),
        (REJECT, "below the goal"),
    ):
        if mfu >= limit:
            return word
    return "rejected"


def main() -> int:
    """Run the checks and the timings."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--json", type=Path, default=OUT, help=f"file of the numbers (default: {OUT})")
    args = parser.parse_args()
    if not torch.cuda.is_available():
        print("no CUDA device: nothing was checked")
        return 0
    device, name = torch.device("cuda"), torch.cuda.get_device_name()
    errors = check(device, torch.bfloat16)
    for part, error in errors.items():
        print(f"{part:32s} error {error:.4f} {'ok' if error < TOLERANCE else 'WRONG'}")
    captured = check_capture(device)
    for part, (error, tolerance) in captured.items():
        print(f"{part:32s} error {error:.4f} {'ok' if error <= tolerance else 'WRONG'}")
    layers = {}
    for backend in backends(device):
        layers[backend] = time_layer(device, LARGE, ROWS, CONTEXT, backend)
        print(f"one layer, experts {backend}: {layers[backend]:.2f} ms for {ROWS * CONTEXT} tokens")
    geometry = replace(LARGE, layers=layers_that_fit(torch.cuda.get_device_properties(0).total_memory))
    steps = train(device, geometry, VOCAB, ROWS, CONTEXT)
    peak = next((machine.peak for machine in MACHINES.values() if machine.name in name), None)
    mfu = steps["flops_per_s"] / peak if peak else None
    word = verdict(mfu)
    share = f", {100 * mfu:.1f}% MFU" if mfu else ""
    print(f"{geometry.layers} layers, {STEPS} steps: {steps['tokens_per_s']:.0f} tokens/s{share}: {word}")
    report = {
        "device": name,
        "errors": errors,
        "capture_errors": {part: error for part, (error, _) in captured.items()},
        "layer_ms": layers,
        "steps": steps,
        "mfu": mfu,
        "verdict": word,
    }
    write_json(args.json, report)
    wrong = max(errors.values()) >= TOLERANCE or any(not error <= most for error, most in captured.values())
    return int(word == "rejected" or wrong)


if __name__ == "__main__":
    sys.exit(main())
