"""A process knows whether torchrun or srun started it with others."""

import pytest

from smelt.budget import resolve_run
from smelt.budget.plan import Placement
from smelt.errors import SmeltError
from smelt.study import load_study
from smelt.train import __main__ as command
from smelt.train.hardware import plan
from smelt.train.lean import LightningEnvironment, SLURMEnvironment
from smelt.train.placement import Group, check_group, own_devices, started_group

SPEC = resolve_run(load_study("smoke"), "xs-s85-smelt")
SRUN = {
    "SLURM_JOB_ID": "7",
    "SLURM_JOB_NAME": "a-job",
    "SLURM_NTASKS": "4",
    "SLURM_STEP_NUM_TASKS": "4",
    "SLURM_NTASKS_PER_NODE": "2",
    "SLURM_PROCID": "3",
    "SLURM_LOCALID": "1",
    "SLURM_NODEID": "1",
}
TORCHRUN = {
    "TORCHELASTIC_RUN_ID": "1",
    "RANK": "0",
    "WORLD_SIZE": "2",
    "LOCAL_WORLD_SIZE": "2",
    "LOCAL_RANK": "0",
}


@pytest.fixture(autouse=True)
def alone(monkeypatch):
    for name in (*SRUN, *TORCHRUN):
        monkeypatch.delenv(name, raising=False)


def enter(monkeypatch, variables):
    for name, value in variables.items():
        monkeypatch.setenv(name, value)


def test_on_its_own():
    assert started_group() is None
    assert isinstance(plan(SPEC).trainer_arguments()["plugins"][0], LightningEnvironment)


def test_torchrun(monkeypatch):
    enter(monkeypatch, TORCHRUN)
    assert started_group() == Group("torchrun", 0, 2, 2)
    assert plan(SPEC).trainer_arguments()["plugins"] == []


def test_srun(monkeypatch):
    enter(monkeypatch, SRUN)
    assert started_group() == Group("srun", 3, 4, 2)
    arguments = plan(SPEC).trainer_arguments()
    (environment,) = arguments["plugins"]
    assert isinstance(environment, SLURMEnvironment) and not environment.auto_requeue
    assert (environment.global_rank(), environment.local_rank(), environment.world_size()) == (3, 1, 4)
    assert (arguments["devices"], arguments["num_nodes"]) == (2, 2)


def test_a_job_of_one_task_is_on_its_own(monkeypatch):
    enter(monkeypatch, SRUN | {"SLURM_STEP_NUM_TASKS": "1", "SLURM_NTASKS": "1"})
    assert started_group() is None


def test_a_batch_script_of_many_tasks_that_starts_one_process_is_on_its_own(monkeypatch):
    enter(monkeypatch, {"SLURM_JOB_ID": "7", "SLURM_NTASKS": "4", "SLURM_PROCID": "0"})
    assert started_group() is None


def test_srun_without_tasks_of_a_node_is_refused(monkeypatch):
    enter(monkeypatch, SRUN)
    monkeypatch.delenv("SLURM_NTASKS_PER_NODE")
    with pytest.raises(SmeltError, match="--ntasks-per-node"):
        started_group()


def test_too_small_a_group_is_refused(monkeypatch):
    enter(monkeypatch, TORCHRUN)
    check_group(SPEC, Placement(2, 1024, 0.0))
    with pytest.raises(SmeltError, match=r"needs 4 devices .* torchrun started 2 processes.*cluster.device"):
        check_group(SPEC, Placement(4, 1024, 0.0))


def test_only_the_first_of_a_group_takes_the_lock(monkeypatch, tmp_path):
    monkeypatch.setattr(command, "_PATIENCE", 0.0)
    with command.locked(tmp_path):
        enter(monkeypatch, SRUN)
        with command.locked(tmp_path):  # the fourth of four
            pass
        monkeypatch.setenv("SLURM_PROCID", "0")
        with pytest.raises(SmeltError, match="another process is training"), command.locked(tmp_path):
            pass


def test_the_scheduler_gave_a_group_its_devices(monkeypatch):
    enter(monkeypatch, SRUN | {"SMELT_DEVICES": "0,1"})
    with own_devices(2) as first, own_devices(2) as second:
        assert first == second == ("0", "1")
