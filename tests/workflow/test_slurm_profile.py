"""The profile for SLURM plans what the study's plan says, and tells what is wrong with a cluster."""

import re
import subprocess

import pytest

from smelt.budget import resolve_run
from smelt.cluster import training_share
from smelt.study import load_study, run_points
from tests.workflow.conftest import copy_project

pytestmark = pytest.mark.workflow


@pytest.fixture(scope="module")
def fresh(tmp_path_factory):
    return copy_project(tmp_path_factory.mktemp("profile") / "project")


def dry_run(project, *config):
    return subprocess.run(
        project.command(
            *("train", "--dry-run", "--printshellcmds", "--workflow-profile", "workflow/profiles/slurm"),
            *("--config", *config),
        ),
        cwd=project.folder,
        env=project.environ(),
        capture_output=True,
        text=True,
        timeout=600,
    )


def test_every_run_of_the_paper_is_launched_on_the_nodes_that_it_needs(fresh):
    result = dry_run(fresh, "study=paper")
    assert result.returncode == 0, result.stdout + result.stderr
    launched = {
        run: launch
        for launch, run in re.findall(r"(srun .*?)python -m .*? --run (\S+)", result.stdout + result.stderr)
    }
    study = load_study("paper")
    nodes = {"node_devices": 8, "hours": 48, "launcher": "srun"}
    shares = {run: training_share(study, resolve_run(study, run), nodes) for run in run_points(study)}
    # A dry run counts on one core.
    assert launched == {run: share.launch(1) for run, share in shares.items()}


@pytest.mark.parametrize(
    ("cluster", "words"),
    [
        ({"device": "b200"}, ["cluster.device", "b200", "h200"]),
        ({"hours": 0}, ["cluster.hours", "0"]),
        ({"gpus": 8}, ["cluster", "gpus", "node_devices"]),
    ],
)
def test_a_wrong_description_of_the_cluster_is_refused(fresh, cluster, words):
    result = dry_run(fresh, "study=smoke", f"cluster={cluster}")
    text = result.stdout + result.stderr
    assert result.returncode != 0 and "Traceback" not in text
    assert all(word in text for word in words), text
