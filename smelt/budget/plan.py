"""What a study will cost on a stated machine: FLOPs, hours, memory, disk. An estimate, made before any run.

Every assumption is a field of `Machine` or a constant below, and is printed with the plan.
"""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import Any

from smelt.budget.accounting import flops_per_token, head_flops, parameters
from smelt.budget.power import power_rows
from smelt.budget.resolve import resolve_point
from smelt.budget.tables import pair_row, run_budget, tokens_planned
from smelt.errors import SmeltError
from smelt.study import Geometry, RunSpec, Study, run_points

GIGA = 1e9
STATE_BYTES = 16  # float32 weight, gradient and two Adam moments
# A weight in use: its cast copy on a single device; gathered, with its gradient, where the state is sharded.
CAST_BYTES = {"fp32": 0, "auto": 0, "bf16": 2}
GATHERED_BYTES = {"fp32": 8, "auto": 8, "bf16": 10}
ACTIVATION_BYTES = {"fp32": 4, "auto": 4, "bf16": 2}
ENDPOINT_BYTES = 4  # a weight in an endpoint file
RESUME_BYTES = 12  # a weight and its two moments in a resume checkpoint
RESUME_KEPT = 3  # the last two and the one at a fork
MICRO_TOKENS = 32768  # the most tokens that a device holds activations for at once
USABLE_MEMORY = 0.9  # share of a device's memory that is planned with
MAX_DEVICES = 1024


@dataclass(frozen=True)
class Machine:
    """A device to plan with.

    Attributes:
        name: what the plan calls it.
        peak: FLOP/s at the precision used.
        mfu: share of the peak that training reaches, model FLOPs only.
        memory: bytes.
    """

    name: str
    peak: float
    mfu: float
    memory: float


# Peaks are dense bf16 of the data sheets; for a core the matrix product rate measured on a Zen 4 core.
# The shares are assumptions to plan with; the one of a core is what the runs of nano reached on two.
MACHINES = {
    "h200": Machine("H200", 989e12, 0.30, 141e9),
    "h100": Machine("H100", 989e12, 0.30, 80e9),
    "a100": Machine("A100", 312e12, 0.35, 80e9),
    "core": Machine("CPU core", 97e9, 0.18, 4e9),
}


def choose_machine(study: Study, name: str | None, mfu: float | None) -> Machine:
    """Return the machine to plan with: by default an H200 for bf16 studies and a CPU core for others.

    Raises:
        SmeltError: the machine is unknown or the MFU is not in (0, 1].
    """
    name = name or ("h200" if study.training.precision == "bf16" else "core")
    if name not in MACHINES:
        raise SmeltError(f"--device is {name!r}; it must be one of {', '.join(MACHINES)}")
    machine = MACHINES[name]
    if mfu is None:
        return machine
    if not 0 < mfu <= 1:
        raise SmeltError(f"--mfu is {mfu}; it must be above 0 and at most 1")
    return Machine(machine.name, machine.peak, mfu, machine.memory)


def make_plan(study: Study, seeds: int | None, machine: Machine) -> dict[str, Any]:
    """Return the plan as plain values: assumptions, runs, totals, pairs and power."""
    specs = {run: resolve_point(study, point) for run, point in run_points(study, seeds).items()}
    runs = [run_plan(study, spec, machine) for spec in specs.values()]
    pairs = [
        pair_row(study, spec, specs[spec.point.baseline]) for spec in specs.values() if spec.point.baseline
    ]
    corpus = corpus_bytes(study) / GIGA
    return {
        "study": study.name,
        "assumptions": {
            **asdict(machine),
            "state_bytes_per_parameter": STATE_BYTES + CAST_BYTES[study.training.precision],
            "most_micro_tokens": MICRO_TOKENS,
            "attended_context": study.corpus.attended_context,
        },
        "runs": runs,
        "totals": {
            "runs": len(runs),
            "tokens": sum(run["tokens"] for run in runs),
            "flops": sum(run["flops"] for run in runs),
            "head_flops": sum(run["head_flops"] for run in runs),
            "device_hours": sum(run["device_hours"] for run in runs),
            "endpoints_gb": sum(run["endpoints_gb"] for run in runs),
            "resume_gb": max(run["resume_gb"] for run in runs),
            "corpus_gb": corpus,
            "disk_gb": sum(run["endpoints_gb"] for run in runs)
            + max(run["resume_gb"] for run in runs)
            + corpus,
        },
        "pairs": pairs,
        "power": power_rows(study),
    }


