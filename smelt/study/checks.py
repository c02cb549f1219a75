"""Mistakes in a study file that its schema cannot see."""

from __future__ import annotations

import math
from dataclasses import asdict
from typing import TYPE_CHECKING, Any

from smelt.errors import SmeltError

if TYPE_CHECKING:
    from smelt.study.study import Study


MAX_TOKENS = 10**18  # of a run; above, counts leave 64-bit integers


def check_finite(source: str, value: Any, where: str = "") -> None:
    """Raise a SmeltError where a number in `value` is infinite or not a number."""
    if isinstance(value, dict):
        for key, item in value.items():
            check_finite(source, item, f"{where}.{key}" if where else str(key))
    elif isinstance(value, float) and not math.isfinite(value):
        raise SmeltError(f"{source}: {where} is {value}; it must be a finite number")
    elif isinstance(value, int) and abs(value) > MAX_TOKENS:
        raise SmeltError(
            f"{source}: {where} has {len(str(value))} digits; it must be at most {MAX_TOKENS:.0e}"
        )


def check_relations(study: Study) -> None:
    """Check what a schema cannot: relations between fields.

    Raises:
        SmeltError: naming the field, its value and what is allowed.
    """
    training, corpus = study.training, study.corpus
    if list(training.horizons) != sorted(training.horizons):
        raise SmeltError(f"training.horizons is {list(training.horizons)}; it must be increasing")
    if training.horizons[0] < training.warmup_steps:
        raise SmeltError(
            f"training.horizons starts at {training.horizons[0]}; it must not lie before the end of "
            f"the warm-up, training.warmup_steps = {training.warmup_steps}"
        )
    if corpus.attended_context > corpus.context:
        raise SmeltError(
            f"corpus.attended_context is {corpus.attended_context}; it must be at most corpus.context, "
            f"which is {corpus.context}"
        )
    steps = training.horizons[-1] + len(training.horizons) * training.decay_steps
    tokens = steps * training.batch * corpus.context
    if tokens > MAX_TOKENS:
        raise SmeltError(
            f"training asks for {tokens:.1e} tokens a run; the product of steps, training.batch and "
            f"corpus.context must be at most {MAX_TOKENS:.0e}"
        )
    for percent, experts in study.sparsities.items():
        if experts < study.model.top_k:
            raise SmeltError(
                f"sparsities.{percent} is {experts} experts; it must be at least model.top_k, "
                f"which is {study.model.top_k}"
            )
    if study.evaluation.suite == "dclm" and not study.evaluation.folder:
        raise SmeltError("evaluation.folder is missing; suite dclm needs the folder of its JSONL files")
    unit = _unit(study)
    if study.loop.align % unit:
        raise SmeltError(
            f"loop.align is {study.loop.align}; with training.precision {training.precision} it must be a "
            f"multiple of {unit}"
        )
    for name, scale in study.scales.items():
        _check_sizes(f"scales.{name}", asdict(scale), unit)
        _span(study, scale.layers, f"scales.{name}")
    _check_configs(study, unit)
    _check_ablations(study)


def _unit(study: Study) -> int:
    """Return what sizes must be multiples of: stacked expert products need rows of whole 16-byte units."""
    return 8 if study.training.precision == "bf16" else 4


def _check_sizes(where: str, sizes: dict[str, int], unit: int) -> None:
    if sizes["heads"] % sizes["kv_heads"]:
        raise SmeltError(
            f"{where}.heads is {sizes['heads']}; it must be a multiple of kv_heads = {sizes['kv_heads']}"
        )
    if sizes["head_dim"] % 2:
        raise SmeltError(f"{where}.head_dim is {sizes['head_dim']}; it must be even")
    for name in ("hidden", "expert_dim"):
        if sizes[name] % unit:
            raise SmeltError(f"{where}.{name} is {sizes[name]}; it must be divisible by {unit}")


def _span(study: Study, layers: int, where: str) -> None:
    if not round(study.loop.span * layers):
        raise SmeltError(
            f"loop.span is {study.loop.span}; of the {layers} layers of {where} that is no layer at all"
        )


def _check_configs(study: Study, unit: int) -> None:
    cells = [f"{scale}-s{percent}" for scale in study.scales for percent in study.sparsities]
    for cell, sizes in study.loop.configs.items():
        where = f"loop.configs.{cell}"
        if cell not in cells:
            raise SmeltError(f"{where} is no cell of the study; it must be one of {', '.join(cells)}")
        _check_sizes(where, sizes, unit)
        if sizes["experts"] < study.model.top_k:
            raise SmeltError(
                f"{where}.experts is {sizes['experts']}; it must be at least model.top_k, "
                f"which is {study.model.top_k}"
            )


def _check_ablations(study: Study) -> None:
    ablations = study.ablations
    if not ablations:
        return
    if ablations["scale"] not in study.scales:
        raise SmeltError(f"ablations.scale is {ablations['scale']!r}; it must be one of {list(study.scales)}")
    layers = study.scales[ablations["scale"]].layers
    named = [("span", s) for s in ablations.get("span", {}).get("sparsities", [])]
    named += [("control", s) for s in ablations.get("control", {}).get("sparsities", [])]
    named += [(key, ablations[key]["sparsity"]) for key in ("depth", "loops") if key in ablations]
    for key, sparsity in named:
        if sparsity not in study.sparsities:
            raise SmeltError(
                f"ablations.{key} names sparsity {sparsity}; it must be one of {list(study.sparsities)}"
            )
    for length in ablations.get("span", {}).get("layers", []):
        if length > layers:
            raise SmeltError(
                f"ablations.span.layers contains {length}; the stack of scale "
                f"{ablations['scale']!r} has {layers} layers"
            )
    for depth in ablations.get("depth", {}).get("looped", []):
        _span(study, depth, f"ablations.depth.looped = {depth}")
