# The study behind the workflow: its runs, paths, code fingerprints, devices, progress and lock.
import functools
import os
import sys
from dataclasses import replace

sys.path.insert(0, workflow.basedir)

from smelt import warm
from smelt.budget import resolve_point
from smelt.cluster import reading_share, training_share
from smelt.devices import visible
from smelt.errors import SmeltError
from smelt.workflow import (
    ProgressLine,
    StudyLock,
    check_config,
    check_folder,
    check_sources,
    code_fingerprint,
    redate,
    settings_hash,
    use_own_interpreter,
)
from smelt.study import load_study, run_points, study_path
from smelt.train.placement import place

use_own_interpreter()
# No shell stays between Snakemake and a job, which then ends with it, even if it is killed.
shell.prefix("set -euo pipefail; exec ")

try:
    check_config(config)
    check_folder(config["results"])
    STUDY = load_study(config["study"])
    check_sources(STUDY)
    STUDY_FILE = os.path.relpath(study_path(config["study"]))
    POINTS = run_points(STUDY, config.get("seeds"))
    # All that determines a run; only a changed hash of it trains a run again.
    SPECS = {run: resolve_point(STUDY, point) for run, point in POINTS.items()}
    GPUS = len(visible())
except SmeltError as error:
    raise WorkflowError(str(error))

SEEDS = config.get("seeds", STUDY.seeds)
RESULTS = f"{config['results']}/{STUDY.name}"
CACHE = config["cache"]
if (
    workflow.is_main_process
):  # which plans; a job on another machine reads this file too
    redate(
        RESULTS,
        CACHE,
        "config",
        "data/corpus.lock",
        "notebooks",
        "smelt/report/templates",
    )
RUNS = list(POINTS)
GRID_RUNS = [run for run, point in POINTS.items() if point.group == "grid"]

# What jobs run on that another machine executes; absent where this one does.
CLUSTER = config.get("cluster")

if CLUSTER is None:
    # Without a limit Snakemake would start every GPU job at once; the jobs then lease one device each.
    workflow.global_resources.setdefault("gpu", GPUS)


@functools.cache
def training(run):
    """Return the share of the cluster, or of this machine, that training a run takes."""
    try:
        if CLUSTER is not None:
            return training_share(STUDY, SPECS[run], CLUSTER)
        share = training_share(STUDY, SPECS[run], {"device": "core"})
        return replace(share, devices=place(SPECS[run]).devices if GPUS else 0)
    except SmeltError as error:
        raise WorkflowError(str(error))


def of_training(name):
    """Return the function of a rule that gives one value of `training`."""
    return lambda wildcards: getattr(training(wildcards.run), name)


@functools.cache
def reading(run, minutes):
    """Return the share that a job takes which loads the weights of a run."""
    if CLUSTER is not None:
        return reading_share(STUDY, SPECS[run], CLUSTER, minutes)
    share = reading_share(STUDY, SPECS[run], {"device": "core"}, minutes)
    return replace(share, devices=int(GPUS > 0))


wildcard_constraints:
    run=r"[A-Za-z0-9.]+-s\d+-[a-z0-9-]+",
    notebook=r"\d\d_[a-z_]+",


def of_runs(pattern, runs):
    """Return `pattern` below the results folder for each of `runs`."""
    return expand(f"{RESULTS}/{pattern}", run=runs)


onstart:
    # A plan only reads, so it may be printed while another snakemake works on the study.
    if any(job.rule.name != "plan" for job in workflow.dag.needrun_jobs()):
        StudyLock(RESULTS).acquire()
        if workflow.local_exec and not GPUS:
            warm.start()
        ProgressLine(STUDY, list(POINTS.values()), RESULTS).start()
