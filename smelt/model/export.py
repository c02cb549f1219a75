"""Models for use elsewhere: a Baseline in the layout of Qwen3-MoE, a looped model in its own.

`docs/export.md` describes both layouts. A Baseline has the architecture of Qwen3-MoE, so HF transformers
loads it as it is; no public architecture executes layers twice.
"""

from __future__ import annotations

import re
import shutil
from collections.abc import Iterator, Mapping
from dataclasses import asdict
from pathlib import Path
from typing import Any

from torch import Tensor

from smelt.errors import SmeltError
from smelt.files import write_json
from smelt.model.config import NORM_EPS, ModelConfig
from smelt.model.weights import save_weights

LOOPED_FORMAT = "smelt-looped-moe/1"
_PROJECTIONS = {"q": "q_proj", "k": "k_proj", "v": "v_proj", "o": "o_proj"}


def export_model(
    out: Path, config: ModelConfig, weights: Mapping[str, Tensor], context: int, tokenizer: Path | None
) -> None:
    """Write `config.json`, `model.safetensors` and, where there is one, `tokenizer.json` into a folder.

    Args:
        out: folder, made where it is missing.
        config: a Baseline's is written for HF transformers, a looped one in the product's own layout.
        weights: state dict of the `LoopedLM`.
        context: tokens of the training context.
        tokenizer: file to copy.

    Raises:
        SmeltError: a Baseline without normalised queries and keys, which Qwen3-MoE cannot express.
    """
    if config.geometry.looped:
        settings, tensors = looped_config(config, context), dict(weights)
    else:
        settings, tensors = hf_config(config, context), dict(hf_weights(weights))
    save_weights(out / "model.safetensors", tensors)
    if tokenizer is not None:
        shutil.copyfile(tokenizer, out / "tokenizer.json")
    write_json(out / "config.json", settings)


def hf_config(config: ModelConfig, context: int) -> dict[str, Any]:
    """Return the configuration of a Baseline for `transformers.Qwen3MoeForCausalLM`."""
    if not config.qk_norm:
        raise SmeltError("model.qk_norm is false; the Qwen3-MoE layout needs normalised queries and keys")
    sizes = config.geometry
    return {
        "architectures": ["Qwen3MoeForCausalLM"],
        "model_type": "qwen3_moe",
        "dtype": "float32",
        "vocab_size": config.vocab,
        "hidden_size": sizes.hidden,
        "num_hidden_layers": sizes.layers,
        "num_attention_heads": sizes.heads,
        "num_key_value_heads": sizes.kv_heads,
        "head_dim": sizes.head_dim,
        "num_experts": sizes.experts,
        "num_experts_per_tok": sizes.top_k,
        "norm_topk_prob": True,
        "moe_intermediate_size": sizes.expert_dim,
        # Of a dense layer; there is none, but the reader wants a number.
        "intermediate_size": sizes.top_k * sizes.expert_dim,
        "decoder_sparse_step": 1,
        "mlp_only_layers": [],
        "hidden_act": "silu",
        "rms_norm_eps": NORM_EPS,
        "rope_theta": config.rope_base,
        "rope_parameters": {"rope_type": "default", "rope_theta": config.rope_base},
        "max_position_embeddings": context,
        "attention_bias": False,
        "tie_word_embeddings": False,
        "use_sliding_window": False,
    }


def hf_weights(weights: Mapping[str, Tensor]) -> Iterator[tuple[str, Tensor]]:
    """Yield a Baseline's tensors under the names of Qwen3-MoE checkpoints: one matrix for each expert."""
    for name, tensor in weights.items():
        match = re.fullmatch(r"layers\.(\d+)\.(.+)", name)
        if not match:
            yield (
                {"head.weight": "lm_head.weight", "embed.weight": "model.embed_tokens.weight"}.get(
                    name, f"model.{name}"
                ),
                tensor,
            )
            continue
        layer, part = f"model.layers.{match[1]}.", match[2]
        if part in ("moe.w13", "moe.w2"):
            yield from _expert_weights(layer, part, tensor)
        else:
            yield layer + _hf_name(part), tensor


def _hf_name(part: str) -> str:
    fixed = {
        "attention_norm.weight": "input_layernorm.weight",
        "moe_norm.weight": "post_attention_layernorm.weight",
        "moe.router.weight": "mlp.gate.weight",
    }
    if part in fixed:
        return fixed[part]
    _, module, leaf = part.split(".")
    return f"self_attn.{_PROJECTIONS.get(module, module)}.{leaf}"


def _expert_weights(layer: str, part: str, stack_exx: Tensor) -> Iterator[tuple[str, Tensor]]:
    for expert, matrix in enumerate(stack_exx):
        prefix = f"{layer}mlp.experts.{expert}."
        if part == "moe.w2":
            yield prefix + "down_proj.weight", matrix.clone()
        else:
            gate, up = matrix.chunk(2)
            yield prefix + "gate_proj.weight", gate.clone()
            yield prefix + "up_proj.weight", up.clone()


def looped_config(config: ModelConfig, context: int) -> dict[str, Any]:
    """Return the configuration of a looped model: sizes, and the executions one by one."""
    return {
        "format": LOOPED_FORMAT,
        **config.to_dict(),
        "context": context,
        "norm_eps": NORM_EPS,
        "schedule": [asdict(execution) for execution in config.geometry.schedule()],
    }
