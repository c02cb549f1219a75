"""From a run's name to its sizes: Baselines, printed sizes, matched sizes, controls."""

from __future__ import annotations

from dataclasses import replace

import pytest

from smelt.budget import resolve_run
from smelt.budget.resolve import matched
from smelt.errors import SmeltError
from smelt.study import load_study
from smelt.study.runs import find_point


def test_baselines_are_the_studys_scales():
    study = load_study("paper")
    geometry = resolve_run(study, "1.6B-s95-baseline").geometry
    assert (geometry.hidden, geometry.layers, geometry.experts, geometry.top_k) == (2304, 30, 192, 8)
    assert not geometry.looped


def test_paper_uses_the_printed_sizes_and_ours_on_request():
    study = load_study("paper")
    printed = resolve_run(study, "1.6B-s85-smelt").geometry
    assert (printed.hidden, printed.experts, printed.expert_dim) == (1848, 96, 640)
    assert list(printed.span) == list(range(7, 22))
    ours = replace(study, loop=replace(study.loop, solve=True))
    point = find_point(study, "1.6B-s85-smelt")
    assert resolve_run(ours, "1.6B-s85-smelt").geometry == matched(study, point).geometry != printed
    # S=0 is not among the printed ones and is always the solver's.
    assert resolve_run(study, "1.6B-s0-smelt") == resolve_run(ours, "1.6B-s0-smelt")


def test_control_has_the_experts_of_the_cells_looped_run():
    for name, cell in (("paper", "200M-s85"), ("smoke", "s-s85")):
        study = load_study(name)
        looped, control = (resolve_run(study, f"{cell}-{arch}").geometry for arch in ("smelt", "control"))
        assert (control.experts, control.expert_dim) == (looped.experts, looped.expert_dim)
        assert not control.looped


def test_ablations_keep_their_recipe():
    study = load_study("paper")
    shapes = {
        "200M-s85-span4": (12, 4, 4, 2),
        "200M-s85-span12": (12, 0, 12, 2),
        "200M-s85-depth14": (14, 3, 7, 2),
        "200M-s85-loops4": (12, 3, 6, 4),
        "200M-s85-flat15": (15, 0, 0, 1),
    }
    for run, (layers, start, length, count) in shapes.items():
        geometry = resolve_run(study, run).geometry
        assert (geometry.layers, geometry.loop_start, geometry.loop_length, geometry.loop_count) == (
            layers, start, length, count
        )  # fmt: skip


def test_seeds_share_sizes_but_no_hash():
    study = load_study("smoke")
    first, second = (resolve_run(study, f"s-s85-smelt{suffix}") for suffix in ("", "-seed1"))
    assert first.geometry == second.geometry
    assert first.spec_hash != second.spec_hash


def test_layer_order_reaches_looped_runs_only():
    study = load_study("smoke")
    study = replace(study, loop=replace(study.loop, order="layer"))
    assert resolve_run(study, "s-s85-smelt").geometry.loop_order == "layer"
    assert resolve_run(study, "s-s85-baseline").geometry.loop_order == "block"
    assert resolve_run(study, "s-s85-flat4").geometry.loop_order == "block"


def test_prescribed_sizes_far_from_the_budget_are_refused():
    study = load_study("paper")
    sizes = study.loop.configs["200M-s85"] | {"experts": 128}
    wrong = replace(study, loop=replace(study.loop, configs={"200M-s85": sizes}))
    with pytest.raises(SmeltError) as caught:
        resolve_run(wrong, "200M-s85-smelt")
    message = str(caught.value)
    assert message.startswith("study paper, run 200M-s85-smelt: loop.configs.200M-s85 has 1.320 times")
    assert "params" in message


def test_impossible_recipe_names_the_run():
    study = load_study("smoke")
    hopeless = replace(study, loop=replace(study.loop, visits=60))
    with pytest.raises(SmeltError, match=r"study smoke, run xs-s85-smelt: no sizes .* visits would work"):
        resolve_run(hopeless, "xs-s85-smelt")
