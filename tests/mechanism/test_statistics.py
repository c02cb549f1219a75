import math

import numpy as np
import pytest
import torch
from scipy import stats

from smelt.errors import SmeltError
from smelt.mechanism.bootstrap import DocumentSums, diagnostic, fields, interval
from smelt.mechanism.statistics import (
    chance_spread,
    control_head,
    cosine,
    hypergeometric,
    mass_overlap,
    rms,
    shared_count,
    top_tokens,
)


def test_shared_count_of_known_sets():
    a = torch.tensor([[1, 2, 3, 4], [1, 2, 3, 4], [7, 8, 9, 0]])
    b = torch.tensor([[4, 3, 2, 1], [5, 6, 7, 1], [1, 2, 3, 4]])
    assert shared_count(a, b).tolist() == [4, 1, 0]


@pytest.mark.parametrize(("experts", "top_k"), [(8, 8), (64, 8), (336, 8), (16, 3), (5, 4)])
def test_hypergeometric_is_scipys_and_its_mean_the_chance_line(experts, top_k):
    ours = hypergeometric(experts, top_k)
    assert ours == pytest.approx(stats.hypergeom(experts, top_k, top_k).pmf(range(top_k + 1)), abs=1e-12)
    assert sum(s * p for s, p in enumerate(ours)) == pytest.approx(top_k**2 / experts)


def test_chance_spread_holds_the_level_and_no_smaller_range_does():
    low, high = chance_spread(64, 8)
    pmf = hypergeometric(64, 8)
    assert (low, high) == (0, 3)
    assert sum(pmf[: high + 1]) >= 0.975 > sum(pmf[:high])
    assert chance_spread(8, 8) == (8, 8)


def test_cosine_and_rms():
    a = torch.tensor([[3.0, 4.0], [1.0, 0.0], [0.0, 0.0]])
    b = torch.tensor([[3.0, 4.0], [-2.0, 0.0], [1.0, 0.0]])
    assert cosine(a, b).tolist() == pytest.approx([1, -1, 0])
    assert cosine(a.bfloat16(), b.bfloat16()).dtype == torch.float32
    assert rms(a).tolist() == pytest.approx([math.sqrt(12.5), math.sqrt(0.5), 0])


def test_mass_overlap_of_equal_and_of_disjoint_rows():
    a = torch.tensor([[0.5, 0.5, 0.0], [1.0, 0.0, 0.0], [0.7, 0.2, 0.1]])
    b = torch.tensor([[0.5, 0.5, 0.0], [0.0, 0.5, 0.5], [0.1, 0.2, 0.7]])
    assert mass_overlap(a, b).tolist() == pytest.approx([1, 0, 0.4])


def test_top_tokens_refuses_rows_that_are_too_short():
    assert top_tokens(torch.tensor([0.1, 0.5, 0.4]), 2).tolist() == [1, 2]
    with pytest.raises(SmeltError, match="7 positions; the 8 most attended"):
        top_tokens(torch.rand(2, 7))


def test_control_head_is_half_the_head_count_away():
    assert [control_head(heads) for heads in (1, 2, 3, 22)] == [None, 1, 1, 11]


def sums_of(values, documents, draws=400, pieces=1):
    sums = DocumentSums(draws)
    for v, d in zip(values.chunk(pieces), documents.chunk(pieces), strict=True):
        sums.begin(d)
        sums.add("x", v)
    return sums


def test_value_is_the_plain_mean_and_padding_counts_nothing():
    values, documents = torch.tensor([1.0, 2.0, 6.0, 100.0]), torch.tensor([0, 0, 1, -1])
    sums = sums_of(values, documents)
    assert sums.mean("x")[0, 0] == 3
    assert sums.documents == {0, 1}
    assert sums.count("x") == 3


def test_invalid_tokens_leave_sum_and_count_even_when_not_finite():
    sums = DocumentSums(10)
    sums.begin(torch.tensor([0, 0, 1]))
    sums.add("x", torch.tensor([1.0, float("nan"), 3.0]), torch.tensor([True, False, True]))
    assert sums.mean("x")[0, 0] == 2
    assert sums.count("x") == 2


def test_document_spread_over_batches_is_drawn_as_a_whole():
    values, documents = torch.rand(60), torch.arange(60) % 7
    whole, split = sums_of(values, documents), sums_of(values, documents, pieces=6)
    assert np.allclose(whole.mean("x"), split.mean("x"))


def test_interval_has_the_width_of_the_documents_not_of_the_tokens():
    generator = torch.Generator().manual_seed(0)
    levels = torch.randn(200, generator=generator)
    documents = torch.arange(200).repeat_interleave(50)
    sums = sums_of(levels[documents], documents, draws=2000)
    value, low, high = interval(sums.mean("x")[:, 0])
    expected = 2 * 1.96 * levels.std().item() / math.sqrt(200)
    assert high - low == pytest.approx(expected, rel=0.1)
    assert low < value < high


def test_interval_covers_the_truth_as_often_as_it_says():
    generator = torch.Generator().manual_seed(1)
    covered = 0
    for trial in range(200):
        sums = DocumentSums(200, seed=trial)
        sums.begin(torch.arange(80))
        sums.add("x", torch.randn(80, generator=generator))
        _, low, high = interval(sums.mean("x")[:, 0])
        covered += low <= 0 <= high
    assert 0.88 <= covered / 200 <= 0.99


def test_no_valid_token_is_an_error_and_one_document_gives_draws_without_tokens():
    sums = DocumentSums(50)
    sums.begin(torch.tensor([3, 3]))
    sums.add("x", torch.ones(2), torch.zeros(2, dtype=torch.bool))
    with pytest.raises(SmeltError, match="no token of the sample has a value of x"):
        sums.mean("x")
    sums.add("y", torch.ones(2))
    draws = sums.mean("y")[:, 0]
    assert np.isnan(draws).any()
    assert interval(draws) == (1, 1, 1)


def test_no_draws_give_no_interval():
    assert fields(np.array([0.5]), "mass") == {"mass": 0.5, "low": None, "high": None}


def test_diagnostic_takes_the_difference_draw_by_draw():
    value, reference = np.array([3.0, 5.0, 9.0]), np.array([1.0, 3.0, 7.0])
    row = diagnostic("run", "name", value, reference)
    assert (row["difference"], row["difference_low"], row["difference_high"]) == (2, 2, 2)
    assert diagnostic("run", "name", value)["difference"] is None
