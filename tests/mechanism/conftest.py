"""Small models and samples whose answers are known."""

from types import SimpleNamespace

import numpy as np
import pytest
import torch
from tokenizers import Tokenizer, decoders, models, pre_tokenizers, trainers

from smelt.mechanism.capture import SampleBatch
from smelt.model import LoopedLM, ModelConfig
from smelt.study import Geometry

VOCAB, BOS = 300, 0


def make_geometry(**changes):
    sizes = {
        "hidden": 32,
        "layers": 4,
        "heads": 4,
        "kv_heads": 2,
        "head_dim": 8,
        "experts": 16,
        "top_k": 4,
        "expert_dim": 8,
        "loop_start": 1,
        "loop_length": 2,
        "loop_count": 2,
    }
    return Geometry(**(sizes | changes))


def make_model(seed=0, init_std=0.2, config=None, **changes):
    torch.manual_seed(0)
    settings = {"vocab": VOCAB, "init_std": init_std} | (config or {})
    return LoopedLM(ModelConfig(make_geometry(**changes), **settings), seed).eval()


def make_batch(rows=4, length=48, document=12, vocab=VOCAB, seed=0):
    """Return a batch of documents of equal length, each starting with BOS; no target at a document's end."""
    inputs = torch.randint(1, vocab, (rows, length), generator=torch.Generator().manual_seed(seed))
    positions = (torch.arange(length) % document).expand(rows, length).contiguous()
    segments = (torch.arange(length) // document).expand(rows, length).contiguous()
    inputs[positions == 0] = BOS
    targets = inputs.roll(-1, 1)
    targets[targets == BOS] = -100
    documents = segments + torch.arange(rows)[:, None] * (length // document + 1)
    return SampleBatch(inputs, targets, segments, positions, documents, documents % 2)


@pytest.fixture(scope="session")
def tokenizer():
    text = ["Input: ( [ { < > } ] )\nOutput: ) > ] }\n" * 3]
    tokenizer = Tokenizer(models.BPE())
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.decoder = decoders.ByteLevel()
    alphabet = pre_tokenizers.ByteLevel.alphabet()
    trainer = trainers.BpeTrainer(
        vocab_size=VOCAB, initial_alphabet=alphabet, special_tokens=["<bos>"], show_progress=False
    )
    tokenizer.train_from_iterator(text, trainer)
    return tokenizer


def as_corpus(batches, tokenizer):
    """Return an object with the parts of a corpus that the capture reads."""
    count = 1 + max(int(batch.documents_bt.max()) for batch in batches)
    names = np.array(["code", "web"])[np.arange(count) % 2]

    def validation(context, tokens, batch):
        for item in batches:
            yield SimpleNamespace(
                inputs_bt=item.inputs_bt.numpy(),
                targets_bt=item.targets_bt.numpy(),
                segments_bt=item.segments_bt.numpy(),
                positions_bt=item.positions_bt.numpy(),
                documents_bt=item.documents_bt.numpy(),
            )

    return SimpleNamespace(
        documents={"category": names}, validation=validation, tokenizer=tokenizer, bos=BOS, sha256="0" * 64
    )
