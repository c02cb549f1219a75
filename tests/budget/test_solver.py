"""The matching solver: every goal at full scale, sensible and honest at tiny scale."""

from __future__ import annotations

import itertools
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from smelt.budget import Recipe, budget, match
from smelt.budget.published import published, solved
from smelt.budget.resolve import matched
from smelt.budget.solver import GOALS, REFUSED, trade_off
from smelt.errors import SmeltError
from smelt.study import Geometry, load_study, run_points
from smelt.study.geometry import centred_start

BASE = Geometry(
    hidden=1280, layers=12, heads=10, kv_heads=2, head_dim=128, experts=64, top_k=8, expert_dim=432
)
HALF = Recipe(layers=12, start=3, length=6, count=2)
TINY = Geometry(hidden=48, layers=4, heads=2, kv_heads=1, head_dim=32, experts=64, top_k=8, expert_dim=24)


def errors(match):
    return {name: abs(value) for name, value in match.mismatch.items()}


def check(baseline: Geometry, recipe: Recipe, found, attended: float) -> None:
    """Check what holds for every answer."""
    geometry = found.geometry
    assert geometry.layers == recipe.layers
    assert (geometry.loop_start, geometry.loop_length, geometry.loop_count) == (
        recipe.start, recipe.length, recipe.count
    )  # fmt: skip
    assert geometry.hidden % recipe.align == 0
    assert geometry.expert_dim % recipe.align == 0
    assert geometry.head_dim % (4 if recipe.align >= 8 else 2) == 0
    assert geometry.heads % geometry.kv_heads == 0
    assert geometry.top_k == baseline.top_k
    assert geometry.experts >= geometry.top_k
    ratios = budget(geometry, attended).ratios(budget(baseline, attended))
    assert ratios == (found.flops_ratio, found.params_ratio, found.kv_ratio)
    assert max(errors(found).values()) <= REFUSED
    assert found.binding == tuple(name for name in GOALS if errors(found)[name] > GOALS[name])


@pytest.mark.parametrize("key", [key for key in published() if key[2] == "smelt"], ids=str)
def test_every_cell_of_the_paper_holds_the_goals(key):
    row = published()[key]
    found = solved(row)
    assert found.binding == ()
    assert found.geometry.head_dim % 8 == 0
    if row.geometry is not None:
        base = published()[key[0], key[1], "baseline"].geometry
        printed = budget(row.geometry, 391).ratios(budget(base, 391))
        # Tighter than the paper, in units of the goals; the KV cache alone is never worse.
        ours = [errors(found)[name] / goal for name, goal in GOALS.items()]
        theirs = [abs(ratio - 1) / goal for ratio, goal in zip(printed, GOALS.values(), strict=True)]
        assert sum(ours) < sum(theirs)
        assert max(ours) <= max(theirs) + 1e-9
        assert ours[2] <= theirs[2] + 1e-9
        assert max(ours[:2]) < max(theirs[:2])


def test_sparse_cells_of_a_scale_share_the_expert_ratio():
    for scale in ("100M", "200M", "600M", "1.6B"):
        ratios = {
            solved(row).geometry.experts / published()[scale, row.sparsity, "baseline"].geometry.experts
            for row in published().values()
            if row.scale == scale and row.arch == "smelt" and row.sparsity
        }
        assert ratios == {1.5}


def test_every_ablation_of_the_paper_holds_the_goals():
    study = load_study("paper")
    for point in run_points(study).values():
        if point.group != "grid":
            assert matched(study, point).binding == (), point.run


