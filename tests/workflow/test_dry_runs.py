"""Shipped studies plan the right jobs, without running any."""

import fcntl

import pytest

from smelt.study import load_study, run_points
from tests.workflow.conftest import copy_project

pytestmark = pytest.mark.workflow


@pytest.fixture(scope="module")
def fresh(tmp_path_factory):
    return copy_project(tmp_path_factory.mktemp("fresh") / "project")


@pytest.mark.parametrize("study", ["smoke", "nano", "paper"])
def test_shipped_study_plans_one_training_per_run(fresh, study):
    jobs = fresh.planned(study)
    runs = run_points(load_study(study))
    grid = {run for run, point in runs.items() if point.group == "grid"}
    assert {job.split(":")[1] for job in jobs if job.startswith("train_run")} == set(runs)
    assert {job.split(":")[1] for job in jobs if job.startswith("evaluate_run")} == set(runs)
    assert {job.split(":")[1] for job in jobs if job.startswith("mechanism_run")} == grid


def test_stage_target_asks_for_no_later_stage(fresh):
    result = fresh.snakemake("--dry-run", "train")
    assert "train_run" in result.stdout
    assert "evaluate_run" not in result.stdout


def test_a_dry_run_announces_no_end(fresh):
    result = fresh.snakemake("--dry-run")
    assert result.returncode == 0, result.stderr
    assert "smoke/report/index.html" in result.stdout and "complete" not in result.stdout.lower()


def test_a_plan_is_printed_while_a_run_holds_the_lock(fresh):
    folder = fresh.folder / "held" / "smoke"
    folder.mkdir(parents=True)
    with open(folder / ".lock", "w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        result = fresh.snakemake("plan", results="held")
    assert result.returncode == 0, result.stdout + result.stderr
    assert "FLOPs" in result.stdout and "disk" in result.stdout


def test_second_seed_doubles_the_trainings(fresh):
    result = fresh.snakemake("--dry-run", "train", seeds="2")
    assert result.returncode == 0, result.stderr
    runs = len(run_points(load_study("smoke")))
    assert f"train_run {2 * runs}" in " ".join(result.stdout.split())
