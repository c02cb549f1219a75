"""Full training steps of this model beside HF transformers' Qwen3-MoE, on a processor.

All models live in one process and take turns, step by step, on the same tokens, so that other load on the
machine meets all of them alike; what counts is the ratio within a round. All train on cross entropy and a
balance loss; the fastest of HF's expert implementations is the reference, and is timed without its balance
loss too. Peak memory is taken in a process of its own for each model.

    python -m bench.train_step [--sizes a64 b64 b336] [--threads 1 2] [--rounds 9] [--json FILE]
"""

from __future__ import annotations

import argparse
import resource
import statistics
import subprocess
import sys
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import torch

from smelt.files import ROOT, write_json
from smelt.model import LoopedLM, ModelConfig
from smelt.model.export import hf_config
from smelt.study import Geometry

OUT = ROOT / "results" / "bench" / "train_step.json"
BATCH, CONTEXT, VOCAB = 16, 256, 1024
SIZES = {
    "a64": Geometry(64, 6, 2, 1, 32, 64, 8, 24),
    "b64": Geometry(128, 8, 4, 2, 32, 64, 8, 48),
    "b336": Geometry(128, 8, 4, 2, 32, 336, 8, 48),
}
NO_BALANCE = "hf grouped_mm, no balance loss"
ARMS = ("smelt", "hf grouped_mm", "hf batched_mm", "hf eager", NO_BALANCE)
# Its padded products of 336 experts take minutes a step.
SKIP = {("b336", "hf batched_mm")}


@dataclass
class Arm:
    """One model with its optimiser; `forward` returns the loss of a batch."""

    name: str
    model: torch.nn.Module
    forward: Callable[[torch.Tensor], torch.Tensor]

    def __post_init__(self) -> None:
        self.optimiser = torch.optim.AdamW(self.model.parameters(), lr=1e-3, fused=True)

    def step(self, tokens_bt: torch.Tensor) -> tuple[float, float]:
        """Train on a batch and return the seconds it took on the clock and on the processor."""
        start, start_cpu = time.perf_counter(), time.process_time()
        self.optimiser.zero_grad()
        self.forward(tokens_bt).backward()
        self.optimiser.step()
        return time.perf_counter() - start, time.process_time() - start_cpu


def make_arm(name: str, geometry: Geometry) -> Arm:
    """Return the model called `name` at one size."""
    config = ModelConfig(geometry, VOCAB)
    if name == "smelt":
        model = LoopedLM(config)

        def forward(tokens_bt: torch.Tensor) -> torch.Tensor:
            out = model.loss(tokens_bt[:, :-1], tokens_bt[:, 1:])
            return out.ce + 0.01 * out.balance

        return Arm(name, model, forward)
    from transformers import AutoModelForCausalLM, Qwen3MoeConfig

    experts = name.removeprefix("hf ").split(",")[0]
    other = AutoModelForCausalLM.from_config(
        Qwen3MoeConfig(**hf_config(config, CONTEXT)),
        attn_implementation="sdpa",
        experts_implementation=experts,
    )
    return Arm(name, other, lambda tokens: _hf_loss(other, tokens, name != NO_BALANCE))


def _hf_loss(model: torch.nn.Module, tokens_bt: torch.Tensor, balance: bool) -> torch.Tensor:
    labels_bt = tokens_bt[:, 1:].contiguous()
    inputs = {"input_ids": tokens_bt[:, :-1], "labels": labels_bt, "shift_labels": labels_bt}
    return model(**inputs, output_router_logits=balance).loss


def batches(count: int) -> list[torch.Tensor]:
    """Return batches of tokens whose frequencies fall off as 1/rank."""
    generator = torch.Generator().manual_seed(0)
    frequency = 1 / torch.arange(1, VOCAB + 1).double()
    shape = (count, BATCH, CONTEXT + 1)
    total = count * BATCH * (CONTEXT + 1)
    return list(torch.multinomial(frequency, total, replacement=True, generator=generator).view(shape))


def measure(size: str, threads: int, rounds: int) -> dict[str, dict]:
    """Return seconds a step and kept bytes of each model, by its name; the models take turns."""
    torch.set_num_threads(threads)
    arms = [make_arm(name, SIZES[size]) for name in ARMS if (size, name) not in SKIP]
    data = batches(rounds + 2)
    seconds = {arm.name: [] for arm in arms}
    cpu_seconds = {arm.name: [] for arm in arms}
    for number, tokens_bt in enumerate(data):
        # Each round starts with another model.
        for arm in arms[number % len(arms) :] + arms[: number % len(arms)]:
            taken, cpu = arm.step(tokens_bt)
            if number >= 2:
                seconds[arm.name].append(taken)
                cpu_seconds[arm.name].append(cpu)
    return {
        arm.name: {
            "seconds": seconds[arm.name],
            "cpu_seconds": cpu_seconds[arm.name],
            "saved_bytes_per_token": saved_bytes(arm, data[0]),
        }
        for arm in arms
    }


