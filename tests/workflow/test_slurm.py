"""The workflow on a real SLURM of two nodes with stand-in GPUs, made by `make test-slurm`."""

import contextlib
import os
import re
import shutil
import subprocess

import pytest
import yaml

from smelt.budget import resolve_run
from smelt.cluster import training_share
from smelt.results.parquet import read_rows
from smelt.study import load_study, run_points
from tests.workflow.conftest import copy_project
from tests.workflow.slurm_cluster import obstacle, started
from tests.workflow.test_faults import contents, kill_tree, wait_for

pytestmark = [
    pytest.mark.workflow,
    pytest.mark.slurm,
    pytest.mark.skipif(bool(obstacle()), reason=obstacle()),
]
PROFILE = "workflow/profiles/slurm"
CANCELLED, REQUEUED = "xs-s85-smelt", "xs-s85-baseline"
UPDATES = 100  # trunk to 20, a branch of 10, trunk to 80, a branch of 10
SAVED_ANYWAY = {20, 30, 90, UPDATES}  # forks, and where the trunk goes on
STUDIES = {
    "tiny": {"batch": 4, "horizons": [20, 80], "decay_steps": 10},
    # No more than two processes can share its batch; each piece of that has a balance loss of its own.
    "pair": {"batch": 6, "horizons": [4, 7], "decay_steps": 3, "warmup_steps": 2, "balance_loss": 0.0},
}
SMALLER = {
    "evaluation": {"validation_tokens": 2048, "items": 2, "seeds": 1, "shots": [0]},
    "mechanism": {"tokens": 1024, "dyck_prompts": 1, "draws": 5},
    "laws": {"draws": 5, "tpp_draws": 5, "starts": 4},
}
PAIR = "xs-s85-smelt"
TOLERANCE = 1e-5  # of the loss
PATIENCE = 1500  # seconds for a workflow


@pytest.fixture(scope="module")
def slurm(tmp_path_factory):
    with started(tmp_path_factory.mktemp("slurm")):
        yield


@pytest.fixture(scope="module")
def project(tmp_path_factory):
    """A working copy with two studies of one cell."""
    project = copy_project(tmp_path_factory.mktemp("slurm") / "project")
    smoke = yaml.safe_load((project.folder / "config/studies/smoke.yaml").read_text())
    cell = smoke | {"sparsities": {85: 64}, "scales": {"xs": smoke["scales"]["xs"]}}
    cell |= {"ablations": {"scale": "xs", "control": {"sparsities": [85]}}}
    for section, changes in SMALLER.items():
        cell[section] = cell[section] | changes
    for name, changes in STUDIES.items():
        study = cell | {"name": name, "training": cell["training"] | changes}
        (project.folder / f"config/studies/{name}.yaml").write_text(yaml.safe_dump(study, sort_keys=False))
    # The stand-in nodes have no names that resolve.
    project.environment |= {"MASTER_ADDR": "127.0.0.1", "GLOO_SOCKET_IFNAME": "lo"}
    return project


@pytest.fixture(scope="module")
def tiny(project):
    return load_study(project.folder / "config/studies/tiny.yaml")


@pytest.fixture(scope="module")
def corpus(project):
    """The text of both studies."""
    result = project.snakemake("corpus", study="tiny", results="local")
    assert result.returncode == 0, result.stdout[-3000:] + result.stderr[-5000:]
    return project.folder / "local/tiny/corpus"


@pytest.fixture(scope="module")
def unscheduled(project, corpus):
    """`tiny` as this machine makes it without SLURM, under way beside the submitted one."""
    log = project.folder / "local.log"
    command = project.command("--cores", "2", "tables", "--config", "study=tiny", "results=local")
    with running(project, command, log) as process:
        yield process, log


@pytest.fixture(scope="module")
def local(unscheduled, project):
    """The folder of `tiny`, made without SLURM."""
    process, log = unscheduled
    assert process.wait(timeout=PATIENCE) == 0, log.read_text()[-8000:]
    return project.folder / "local/tiny"


