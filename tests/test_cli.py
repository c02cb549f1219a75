"""How a stage's command ends: with its status, with one sentence, or with the workflow that started it."""

import os
import subprocess
import sys

import pytest

from smelt.cli import JOB_VARIABLE
from smelt.files import ROOT

SLEEPER = (
    "import time; from smelt.cli import run; run(lambda: print('started', flush=True) or time.sleep(3600))"
)


def start(code, **variables):
    environment = {key: value for key, value in os.environ.items() if key != JOB_VARIABLE}
    return subprocess.Popen(
        ["bash", "-c", f'{sys.executable} -c "$CODE"; true'],
        env={**environment, "CODE": code, **variables},
        cwd=ROOT,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )


@pytest.mark.skipif(sys.platform != "linux", reason="the kernel tells of a parent's end only on Linux")
def test_a_job_of_a_workflow_ends_with_what_started_it():
    shell = start(SLEEPER, **{JOB_VARIABLE: "1"})
    assert shell.stdout.readline() == "started\n"
    shell.kill()
    # The job holds the other end of the pipe: it reads to its end once the job is gone.
    shell.communicate(timeout=300)


def test_a_command_started_by_hand_outlives_its_shell():
    shell = start(SLEEPER.replace("sleep(3600)", "sleep(1) or print('done')"))
    assert shell.stdout.readline() == "started\n"
    shell.kill()
    assert shell.communicate(timeout=300) == ("done\n", "")


@pytest.mark.parametrize(
    ("fault", "told"),
    [
        ("SmeltError('a.yaml: x is 3; it must be 4')", "error: a.yaml: x is 3; it must be 4\n"),
        ("OSError(28, 'No space left on device', 'a')", "error: No space left on device: a\n"),
    ],
)
def test_a_refusal_is_one_sentence_and_status_two(fault, told):
    code = "from smelt.cli import run; from smelt.errors import SmeltError\n"
    code += f"def main(): raise {fault}\nrun(main)"
    ended = subprocess.run([sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True)
    assert (ended.returncode, ended.stdout, ended.stderr) == (2, "", told)
