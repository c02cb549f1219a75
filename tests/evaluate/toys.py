"""Toy tokenizers of the golden cases, tiny models, and the sample files of the DCLM tasks."""

from __future__ import annotations

import json
import os
import re
from pathlib import Path

import pytest

from smelt.evaluate.sequences import Encoder
from smelt.files import ROOT
from smelt.model import LoopedLM, ModelConfig
from smelt.study import Geometry

# GPT-2 style: a line break is a piece of its own; Llama-3 style: punctuation swallows the break after it.
GPT = r" ?[A-Za-z]+| ?[0-9]+| ?[^\sA-Za-z0-9]+|\s+(?!\S)|\s+"
LLAMA = r"[^\r\nA-Za-z0-9]?[A-Za-z]+|[0-9]{1,3}| ?[^\sA-Za-z0-9]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+"


class Toy:
    """A tokenizer whose tokens are the pieces of a pattern; ids are given out as pieces appear."""

    def __init__(self, pattern: str, bos: bool = False) -> None:
        self.pattern = re.compile(pattern)
        self.pieces = ["<bos>"]
        self.ids: dict[str, int] = {}
        self.bos = 0 if bos else None

    def encode(self, text: str) -> list[int]:
        result = []
        for piece in self.pattern.findall(text):
            if piece not in self.ids:
                self.ids[piece] = len(self.pieces)
                self.pieces.append(piece)
            result.append(self.ids[piece])
        return result

    def encoder(self) -> Encoder:
        return Encoder(self.encode, self.bos)

    def show(self, ids: list[int]) -> list[str]:
        return [self.pieces[i] for i in ids]


def tiny_model(vocab: int, seed: int = 0, looped: bool = True) -> LoopedLM:
    """Return a model with weights large enough that every token of the context matters."""
    loop = {"loop_start": 1, "loop_length": 1, "loop_count": 2} if looped else {}
    sizes = Geometry(
        hidden=16, layers=3, heads=2, kv_heads=1, head_dim=8, experts=6, top_k=2, expert_dim=8, **loop
    )
    return LoopedLM(ModelConfig(sizes, vocab=vocab, init_std=0.3), seed).eval()


SAMPLES = Path(os.environ.get("SMELT_EVAL_SAMPLES", ROOT.parent / "shared" / "eval_samples"))


def sample_rows(name: str) -> list[dict]:
    """Return the raw lines of a sample file; skip the test where the samples are not at hand."""
    path = SAMPLES / f"{name}.jsonl"
    if not path.is_file():
        pytest.skip(f"no sample file {path}")
    return [json.loads(line) for line in path.read_text(encoding="utf-8").splitlines()]