@contextlib.contextmanager
def running(project, command, log, **variables):
    """Run a command in the project; it ends with this process, and at the latest with the block."""
    environment = project.environ() | variables
    command = ["setpriv", "--pdeathsig", "TERM", *command]
    with (
        log.open("w") as stream,
        subprocess.Popen(
            command, cwd=project.folder, env=environment, stdout=stream, stderr=subprocess.STDOUT
        ) as process,
    ):
        try:
            yield process
        finally:
            if process.poll() is None:
                kill_tree(process)


def submission(project, *targets, study, results, **cluster):
    """Return the shipped profile's command with partition and nodes of the stand-in cluster, hurried on."""
    nodes = project.folder / f"{results}.yaml"
    nodes.write_text(yaml.safe_dump({"cluster": {"device": "h200", "launcher": "srun", **cluster}}))
    return project.command(
        *targets,
        *("--workflow-profile", PROFILE),
        *("--default-resources", "slurm_partition=test", "slurm_account=none", "mem_mb=1000", "runtime=10"),
        *("--slurm-init-seconds-before-status-checks", "1", "--seconds-between-status-checks", "1"),
        *("--latency-wait", "5"),
        # What trains here is a processor, and it adds in another order with more threads.
        *("--set-threads", "train_run=1"),
        *("--configfile", nodes.name, "--config", f"study={study}", f"results={results}"),
    )


def submit(project, *targets, **settings):
    result = subprocess.run(
        submission(project, *targets, **settings),
        cwd=project.folder,
        env=project.environ(),
        capture_output=True,
        text=True,
        timeout=PATIENCE,
    )
    assert result.returncode == 0, result.stdout[-3000:] + result.stderr[-8000:]


def jobs(rule):
    """Return what SLURM knows of the jobs of a rule, the oldest first: one dictionary of texts each."""
    answer = subprocess.run(
        ["scontrol", "--oneliner", "show", "job"], capture_output=True, text=True, timeout=60, check=True
    )
    found = [dict(re.findall(r"(\w+)=(\S*)", line)) for line in answer.stdout.splitlines()]
    found.sort(key=lambda job: int(job.get("JobId", 0)))
    return [job for job in found if job.get("Comment", "").startswith(f"rule_{rule}")]


def memory(job):
    """Return the megabytes of each node."""
    return int(job["MinMemoryNode"].removesuffix("M"))


def gpus(job):
    """Return the devices in all."""
    return int(job.get("TresPerJob", "gres:gpu:0").removeprefix("gres:gpu:"))


@pytest.fixture(scope="module")
def submitted(slurm, project, unscheduled):
    """`tiny` from the text to the tables, two of its trainings disturbed; return what SLURM knows of it."""
    runs = project.folder / "submitted/tiny/runs"
    log = project.folder / "submitted.log"
    command = submission(project, "tables", study="tiny", results="submitted")
    # Only a signal then leaves a checkpoint between two forks.
    with running(project, command, log, SMELT_CHECKPOINT_SECONDS="100000") as process:
        pending, struck = {CANCELLED: ["scancel"], REQUEUED: ["scontrol", "requeue"]}, {}

        def begun():
            assert process.poll() is None, log.read_text()[-8000:]
            return [run for run in pending if (runs / run / "progress.json").exists()]

        while pending:
            wait_for(begun, PATIENCE)
            for run in begun():
                struck[run] = strike(runs / run, pending.pop(run))
        assert process.wait(timeout=PATIENCE) == 0, log.read_text()[-8000:]
    return struck, jobs("")


def strike(run, stroke):
    """Disturb a training that is under way; return the number of its job and the updates that it saved."""
    (job,) = jobs(f"train_run_wildcards_{run.name}")
    subprocess.run([*stroke, job["JobId"]], check=True, timeout=60)
    saved = []

    def between_forks():
        assert not (run / "manifest.json").exists(), "the training was over too soon"
        saved[:] = {int(path.stem) for path in run.glob("resume/*.json")} - SAVED_ANYWAY
        return saved

    wait_for(between_forks, PATIENCE)
    return job["JobId"], saved[0]


