"""Identifiers of runs, the rows of the ablation tables, and the hash of a specification."""

from __future__ import annotations

import json
from dataclasses import replace

import pytest

from smelt.budget import resolve_run
from smelt.errors import SmeltError
from smelt.study import Geometry, RunPoint, RunSpec, ablation_points, load_study, run_points
from smelt.study import runs as runs_module
from smelt.study.runs import find_point, learning_rate
from smelt.study.study import CorpusSpec, ModelSpec, TrainingSpec
from tests.study.conftest import changed

SPEC = RunSpec(
    point=RunPoint("a-s85-smelt", "grid", "a", 85, "smelt", 0, 4, 2, 2, "a-s85-baseline"),
    geometry=Geometry(16, 4, 2, 1, 8, 8, 2, 8, loop_start=1, loop_length=2, loop_count=2),
    corpus=CorpusSpec("small", 512, 64, 20.0),
    model=ModelSpec(2),
    training=TrainingSpec(4, (10, 20), 5, 2, 0.01),
    lr=0.01,
)


def test_smoke_runs():
    assert list(run_points(load_study("smoke"))) == [
        "xs-s85-baseline", "xs-s85-smelt", "xs-s95-baseline", "xs-s95-smelt",
        "s-s85-baseline", "s-s85-smelt", "s-s95-baseline", "s-s95-smelt",
        "s-s85-span2", "s-s85-flat4", "s-s85-depth4", "s-s85-loops3", "s-s85-control",
    ]  # fmt: skip


def test_paper_rows_are_those_of_tables_3_to_5():
    rows = ablation_points(load_study("paper"))
    by_table = {
        name: [(row.sparsity, row.arch, row.value) for row in rows if row.ablation == name]
        for name in ("span", "depth", "loops")
    }
    assert [value for s, _, value in by_table["span"] if s == 95] == [0, 2, 4, 6, 8, 10, 12]
    assert [value for _, arch, value in by_table["depth"] if arch == "baseline"] == [9, 12, 15, 18]
    assert [value for _, arch, value in by_table["depth"] if arch == "looped"] == [8, 10, 12, 14]
    assert [value for *_, value in by_table["loops"]] == [1, 2, 3, 4]
    # The rows that the grid has are not trained twice.
    shared = {row.run for row in rows} & {"200M-s85-baseline", "200M-s85-smelt", "200M-s95-smelt"}
    assert len(shared) == 3
    assert {row.run for row in rows} <= run_points(load_study("paper")).keys()


def test_seeds_have_their_own_baselines():
    points = run_points(load_study("smoke"), seeds=3)
    assert len(points) == 3 * 13
    point = points["s-s85-loops3-seed2"]
    assert (point.seed, point.baseline, point.cell) == (2, "s-s85-baseline-seed2", "s-s85")
    assert points["s-s85-baseline-seed2"].baseline is None


def test_ablations_may_have_fewer_seeds_than_the_grid():
    study = load_study("smoke")
    study = replace(study, ablations={**study.ablations, "seeds": 2})
    groups = [(point.seed, point.group == "grid") for point in run_points(study, seeds=3).values()]
    assert [groups.count((seed, True)) for seed in range(3)] == [8, 8, 8]
    assert [groups.count((seed, False)) for seed in range(3)] == [5, 5, 0]


def test_find_point_of_a_seed_beyond_the_study():
    study = load_study("smoke")
    assert find_point(study, "s-s85-smelt-seed7").seed == 7
    for name in ("s-s85-smelt-seed", "s-s86-smelt", "", "s-s85-smelt;ls", "S-s85-smelt"):
        with pytest.raises(SmeltError, match="has no run"):
            find_point(study, name)


def test_lr_of_a_pair_is_the_baselines_width():
    study = load_study("paper")
    assert learning_rate(study, "200M") == pytest.approx(0.0012)
    assert learning_rate(study, "600M") == pytest.approx(0.0012 * (1280 / 1792) ** 0.5)


def test_hash_is_golden(monkeypatch):
    # Changes of this value retrain every run of every study: raise TRAINING_CODE instead where one is meant.
    monkeypatch.setattr(runs_module, "TRAINING_CODE", 1)
    assert SPEC.spec_hash == "18be714291af124f595e49baf6548fab84dbfbc45593b73f8ae983ab910f6bce"


def test_hash_ignores_labels():
    point = replace(SPEC.point, run="other", group="span", scale="b", baseline=None)
    same = [
        replace(SPEC, point=point),
        replace(SPEC, training=replace(SPEC.training, logger="wandb")),
    ]
    assert {spec.spec_hash for spec in same} == {SPEC.spec_hash}


def test_hash_sees_everything_else(monkeypatch):
    others = [
        replace(SPEC, point=replace(SPEC.point, seed=1)),
        replace(SPEC, geometry=replace(SPEC.geometry, hidden=32)),
        replace(SPEC, geometry=replace(SPEC.geometry, loop_order="layer")),
        replace(SPEC, corpus=replace(SPEC.corpus, vocab=513)),
        # The FLOPs of the run's rows are counted with it.
        replace(SPEC, corpus=replace(SPEC.corpus, attended_context=33.0)),
        replace(SPEC, model=replace(SPEC.model, qk_norm=False)),
        replace(SPEC, training=replace(SPEC.training, horizons=(10, 21))),
        replace(SPEC, training=replace(SPEC.training, z_loss=0.1)),
        replace(SPEC, lr=0.02),
    ]
    hashes = {spec.spec_hash for spec in [SPEC, *others]}
    assert len(hashes) == len(others) + 1
    monkeypatch.setattr(runs_module, "TRAINING_CODE", runs_module.TRAINING_CODE + 1)
    assert SPEC.spec_hash not in hashes


def test_spec_survives_json():
    raw = json.loads(json.dumps(SPEC.to_dict()))
    assert RunSpec.from_dict(raw) == SPEC
    assert raw["spec_hash"] == SPEC.spec_hash


def test_hash_does_not_depend_on_how_a_number_is_written(write):
    hashes = set()
    for value in (1, 1.0):
        study = load_study(write(changed("training.weight_decay", value)))
        hashes.add(resolve_run(study, "xs-s85-smelt").spec_hash)
    assert len(hashes) == 1
