"""The looped mixture-of-experts language model."""

from smelt.model.cache import KVCache
from smelt.model.config import ModelConfig
from smelt.model.lm import Block, LoopedLM, Losses
from smelt.model.weights import count_parameters, load_model, save_weights

__all__ = [
    "Block",
    "KVCache",
    "LoopedLM",
    "Losses",
    "ModelConfig",
    "count_parameters",
    "load_model",
    "save_weights",
]
