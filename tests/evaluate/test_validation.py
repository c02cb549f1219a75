"""Held-out loss: sums by document, rows by source and length, and the average over sources."""

import numpy as np
import pytest
import torch

from smelt.errors import SmeltError
from smelt.evaluate.validation import (
    DocumentLosses,
    document_losses,
    length_bucket,
    validation_loss,
    validation_rows,
)
from tests.evaluate.toys import tiny_model


def test_length_buckets():
    lengths = np.array([1, 32, 33, 64, 65, 4096, 4097, 100_000])
    assert length_bucket(lengths).tolist() == [32, 32, 64, 64, 128, 4096, 4096, 4096]


def test_document_sums_equal_each_document_alone(corpus):
    """A packed batch gives every document the loss it has in a row of its own."""
    model, context = tiny_model(corpus.vocab_size), 96
    batches = list(corpus.validation(context, 1500, 4))
    losses = document_losses(model, batches, len(corpus.documents["source"]))
    touched = np.flatnonzero(losses.tokens)
    assert set(touched) <= set(corpus.validation_documents(context, 1500)) and len(touched) > 10
    for i in touched[:12]:
        ids = torch.tensor([corpus.bos, *corpus.tokenizer.encode(corpus.text(i)).ids][: context + 1])[None]
        with torch.no_grad():
            log_p_tv = model(ids[:, :-1])[0].log_softmax(-1)
        expected = -log_p_tv.gather(1, ids[0, 1:, None]).sum().item()
        assert losses.tokens[i] == ids.shape[1] - 1
        assert losses.loss[i] == pytest.approx(expected, rel=1e-5)


def test_rows_add_up_and_the_loss_averages_over_sources():
    documents = {
        "source": np.array(["a", "a", "b", "a"]),
        "category": np.array(["Code", "Code", "Web", "Code"]),
        "tokens": np.array([10, 20, 200, 40]),
    }
    losses = DocumentLosses(np.array([2.0, 6.0, 9.0, 0.0]), np.array([1, 3, 3, 0]))
    rows = validation_rows("r", 5, losses, documents)
    assert [(r["source"], r["length_bucket"], r["tokens"], r["loss_sum"], r["documents"]) for r in rows] == [
        ("a", 32, 4, 8.0, 2),
        ("b", 256, 3, 9.0, 1),
    ]
    # source a: 8 / 4 = 2, source b: 9 / 3 = 3; pooled over tokens it would be 17 / 7
    assert validation_loss(rows) == pytest.approx(2.5)


def test_no_tokens_is_an_error():
    with pytest.raises(SmeltError, match="no tokens"):
        validation_loss([])