def saved_bytes(arm: Arm, tokens_bt: torch.Tensor) -> float:
    """Return the bytes a token that a forward pass keeps for the backward pass, parameters aside."""
    kept = {}
    known = {parameter.untyped_storage().data_ptr() for parameter in arm.model.parameters()}

    def pack(tensor: torch.Tensor) -> torch.Tensor:
        storage = tensor.untyped_storage()
        if storage.data_ptr() not in known:
            kept[storage.data_ptr()] = storage.nbytes()
        return tensor

    with torch.autograd.graph.saved_tensors_hooks(pack, lambda tensor: tensor):
        loss = arm.forward(tokens_bt)
    del loss
    return sum(kept.values()) / (BATCH * CONTEXT)


def peak_memory(name: str, size: str) -> int:
    """Return the peak resident bytes of three steps in a process of their own."""
    command = [sys.executable, "-m", "bench.train_step", "--peak", name, "--sizes", size]
    answer = subprocess.run(command, capture_output=True, text=True, check=True, cwd=ROOT)
    return int(answer.stdout.split()[-1])


def summary(found: dict[str, dict]) -> dict:
    """Return medians in tokens/s and the ratios to the fastest HF variant, round by round.

    `cpu_ratio` compares processor time, which other processes disturb least.
    """
    median = {name: statistics.median(row["seconds"]) for name, row in found.items()}
    best = min((name for name in found if name not in ("smelt", NO_BALANCE)), key=median.get)
    rows = {}
    for name, row in found.items():
        ratios = sorted(
            theirs / own for own, theirs in zip(row["seconds"], found[best]["seconds"], strict=True)
        )
        quarter = len(ratios) // 4
        rows[name] = {
            "tokens_per_s": BATCH * CONTEXT / median[name],
            "fastest_tokens_per_s": BATCH * CONTEXT / min(row["seconds"]),
            "ratio": statistics.median(ratios),
            "ratio_low": ratios[quarter],
            "ratio_high": ratios[-1 - quarter],
            "cpu_ratio": statistics.median(found[best]["cpu_seconds"])
            / statistics.median(row["cpu_seconds"]),
            **{key: value for key, value in row.items() if not key.endswith("seconds")},
        }
    return {"best_hf": best, "models": rows}


def main() -> None:
    """Run the benchmark and print a table."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--sizes", nargs="+", choices=SIZES, default=list(SIZES))
    parser.add_argument("--threads", nargs="+", type=int, default=[1, 2])
    parser.add_argument("--rounds", type=int, default=9)
    parser.add_argument("--json", type=Path, default=OUT, help=f"file of the numbers (default: {OUT})")
    parser.add_argument("--peak", choices=ARMS, help=argparse.SUPPRESS)
    args = parser.parse_args()
    if args.peak:
        torch.set_num_threads(1)
        arm = make_arm(args.peak, SIZES[args.sizes[0]])
        for tokens_bt in batches(3):
            arm.step(tokens_bt)
        print(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024)
        return
    results = {}
    for size in args.sizes:
        peaks = {name: peak_memory(name, size) for name in ARMS if (size, name) not in SKIP}
        for threads in args.threads:
            results[f"{size}, {threads} thread{'s' * (threads > 1)}"] = found = summary(
                measure(size, threads, args.rounds)
            )
            for name, row in found["models"].items():
                row["peak_bytes"] = peaks[name]
            _print(size, threads, found)
    write_json(args.json, results)


def _print(size: str, threads: int, found: dict) -> None:
    print(f"{size}, threads: {threads}; ratios to {found['best_hf']}, quartiles in brackets")
    for name, row in found["models"].items():
        print(
            f"  {name:30s} {row['tokens_per_s']:8.0f} tokens/s  {row['ratio']:.2f} "
            f"[{row['ratio_low']:.2f}, {row['ratio_high']:.2f}]  cpu {row['cpu_ratio']:.2f}  "
            f"kept {row['saved_bytes_per_token']:7.0f} B/token  peak {row['peak_bytes'] / 2**20:5.0f} MiB",
            flush=True,
        )


if __name__ == "__main__":
    main()
