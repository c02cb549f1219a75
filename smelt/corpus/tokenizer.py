"""Byte-level BPE tokenizer: trained on the training text, special tokens for document start and padding."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path

from tokenizers import Tokenizer, decoders, models, pre_tokenizers, trainers

from smelt.errors import SmeltError
from smelt.files import atomic_path

BOS, PAD = "<|bos|>", "<|pad|>"
BOS_ID, PAD_ID = 0, 1


def train_tokenizer(texts: Iterable[str], vocab: int) -> Tokenizer:
    """Train a tokenizer of exactly `vocab` entries: 2 special tokens, 256 bytes, merges.

    Digits are tokens of their own, so that small models can see numbers. Any string survives encoding
    and decoding unchanged.

    Raises:
        SmeltError: the text has too few different words for so many merges.
    """
    tokenizer = Tokenizer(models.BPE())
    tokenizer.pre_tokenizer = pre_tokenizers.Sequence(
        [pre_tokenizers.Digits(individual_digits=True), pre_tokenizers.ByteLevel(add_prefix_space=False)]
    )
    tokenizer.decoder = decoders.ByteLevel()
    trainer = trainers.BpeTrainer(
        vocab_size=vocab,
        special_tokens=[BOS, PAD],
        initial_alphabet=pre_tokenizers.ByteLevel.alphabet(),
        show_progress=False,
    )
    tokenizer.train_from_iterator(texts, trainer)
    if tokenizer.get_vocab_size() != vocab:
        raise SmeltError(
            f"corpus.vocab is {vocab}, but the text is enough for {tokenizer.get_vocab_size()} entries only"
        )
    return _literal(tokenizer)


def save_tokenizer(tokenizer: Tokenizer, path: Path) -> None:
    """Write `tokenizer` to `path` atomically."""
    with atomic_path(path) as temporary:
        tokenizer.save(str(temporary))


def load_tokenizer(path: Path) -> Tokenizer:
    """Load a tokenizer; `encode(text).ids` never holds a special token, whatever the text says.

    Raises:
        SmeltError: the file is missing or damaged.
    """
    if not path.is_file():
        raise SmeltError(f"{path} does not exist")
    try:
        return _literal(Tokenizer.from_file(str(path)))
    except Exception as error:  # the library raises bare Exception
        raise SmeltError(f"{path} is not a tokenizer: {error}") from None


def _literal(tokenizer: Tokenizer) -> Tokenizer:
    # Text that happens to contain "<|bos|>" is text. The setting is not stored in the file.
    tokenizer.encode_special_tokens = True
    return tokenizer