@st.composite
def problems(draw):
    kv_heads = draw(st.sampled_from([1, 2, 4, 8]))
    head_dim = draw(st.sampled_from([64, 96, 128]))
    heads = kv_heads * draw(st.integers(1, 4))
    hidden = draw(st.sampled_from([512, 768, 1024, 1536, 2048, 3072]))
    assume(0.5 <= heads * head_dim / hidden <= 1.5)
    layers = draw(st.integers(8, 32))
    baseline = Geometry(
        hidden=hidden,
        layers=layers,
        heads=heads,
        kv_heads=kv_heads,
        head_dim=head_dim,
        experts=draw(st.sampled_from([64, 96, 128, 192, 256])),
        top_k=8,
        expert_dim=8 * draw(st.integers(hidden // 32, hidden // 10)),
    )
    length = draw(st.integers(1, layers))
    recipe = Recipe(
        layers=layers,
        start=draw(st.integers(0, layers - length)),
        length=length,
        count=2,
        narrow=draw(st.sampled_from(["hidden", "experts", "heads"])),
    )
    return baseline, recipe


@settings(max_examples=60, deadline=None)
@given(problems(), st.sampled_from([128.0, 400.0]))
def test_random_baselines_and_recipes_are_matched(problem, attended):
    baseline, recipe = problem
    found = match(baseline, recipe, attended)
    check(baseline, recipe, found, attended)
    assert errors(found)["flops"] <= GOALS["flops"]
    assert errors(found)["params"] <= GOALS["params"]


@settings(max_examples=60, deadline=None)
@given(
    hidden=st.integers(8, 32), heads=st.integers(1, 4), half=st.integers(4, 24), expert=st.integers(3, 12),
    experts=st.sampled_from([8, 16, 64, 192]), layers=st.integers(3, 8), count=st.integers(2, 4),
    narrow=st.sampled_from(["hidden", "experts", "heads"]),
)  # fmt: skip
def test_tiny_sizes_are_matched_or_refused(hidden, heads, half, expert, experts, layers, count, narrow):
    baseline = Geometry(4 * hidden, layers, heads, 1, 2 * half, experts, 8, 4 * expert)
    length = layers // 2
    recipe = Recipe(layers, centred_start(layers, length), length, count, align=4, narrow=narrow)
    try:
        found = match(baseline, recipe, 90.0)
    except SmeltError as error:
        assert "away" in str(error)
        assert "would work" in str(error)
    else:
        check(baseline, recipe, found, 90.0)


def test_the_same_question_has_the_same_answer():
    answers = set()
    for _ in range(3):
        match.cache_clear()
        answers.add(match(BASE, HALF, 395.0))
    assert len(answers) == 1


def test_unlooped_and_unchanged_is_the_baseline_itself():
    for narrow in ("hidden", "experts", "heads"):
        found = match(BASE, Recipe(layers=12, narrow=narrow), 395.0)
        assert found.geometry == BASE
        assert (found.flops_ratio, found.params_ratio, found.kv_ratio) == (1, 1, 1)


def test_preference_decides_what_is_narrowed():
    hidden, experts, heads = (
        match(BASE, replace(HALF, narrow=narrow), 395.0).geometry for narrow in ("hidden", "experts", "heads")
    )
    assert hidden.hidden < 0.9 * BASE.hidden
    assert abs(experts.hidden / BASE.hidden - 1) < 0.02
    assert abs(heads.hidden / BASE.hidden - 1) < 0.02
    assert experts.expert_dim < heads.expert_dim
    assert heads.heads * heads.head_dim < experts.heads * experts.head_dim


def test_control_keeps_the_expert_geometry():
    looped = match(BASE, HALF, 395.0).geometry
    recipe = Recipe(layers=12, expert_geometry=(looped.experts, looped.expert_dim))
    found = match(BASE, recipe, 395.0)
    assert (found.geometry.experts, found.geometry.expert_dim) == (looped.experts, looped.expert_dim)
    assert not found.geometry.looped
    assert found.geometry.top_k > BASE.top_k
    # Whole experts and whole groups of heads leave steps of a few percent in the FLOPs.
    assert errors(found)["flops"] < 0.02
    assert errors(found)["params"] <= GOALS["params"]


def brute_force(baseline: Geometry, recipe: Recipe, attended: float) -> float:
    """Return the least worst mismatch, in goals, over every size of a small box."""
    target, best = budget(baseline, attended), np.inf
    experts = np.arange(8, 321)
    for hidden, expert_dim, head_dim, heads in itertools.product(
        range(36, 64, 4), range(4, 32, 4), (20, 22, 24), range(1, 5)
    ):
        first, second = (
            budget(
                replace(
                    baseline, hidden=hidden, expert_dim=expert_dim, head_dim=head_dim, heads=heads,
                    experts=count, loop_start=recipe.start, loop_length=recipe.length,
                    loop_count=recipe.count,
                ),
                attended,
            )
            for count in (8, 9)
        )  # fmt: skip
        # FLOPs and parameters are linear in the number of experts.
        flops = first.flops + (experts - 8) * (second.flops - first.flops)
        params = first.params + (experts - 8) * (second.params - first.params)
        ratios = (flops / target.flops, params / target.params, first.kv / target.kv)
        worst = np.max(
            np.broadcast_arrays(*(abs(r - 1) / g for r, g in zip(ratios, GOALS.values(), strict=True))),
            axis=0,
        )
        best = min(best, worst.min())
    return float(best)


def test_nothing_in_a_brute_forced_box_is_much_tighter():
    recipe = Recipe(layers=4, start=1, length=2, count=2, align=4, narrow="experts")
    found = match(TINY, recipe, 90.0)
    least = brute_force(TINY, recipe, 90.0)
    # 32 / 1.5 is no even head size: the KV cache alone costs 22 / 21.33.
    assert least == pytest.approx((22 * 1.5 / 32 - 1) / GOALS["kv"])
    assert max(errors(found)[name] / GOALS[name] for name in GOALS) <= least + 1e-9
    assert found.binding == ("kv",)


def test_trade_off_is_a_front():
    recipe = Recipe(layers=4, start=1, length=2, count=2, align=4, narrow="experts")
    front = trade_off(TINY, recipe, 90.0)
    assert match(TINY, recipe, 90.0) in front
    assert len({found.geometry for found in front}) == len(front) > 3
    # Somewhere the KV cache is off in the other direction: the choice that the head size forces.
    assert {found.kv_ratio > 1 for found in front} == {True, False}
    for found in front:
        check(TINY, recipe, found, 90.0)


@pytest.mark.parametrize(
    ("recipe", "words"),
    [
        (replace(HALF, count=60), ["visited 60 times", "KV cache per token", "visits would work"]),
        (replace(HALF, align=1024), ["multiples of 1024", "away"]),
        (replace(HALF, length=13, start=0), ["layers 1 to 13; the stack has 12"]),
        (replace(HALF, count=1), ["loop_length is 6 and loop_count is 1"]),
        (replace(HALF, narrow="depth"), ["narrow is 'depth'", "experts"]),
    ],
)
def test_impossible_recipes_are_refused(recipe, words):
    with pytest.raises(SmeltError) as caught:
        match(BASE, recipe, 395.0)
    message = str(caught.value)
    assert "\n" not in message
    for word in words:
        assert word in message


def test_hint_of_a_refusal_works():
    recipe = replace(HALF, count=60)
    with pytest.raises(SmeltError) as caught:
        match(BASE, recipe, 395.0)
    visits = int(str(caught.value).split("; ")[-1].split()[0])
    assert match(BASE, replace(recipe, count=visits), 395.0)
    with pytest.raises(SmeltError):
        match(BASE, replace(recipe, count=visits + 1), 395.0)


def test_looped_baseline_is_refused():
    looped = replace(BASE, loop_start=3, loop_length=6, loop_count=2)
    with pytest.raises(SmeltError, match="the Baseline is looped 2 times"):
        match(looped, HALF, 395.0)
