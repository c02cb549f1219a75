"""What the stages cost: the benchmark records that Snakemake leaves of their jobs."""

from __future__ import annotations

import math
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from smelt.errors import SmeltError
from smelt.files import read_json

# The stages that lie before the database, by their rules; jobs of one run have a folder of their own.
_STAGES = (
    "budget_tables",
    "corpus_build",
    "tasks",
    "train_run",
    "evaluate_run",
    "mechanism_run",
    "laws_fit",
    "claims",
)

MOST = 1_000_000  # cores or devices of a job


def cost_rows(results: Path, runs: dict[str, str]) -> list[dict[str, Any]]:
    """Return the rows of `stage_costs` of all jobs that left a record.

    A job's record is that of its last start. Records of jobs of other runs than `runs` are passed over, and a
    study whose stages were run without Snakemake has none.

    Raises:
        SmeltError: a record is damaged.
    """
    return [_row(stage, job, path) for stage, job, path in _records(results / "benchmarks", runs)]


def _records(folder: Path, runs: dict[str, str]) -> Iterator[tuple[str, str, Path]]:
    for stage in _STAGES:
        single = folder / f"{stage}.jsonl"
        if single.is_file():
            yield stage, "all", single
        for run in sorted(runs):
            if (path := folder / stage / f"{run}.jsonl").is_file():
                yield stage, run, path


def _row(stage: str, job: str, path: Path) -> dict[str, Any]:
    try:
        record = read_json(path)
        # Threads and resources are told with --benchmark-extended only, which the profiles set.
        devices = int(record.get("resources", {}).get("gpu", 0))
        cores, seconds = int(record.get("threads", 1)), float(record["s"])
        known = math.isfinite(seconds) and seconds >= 0 and 1 <= cores <= MOST and 0 <= devices <= MOST
    except (SmeltError, KeyError, TypeError, ValueError, AttributeError, OverflowError):
        known = False
    if not known:
        raise SmeltError(f"{path} is no benchmark record of Snakemake; delete it")
    return {"stage": stage, "job": job, "seconds": seconds, "cores": cores, "devices": devices}
