"""The schedule of executions: the one description of a loop."""

from __future__ import annotations

from collections import Counter

import pytest
from hypothesis import given
from hypothesis import strategies as st

from smelt.errors import SmeltError
from smelt.study import Execution, Geometry
from smelt.study.geometry import centred_start

SIZES = {"hidden": 8, "heads": 2, "kv_heads": 1, "head_dim": 4, "experts": 4, "top_k": 2, "expert_dim": 8}


def looped(layers: int, start: int, length: int, count: int, order: str = "block") -> Geometry:
    return Geometry(
        **SIZES, layers=layers, loop_start=start, loop_length=length, loop_count=count, loop_order=order
    )


@st.composite
def geometries(draw):
    layers = draw(st.integers(1, 12))
    length = draw(st.integers(0, layers))
    start = draw(st.integers(0, layers - length))
    count = draw(st.integers(2, 5)) if length else 1
    return looped(layers, start, length, count, draw(st.sampled_from(["block", "layer"])))


@given(geometries())
def test_schedule_invariants(geometry):
    schedule = geometry.schedule()
    assert len(schedule) == geometry.effective_layers
    visits = Counter(step.layer for step in schedule)
    assert visits == {
        layer: geometry.loop_count if layer in geometry.span else 1 for layer in range(geometry.layers)
    }
    for step in schedule:
        assert step.looped == (step.layer in geometry.span)
        assert step.scale == (1 / geometry.loop_count if step.looped else 1.0)
    for layer in range(geometry.layers):
        own = [step.visit for step in schedule if step.layer == layer]
        assert own == list(range(len(own)))
    # The scaled writes of a looped layer sum to one application.
    assert sum(step.scale for step in schedule) == pytest.approx(geometry.layers)


@given(geometries())
def test_first_visits_run_in_physical_order(geometry):
    first = [step.layer for step in geometry.schedule() if step.visit == 0]
    assert first == list(range(geometry.layers))


def test_block_order_repeats_the_span():
    assert [(s.layer, s.visit) for s in looped(4, 1, 2, 2).schedule()] == [
        (0, 0), (1, 0), (2, 0), (1, 1), (2, 1), (3, 0)
    ]  # fmt: skip


def test_layer_order_repeats_each_layer():
    assert [(s.layer, s.visit) for s in looped(4, 1, 2, 2, "layer").schedule()] == [
        (0, 0), (1, 0), (1, 1), (2, 0), (2, 1), (3, 0)
    ]  # fmt: skip


def test_unlooped_schedule():
    geometry = Geometry(**SIZES, layers=2)
    assert geometry.schedule() == (Execution(0, 0, 1.0, False), Execution(1, 0, 1.0, False))
    assert not geometry.looped
    assert list(geometry.span) == []


@pytest.mark.parametrize(("layers", "first", "last"), [(10, 3, 7), (12, 4, 9), (20, 6, 15), (30, 8, 22)])
def test_centred_span_of_the_paper(layers, first, last):
    # Section 1 gives the looped layers, counted from 1.
    start = centred_start(layers, layers // 2)
    assert (start + 1, start + layers // 2) == (first, last)


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"hidden": 0}, "hidden is 0; it must be at least 1"),
        ({"top_k": 5}, "top_k is 5; it must not exceed experts, which is 4"),
        ({"heads": 3, "kv_heads": 2}, "heads is 3; it must be a multiple of kv_heads, which is 2"),
        ({"head_dim": 5}, "head_dim is 5; rotary embedding needs an even head size"),
        ({"loop_order": "spiral"}, "loop_order is 'spiral'"),
        ({"loop_start": 2, "loop_length": 3, "loop_count": 2}, "layers 3 to 5; the stack has 4"),
        ({"loop_length": 2}, "loop_length is 2 and loop_count is 1"),
        ({"loop_count": 2}, "loop_length is 0 and loop_count is 2"),
        ({"loop_start": -1, "loop_length": 1, "loop_count": 2}, "at least 0"),
    ],
)
def test_impossible_sizes_are_refused(change, words):
    with pytest.raises(SmeltError) as caught:
        Geometry(**{**SIZES, "layers": 4, **change})
    assert words in str(caught.value)


def test_span_longer_than_the_stack_is_refused():
    with pytest.raises(SmeltError, match="a span of 5 layers does not fit a stack of 4"):
        centred_start(4, 5)
