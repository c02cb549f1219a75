"""Trees of sequences and batches: the same numbers as one sequence at a time."""

import dataclasses
import random

import numpy as np
import pytest
import torch

from smelt.budget import resolve_run
from smelt.evaluate.scoring import computes_in_half, score, tree_mask
from smelt.evaluate.sequences import Scored
from smelt.evaluate.trees import batches, plant
from smelt.study import load_study
from tests.evaluate.toys import tiny_model

VOCAB = 40


def sequences(rng, options, context=12, shared=True):
    """Return the sequences of one item; options differ in answer or, as in schema tasks, in context."""
    start = [0, *(rng.randrange(1, VOCAB) for _ in range(context))]
    result = []
    for _ in range(options):
        answer = [rng.randrange(1, VOCAB) for _ in range(rng.randrange(1, 5))]
        before = start if shared else [*start[:-3], *(rng.randrange(1, VOCAB) for _ in range(3))]
        result.append(Scored(before + answer, len(before), 1, False))
    return result


@pytest.fixture(scope="module")
def cases():
    rng = random.Random(3)
    return [sequences(rng, rng.randrange(1, 5), rng.randrange(1, 30), rng.random() < 0.6) for _ in range(40)]


@pytest.fixture(scope="module")
def model():
    return tiny_model(VOCAB)


def alone(model, sequence):
    with torch.no_grad():
        log_p_tv = model(torch.tensor([sequence.ids]))[0].log_softmax(-1)
    places = range(sequence.start - 1, len(sequence.ids) - 1)
    nll = -sum(log_p_tv[t, sequence.ids[t + 1]].item() for t in places)
    return nll, all(log_p_tv[t].argmax().item() == sequence.ids[t + 1] for t in places)


def test_trees_score_like_single_sequences(model, cases):
    answers = score(model, cases, pad=0)
    expected = [alone(model, sequence) for case in cases for sequence in case]
    np.testing.assert_allclose(answers.nll, [nll for nll, _ in expected], atol=2e-5)
    assert answers.greedy.tolist() == [greedy for _, greedy in expected]
    assert answers.tokens.tolist() == [len(s.ids) - s.start for case in cases for s in case]
    assert 0 < answers.greedy.sum() < len(expected)


@pytest.mark.parametrize("batch_tokens", [1, 64, 300, 10_000])
def test_results_do_not_depend_on_the_batch_size(model, cases, batch_tokens):
    reference = score(model, cases, pad=0)
    answers = score(model, cases, pad=0, batch_tokens=batch_tokens)
    np.testing.assert_allclose(answers.nll, reference.nll, rtol=0, atol=1e-5)
    assert (answers.greedy == reference.greedy).all()


def test_results_do_not_depend_on_order_or_padding_id(model, cases):
    reference, backwards = score(model, cases, pad=0), score(model, cases[::-1], pad=7)
    ends = np.cumsum([len(case) for case in cases])
    parts = np.split(reference.nll, ends[:-1])
    np.testing.assert_allclose(backwards.nll, np.concatenate(parts[::-1]), rtol=0, atol=1e-5)


def test_a_branch_is_blind_to_the_others(model):
    rng = random.Random(5)
    case = sequences(rng, 3)
    other = [case[0], *sequences(rng, 2)]
    other = [case[0]] + [
        Scored(case[0].ids[: case[0].start] + s.ids[s.start :], case[0].start, 1, False) for s in other[1:]
    ]
    first = score(model, [case], pad=0).nll[0]
    np.testing.assert_allclose(score(model, [other], pad=0).nll[0], first, rtol=0, atol=1e-5)


def test_shared_tokens_are_computed_once():
    tree = plant([Scored([1, 2, 3, 4], 3, 1, False), Scored([1, 2, 3, 5], 3, 1, False)])
    assert tree.ids == [1, 2, 3] and tree.where == [[2], [2]] and tree.targets == [[4], [5]]
    tree = plant([Scored([1, 2, 4, 6], 2, 1, False), Scored([1, 2, 5, 6, 7], 2, 1, False)])
    assert tree.ids == [1, 2, 4, 5, 6] and tree.positions == [0, 1, 2, 2, 3]
    assert tree.branches == [0, 0, 1, 2, 2] and tree.where == [[1, 2], [1, 3, 4]]


def test_an_ending_inside_the_trunk_needs_no_tokens_of_its_own():
    # "run" and "run fast": the first answer ends where the second goes on
    tree = plant([Scored([1, 2], 1, 1, False), Scored([1, 2, 3], 1, 1, False)])
    assert tree.ids == [1, 2] and tree.where == [[0], [0, 1]] and tree.branches == [0, 2]


def test_mask():
    mask_ts = tree_mask(torch.tensor([[0, 0, 1, 2, 2, -1]]))[0, 0].int().tolist()
    assert mask_ts[:5] == [
        [1, 0, 0, 0, 0, 0],
        [1, 1, 0, 0, 0, 0],
        [1, 1, 1, 0, 0, 0],
        [1, 1, 0, 1, 0, 0],
        [1, 1, 0, 1, 1, 0],
    ]


def test_batches_hold_every_row_once_and_fit(cases):
    trees = [plant(case) for case in cases]
    seen = []
    for batch in batches(trees, 200, pad=0):
        rows, longest = batch.ids_bt.shape
        assert rows == 1 or rows * longest <= 200
        assert (batch.branches_bt >= 0).any(1).all()
        seen += np.unique(batch.owners).tolist()
    assert sorted(seen) == list(range(sum(len(case) for case in cases)))


def test_progress_counts_cases_and_tokens(model, cases):
    seen = []
    score(model, cases, pad=0, batch_tokens=100, progress=lambda *counts: seen.append(counts))
    assert sum(prompts for prompts, _ in seen) == len(cases)
    assert sum(tokens for _, tokens in seen) == sum(len(plant(case).ids) for case in cases)


def test_layers_may_run_in_bfloat16(model, cases):
    """As a run on CUDA does, here on CPU: losses move by rounding only."""
    reference, answers = score(model, cases, pad=0), score(model, cases, pad=0, half=True)
    moved = np.abs(answers.nll - reference.nll) / answers.tokens
    assert moved.max() > 1e-4 and np.median(moved) < 0.1


@pytest.mark.parametrize(
    ("precision", "device", "half"),
    [("auto", "cpu", False), ("auto", "cuda", True), ("fp32", "cuda", False), ("bf16", "cpu", True)],
)
def test_the_precision_is_that_of_training(precision, device, half):
    spec = resolve_run(load_study("smoke"), "xs-s85-smelt")
    spec = dataclasses.replace(spec, training=dataclasses.replace(spec.training, precision=precision))
    assert computes_in_half(spec, device) == half