def run_plan(study: Study, spec: RunSpec, machine: Machine) -> dict[str, Any]:
    """Return one run's row of the plan."""
    geometry, vocab, precision = spec.geometry, study.corpus.vocab, study.training.precision
    count = parameters(geometry)
    tokens = tokens_planned(study)
    flops, head = run_flops(study, spec)
    stored = stored_parameters(geometry, vocab)
    place = placement(geometry, stored, precision, machine, study.corpus.context)
    return {
        "run": spec.point.run,
        "arch": spec.point.arch,
        "hidden": geometry.hidden,
        "layers": geometry.layers,
        "effective_layers": geometry.effective_layers,
        "heads": geometry.heads,
        "kv_heads": geometry.kv_heads,
        "head_dim": geometry.head_dim,
        "experts": geometry.experts,
        "top_k": geometry.top_k,
        "expert_dim": geometry.expert_dim,
        "params_active": count.active,
        "params_total": count.total,
        "params_embedding": stored - count.total,
        "flops_per_token": run_budget(study, spec).flops,
        "tokens": tokens,
        "flops": flops,
        "head_flops": head,
        "device_hours": device_hours(study, spec, machine),
        "devices": place.devices,
        "strategy": "fsdp" if place.devices > 1 else "single",
        "micro_tokens": place.micro_tokens,
        "memory_gb": place.memory / GIGA,
        "endpoints_gb": ENDPOINT_BYTES * stored * len(study.training.horizons) / GIGA,
        "resume_gb": RESUME_KEPT * RESUME_BYTES * stored / GIGA,
    }


def run_flops(study: Study, spec: RunSpec) -> tuple[float, float]:
    """Return the training FLOPs of a run: those of its layers and those of its head."""
    tokens = tokens_planned(study)
    layers = flops_per_token(spec.geometry, study.corpus.attended_context) * tokens
    return layers, head_flops(spec.geometry, study.corpus.vocab) * tokens


def device_hours(study: Study, spec: RunSpec, machine: Machine) -> float:
    """Return the hours that one device would need to train a run."""
    return sum(run_flops(study, spec)) / (machine.peak * machine.mfu) / 3600


def stored_parameters(geometry: Geometry, vocab: int) -> int:
    """Return all trained elements: the layers', the embedding's, the head's and the final norm's."""
    return parameters(geometry).total + (2 * vocab + 1) * geometry.hidden


@dataclass(frozen=True)
class Placement:
    """Where one run fits: devices, tokens that each holds activations for at once, peak bytes on each."""

    devices: int
    micro_tokens: int
    memory: float


def placement(geometry: Geometry, stored: int, precision: str, machine: Machine, context: int) -> Placement:
    """Return the fewest devices (a power of two) that hold a run, and the largest micro-batch that fits.

    One device holds all state; several shard weights, gradients and moments evenly and gather one layer
    at a time in float32, with its gradient (FSDP).

    Raises:
        SmeltError: no number of devices up to `MAX_DEVICES` is enough.
    """
    layer = parameters(geometry).total / geometry.layers
    devices = 1
    while devices <= MAX_DEVICES:
        in_use = GATHERED_BYTES[precision] * layer if devices > 1 else CAST_BYTES[precision] * stored
        held = STATE_BYTES * stored / devices + in_use
        micro = max(MICRO_TOKENS, context)
        while micro >= context:
            need = held + activation_bytes(geometry, precision) * micro
            if need <= USABLE_MEMORY * machine.memory:
                return Placement(devices, micro, need)
            micro //= 2
        devices *= 2
    raise SmeltError(
        f"a model of {stored / GIGA:.1f}B parameters does not fit {MAX_DEVICES} devices of "
        f"{machine.memory / GIGA:.0f} GB each; use a device with more memory"
    )


def activation_bytes(geometry: Geometry, precision: str) -> float:
    """Return bytes kept for the backward pass per token, over all executions, without recomputation.

    Each of the two norms keeps its input, its output and what the next product reads, in float32. The
    attention keeps Q and K before and after their norm and rotated, V, and its output; each of the top_k
    experts the pre-activations of gate and up; the router its logits and probabilities.
    """
    query, kv = (heads * geometry.head_dim for heads in (geometry.heads, geometry.kv_heads))
    experts = 2 * geometry.top_k * geometry.expert_dim
    wide = 4 * (6 * geometry.hidden + 2 * geometry.experts) + 16 * geometry.top_k
    narrow = ACTIVATION_BYTES[precision] * (4 * query + 4 * kv + experts)
    return float(geometry.effective_layers * (wide + narrow))


def corpus_bytes(study: Study) -> float:
    """Return the bytes of the token shards: trunk and decay once, less repeated epochs, and validation."""
    training, corpus = study.training, study.corpus
    steps = training.horizons[-1] + training.decay_steps
    tokens = steps * training.batch * corpus.context / max(1.0, corpus.max_epochs)
    return (2 if corpus.vocab <= 65536 else 4) * (tokens + study.evaluation.validation_tokens)
