"""What one update does: data, gradients, optimiser, measurements."""

import hashlib
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch

from smelt.errors import SmeltError
from smelt.model import LoopedLM, ModelConfig
from smelt.results.parquet import read_rows
from smelt.train.data import FIELDS, Share, Updates
from smelt.train.engine import train
from smelt.train.hardware import plan
from smelt.train.log import Row, rows_from_tensor, rows_to_tensor
from smelt.train.module import expert_loads, parameter_groups
from smelt.train.schedule import Itinerary
from tests.train.tiny import RandomCorpus, tiny_spec


def updates(spec, share=None):
    return Updates(spec, RandomCorpus(), Itinerary(spec), 0, share or Share())


def fingerprint(spec):
    """Return a hash of all tokens of a run in the order in which it sees them."""
    digest = hashlib.sha256()
    for _, _, pieces in (updates(spec)[number] for number in range(len(Itinerary(spec)))):
        for piece in pieces:
            for name in FIELDS:
                digest.update(piece[name].numpy().tobytes())
    return digest.hexdigest()


def test_both_members_of_a_pair_see_identical_tokens():
    baseline, smelt = tiny_spec("xs-s85-baseline"), tiny_spec("xs-s85-smelt")
    assert baseline.geometry != smelt.geometry
    assert fingerprint(baseline) == fingerprint(smelt)
    other = replace(smelt, point=replace(smelt.point, seed=1))
    assert fingerprint(other) != fingerprint(smelt)


def test_branches_read_fresh_tokens_and_the_same_ones():
    spec = tiny_spec()
    data = updates(spec)
    read = [(u.phase, u.index) for u in Itinerary(spec)]
    tokens = [data[number][2][0]["inputs_bt"] for number in range(len(data))]
    first, second = ([n for n, u in enumerate(Itinerary(spec)) if u.horizon == h] for h in (4, 7))
    assert all(torch.equal(tokens[a], tokens[b]) for a, b in zip(first, second, strict=True))
    assert len(set(read)) == 7 + 3
    trunk = [tokens[n] for n, (phase, _) in enumerate(read) if phase == "trunk"]
    assert not any(torch.equal(tokens[a], other) for a in first for other in trunk)


@pytest.mark.parametrize(("world", "pieces"), [(2, 1), (1, 2), (2, 2)])
def test_processes_and_pieces_divide_the_global_batch(world, pieces):
    spec = tiny_spec()
    whole = updates(spec)[3][2][0]
    parts = [updates(spec, Share(rank, world, pieces))[3] for rank in range(world)]
    for name in FIELDS:
        joined = torch.cat([piece[name] for _, _, pieces in parts for piece in pieces])
        assert torch.equal(joined, whole[name])
    assert sum(targets for _, targets, _ in parts) == int((whole["targets_bt"] >= 0).sum())


def test_pieces_make_the_same_update_as_the_batch_at_once(tmp_path):
    spec = tiny_spec(balance_loss=0.0)
    logs = []
    for pieces in (1, 4):
        out = tmp_path / str(pieces)
        train(spec, RandomCorpus(), out, replace(plan(spec), pieces=pieces))
        logs.append(read_rows(out / "train_log.parquet"))
    for row, other in zip(*logs, strict=True):
        assert row["loss"] == pytest.approx(other["loss"], abs=1e-5)
        assert row["grad_norm"] == pytest.approx(other["grad_norm"], abs=1e-4)


def test_matrices_decay_and_vectors_do_not():
    model = LoopedLM(ModelConfig.from_spec(tiny_spec()), 0)
    before = {name: parameter.detach().clone() for name, parameter in model.named_parameters()}
    optimizer = torch.optim.AdamW(parameter_groups(model, weight_decay=0.5), lr=0.1, fused=True)
    for parameter in model.parameters():
        parameter.grad = torch.zeros_like(parameter)
    optimizer.step()
    for name, parameter in model.named_parameters():
        kept = 1 - 0.1 * 0.5 if parameter.ndim > 1 else 1.0
        torch.testing.assert_close(parameter.detach(), before[name] * kept)
    decaying = {name for name, parameter in model.named_parameters() if parameter.ndim > 1}
    assert {name for name in before if "norm" in name} == before.keys() - decaying


