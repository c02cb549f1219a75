import math

import pytest

from smelt.train.schedule import DECAY, TRUNK, Itinerary, decay_lr, trunk_lr
from tests.train.tiny import tiny_spec


@pytest.fixture
def itinerary():
    return Itinerary(tiny_spec(horizons=(4, 7), decay_steps=3, warmup_steps=2, final_lr_fraction=0.1))


def test_the_trunk_warms_up_and_then_is_constant():
    rates = [trunk_lr(0.5, 4, step) for step in range(1, 8)]
    assert rates == [0.125, 0.25, 0.375, 0.5, 0.5, 0.5, 0.5]


def test_a_branch_decays_by_a_cosine_from_the_fork_to_the_final_rate():
    steps = 8
    rates = [decay_lr(0.4, 0.1, steps, step) for step in range(1, steps + 2)]
    assert rates[0] == 0.4
    assert rates[steps // 2] == pytest.approx(0.25)
    assert rates[steps] == pytest.approx(0.1)
    assert rates[steps - 1] == pytest.approx(0.1 + 0.3 * 0.5 * (1 - math.cos(math.pi / steps)))
    assert sorted(rates, reverse=True) == rates


def test_each_branch_follows_its_stretch_of_the_trunk(itinerary):
    places = [(u.phase, u.horizon, u.index, u.step) for u in itinerary]
    trunk = [(TRUNK, 0, step - 1, step) for step in range(1, 8)]
    branches = [[(DECAY, h, i, h + i + 1) for i in range(3)] for h in (4, 7)]
    assert places == trunk[:4] + branches[0] + trunk[4:] + branches[1]
    assert [u.step for u in itinerary if u.forks] == [4, 7]
    assert [(u.horizon, u.step) for u in itinerary if u.ends] == [(4, 7), (7, 10)]


def test_rates_at_each_boundary_and_one_step_to_either_side(itinerary):
    peak = tiny_spec().lr
    middle, late = (0.1 + 0.9 * 0.5 * (1 + math.cos(math.pi * i / 3)) for i in (1, 2))
    expected = [0.5, 1, 1, 1, 1, middle, late, 1, 1, 1, 1, middle, late]
    assert [u.lr / peak for u in itinerary] == pytest.approx(expected)


def test_tokens_count_trunk_and_branch(itinerary):
    assert itinerary.tokens_per_update == 4 * 16
    assert all(u.tokens == u.step * 64 for u in itinerary)


def test_a_branch_knows_its_fork(itinerary):
    forks = [itinerary.fork_of(done) for done in range(len(itinerary) + 1)]
    assert forks == [None] * 5 + [4] * 3 + [None] * 3 + [10] * 3


def test_there_is_nothing_beyond_the_last_update(itinerary):
    assert len(itinerary) == 13
    with pytest.raises(IndexError):
        itinerary[13]