def test_tables_equal_those_of_the_local_run(submitted, project, local):
    found, expected = contents(project.folder / "submitted/tiny"), contents(local)
    held, alone = found.pop("stage_costs"), expected.pop("stage_costs")
    assert found == expected
    # Of what jobs cost, the devices that they held (the last column) are the machine's.
    assert [row[:-1] for row in held] == [row[:-1] for row in alone]
    assert all(row[-1] == 1 for row in held if row[0] == "train_run")


def test_jobs_ask_for_what_the_plan_says(submitted, tiny):
    found = submitted[1]
    for run in run_points(tiny):
        share = training_share(tiny, resolve_run(tiny, run), {"device": "h200"})
        first = [job for job in found if job["Comment"] == f"rule_train_run_wildcards_{run}"][0]
        assert (memory(first), gpus(first)) == (share.memory_mb, 1)
        assert first["TimeLimit"] == f"00:{share.minutes}:00"
        assert (first["NumNodes"], first["Requeue"]) == ("1", "1")
    for rule, devices in (("evaluate_run", 1), ("mechanism_run", 1), ("database", 0)):
        assert {gpus(job) for job in found if f"rule_{rule}" in job["Comment"]} == {devices}


def test_a_cancelled_job_is_submitted_again_with_more_memory_and_goes_on(submitted):
    struck, found = submitted
    number, saved = struck[CANCELLED]
    first, second = (job for job in found if job["Comment"] == f"rule_train_run_wildcards_{CANCELLED}")
    assert (first["JobId"], first["JobState"]) == (number, "CANCELLED")
    assert second["JobState"] == "COMPLETED"
    assert memory(second) == 2 * memory(first)
    assert 0 < saved < UPDATES


def test_a_requeued_job_keeps_its_number_and_goes_on(submitted):
    struck, found = submitted
    number, saved = struck[REQUEUED]
    (job,) = (job for job in found if job["Comment"] == f"rule_train_run_wildcards_{REQUEUED}")
    assert (job["JobId"], job["Restarts"], job["JobState"]) == (number, "1", "COMPLETED")
    assert 0 < saved < UPDATES


@pytest.fixture(scope="module")
def alone(project, corpus):
    """Losses of `pair` in one process."""
    shutil.copytree(corpus, project.folder / "alone/pair/corpus")
    target = f"alone/pair/runs/{PAIR}/train_log.parquet"
    result = project.snakemake(target, study="pair", results="alone")
    assert result.returncode == 0, result.stdout[-3000:] + result.stderr[-5000:]
    return [row["loss"] for row in read_rows(project.folder / target)]


@pytest.mark.parametrize(("node_devices", "nodes"), [(2, 1), (1, 2)], ids=["one node", "two nodes"])
def test_two_processes_train_what_one_does(
    slurm, project, corpus, alone, node_devices, nodes, tmp_path, monkeypatch
):
    """Copies of the state on one node, shards of it on two, as the memory of the stand-in devices decides."""
    if nodes == 2:
        tool = tmp_path / "nvidia-smi"
        tool.write_text('#!/bin/sh\ncase "$1" in *index) echo 0;; *) echo 10;; esac\n')
        tool.chmod(0o755)
        monkeypatch.setenv("PATH", str(tmp_path), prepend=os.pathsep)
    results = f"nodes{nodes}"
    shutil.copytree(corpus, project.folder / results / "pair/corpus")
    target = f"{results}/pair/runs/{PAIR}/train_log.parquet"
    submit(project, target, study="pair", results=results, node_devices=node_devices, hours=0.5)
    job = jobs(f"train_run_wildcards_{PAIR}")[-1]
    assert (job["NumNodes"], job["NumTasks"]) == (str(nodes), "2")
    assert gpus(job) == 2
    losses = [row["loss"] for row in read_rows(project.folder / target)]
    assert losses == pytest.approx(alone, rel=TOLERANCE)
    throughput = read_rows(project.folder / results / f"pair/runs/{PAIR}/throughput.parquet")
    assert {row["device"][:2] for row in throughput} == {"2 "}
