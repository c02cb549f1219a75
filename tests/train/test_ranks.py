"""Two gloo processes train what one process trains, with copies of the state or shards of it."""

import pytest

from smelt.model import ModelConfig
from smelt.model.weights import read_weights
from smelt.results.parquet import read_rows
from smelt.train.engine import train
from smelt.train.hardware import plan
from tests.train.tiny import RandomCorpus, digest, run_ranks, tiny_spec

TOLERANCE = 1e-5


def largest_difference(out, reference, column):
    rows, expected = (read_rows(folder / "train_log.parquet") for folder in (out, reference))
    assert len(rows) == len(expected)
    return max(abs(row[column] - other[column]) for row, other in zip(rows, expected, strict=True))


@pytest.fixture(scope="module")
def trained(tmp_path_factory):
    folders = {}
    for sharded in (False, True):
        folders[sharded] = tmp_path_factory.mktemp("ranks") / "run"
        assert run_ranks(folders[sharded], sharded) == [0, 0]
    return folders


@pytest.mark.parametrize("sharded", [False, True], ids=["ddp", "fsdp"])
def test_losses_equal_those_of_one_process(sharded, trained, finished):
    assert largest_difference(trained[sharded], finished, "loss") < TOLERANCE
    assert largest_difference(trained[sharded], finished, "balance_loss") < TOLERANCE
    assert largest_difference(trained[sharded], finished, "grad_norm") < 1e-3


@pytest.mark.parametrize("sharded", [False, True], ids=["ddp", "fsdp"])
def test_gradients_of_pieces_are_exchanged_once_and_whole(sharded, tmp_path):
    # Without the balance loss, which each piece has for itself.
    spec = tiny_spec(balance_loss=0.0)
    train(spec, RandomCorpus(), tmp_path / "one", plan(spec))
    assert run_ranks(tmp_path / "two", sharded, micro_tokens=16, balance_loss=0.0) == [0, 0]
    assert largest_difference(tmp_path / "two", tmp_path / "one", "loss") < TOLERANCE


@pytest.mark.parametrize("sharded", [False, True], ids=["ddp", "fsdp"])
def test_endpoints_are_whole_models(sharded, trained, finished):
    config = ModelConfig.from_spec(tiny_spec())
    name = "endpoints/h7.safetensors"
    weights, expected = (read_weights(folder / name, config) for folder in (trained[sharded], finished))
    assert max((weights[key] - expected[key]).abs().max() for key in expected) < 2e-4


def test_sharded_training_resumes_bitwise_after_a_kill(trained, tmp_path):
    out = tmp_path / "run"
    assert run_ranks(out, sharded=True, die_after=6) == [-9, -9]
    shards = sorted(path.name for path in (out / "resume").glob("000000006-*.safetensors"))
    assert shards == [f"000000006-{part}.safetensors" for part in ("0", "1", "rows")]
    assert run_ranks(out, sharded=True) == [0, 0]
    assert digest(out) == digest(trained[True])