def test_loads_are_relative_to_an_equal_share():
    assert expert_loads(torch.tensor([[2.0, 2, 2, 2], [1, 1, 2, 4]])) == (0.5, 2.0)
    assert expert_loads(torch.tensor([[8.0, 0, 0, 0]])) == (0.0, 4.0)


def test_rows_survive_a_checkpoint_exactly():
    rows = [Row(3, 1 / 3, 0.1, 2.5, 0.0, 1.7, 1e-3), Row(2**40, 5.0, 1e-300, 1.0, 0.5, 2.0, 7.1)]
    assert rows_from_tensor(rows_to_tensor(rows)) == rows
    assert rows_from_tensor(rows_to_tensor([])) == []


def test_a_loss_that_is_no_number_ends_the_run(tmp_path):
    spec = tiny_spec(lr=1.0)
    spec = replace(spec, lr=1e38)
    with pytest.raises(SmeltError, match=r"training diverged at step \d+ \(trunk\): loss"):
        train(spec, RandomCorpus(), tmp_path / "run", plan(spec))
    assert not (tmp_path / "run" / "manifest.json").exists()


def test_a_corpus_of_another_vocabulary_is_refused(tmp_path):
    corpus = RandomCorpus()
    corpus.vocab_size = 512
    with pytest.raises(SmeltError, match="the corpus has a vocabulary of 512; corpus.vocab of run xs"):
        train(tiny_spec(), corpus, tmp_path / "run", plan(tiny_spec()))


def test_the_batch_must_be_divisible_over_the_processes():
    with pytest.raises(SmeltError, match="training.batch is 4; it must be a multiple of the 3 processes"):
        plan(tiny_spec(), leased=3)


def test_activations_bound_the_size_of_a_piece():
    spec = tiny_spec(batch=48)
    assert plan(spec).pieces == 1
    long = replace(spec, corpus=replace(spec.corpus, context=4096))
    assert plan(long).pieces == 6  # 8 of 48 rows of 4096 tokens are 32768
    assert plan(long, leased=4).pieces == 2
    huge = replace(spec, corpus=replace(spec.corpus, context=131072))
    assert plan(huge).pieces == 48


def test_mfu_is_stated_where_the_peak_is(monkeypatch, tmp_path):
    spec = tiny_spec()
    monkeypatch.setenv("SMELT_PEAK_FLOPS", "1e9")
    train(spec, RandomCorpus(), tmp_path, plan(spec))
    log, speed = (read_rows(tmp_path / f"{name}.parquet") for name in ("train_log", "throughput"))
    flops_per_token = log[0]["flops"] / log[0]["tokens"]
    for row in [*log, *speed]:
        assert row["mfu"] == pytest.approx(row["tokens_per_s"] * flops_per_token / 1e9)
    assert {row["peak_flops"] for row in speed} == {1e9}
    assert [row["phase"] for row in speed] == ["decay", "trunk"]
    monkeypatch.setenv("SMELT_PEAK_FLOPS", "fast")
    with pytest.raises(SmeltError, match="SMELT_PEAK_FLOPS is 'fast'; it must be a number"):
        plan(spec)


def test_the_weights_and_the_folder_are_as_documented(finished):
    names = sorted(str(path.relative_to(finished)) for path in finished.rglob("*") if path.is_file())
    endpoints = ["endpoints/h4.safetensors", "endpoints/h7.safetensors"]
    tables = ["manifest.json", "throughput.parquet", "train_log.parquet"]
    assert names == sorted([*endpoints, *tables, "spec.json", *(f"complete/{name}" for name in tables)])
    assert np.all([Path(finished / name).stat().st_size for name in names])
