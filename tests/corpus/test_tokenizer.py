from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from smelt.corpus.batches import Permutation
from smelt.corpus.tokenizer import BOS, BOS_ID, PAD, PAD_ID, load_tokenizer, save_tokenizer, train_tokenizer
from smelt.errors import SmeltError

TEXTS = ["the quick brown fox", "def f(x):\n    return x + 12345", "naïve café 數學"] * 20


@pytest.fixture(scope="module")
def tokenizer(tmp_path_factory):
    path = tmp_path_factory.mktemp("tokenizer") / "t.json"
    save_tokenizer(train_tokenizer(TEXTS, 290), path)
    return load_tokenizer(path)


@given(st.text())
def test_any_text_survives(tokenizer, text):
    assert tokenizer.decode(tokenizer.encode(text).ids) == text


@given(st.binary())
def test_any_bytes_survive_as_text_with_escapes_replaced(tokenizer, data):
    text = data.decode("utf-8", "replace")
    ids = tokenizer.encode(text).ids
    assert tokenizer.decode(ids) == text
    assert not {BOS_ID, PAD_ID} & set(ids)


def test_special_tokens_are_never_made_from_text(tokenizer):
    text = f"a {BOS} b {PAD}"
    ids = tokenizer.encode(text).ids
    assert not {BOS_ID, PAD_ID} & set(ids) and tokenizer.decode(ids) == text
    assert tokenizer.token_to_id(BOS) == BOS_ID and tokenizer.token_to_id(PAD) == PAD_ID
    assert tokenizer.decode([BOS_ID, *ids, PAD_ID]) == text


def test_digits_are_single_tokens(tokenizer):
    assert len(tokenizer.encode("12345").ids) == 5


def test_size_is_exact_or_refused(tokenizer):
    assert tokenizer.get_vocab_size() == 290
    with pytest.raises(SmeltError, match=r"corpus\.vocab is 5000"):
        train_tokenizer(["few words"], 5000)


def test_training_is_deterministic():
    assert train_tokenizer(TEXTS, 290).to_str() == train_tokenizer(TEXTS, 290).to_str()


def test_a_damaged_file_is_one_sentence(tmp_path):
    (tmp_path / "t.json").write_text("{}")
    with pytest.raises(SmeltError, match=r"t\.json is not a tokenizer"):
        load_tokenizer(tmp_path / "t.json")


@pytest.mark.parametrize("n", [1, 2, 3, 5, 64, 1000])
def test_permutation_is_one(n):
    images = [Permutation(n, 1, 2)(i) for i in range(n)]
    assert sorted(images) == list(range(n))


def test_permutation_depends_on_all_keys_and_mixes():
    base = [Permutation(1000, 1, 2, 3)(i) for i in range(1000)]
    for other in ((1000, 2, 2, 3), (1000, 1, 3, 3), (1000, 1, 2, 4)):
        images = [Permutation(*other)(i) for i in range(1000)]
        assert sum(a == b for a, b in zip(base, images, strict=True)) < 10
    assert abs(sum(b > a for a, b in zip(base, base[1:], strict=False)) - 500) < 60
    big = Permutation(10**12, 0)
    assert len({big(i) for i in range(100)}) == 100
