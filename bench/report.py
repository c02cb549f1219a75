"""Seconds to render a report of the paper's size: `python -m bench.report [--study paper] [--figures]`.

The database is invented (`tests/report/synthetic.py`): 192 endpoints, 39 sources, 20,000 rows of training log
a run. A capture of a million tokens leaves no more rows than a small one: the mechanism tables hold sums.
Prints seconds of the wall and of the processor (with the notebooks' kernels) for each notebook, which draw
all figures and tables, for the site, and for all of them beside the goal; with `--figures` for each figure
and table by itself instead.
"""

from __future__ import annotations

import argparse
import resource
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

import numpy as np

from smelt.files import ROOT
from smelt.report.book import open_report
from smelt.report.contents import FIGURES, SECTIONS, TABLES
from smelt.report.notebook import run_notebook
from smelt.report.site import write_site
from smelt.results.build import build_database
from smelt.study import load_study
from tests.report.synthetic import Synthetic

GOAL = 180.0  # seconds of the wall for figures, tables, notebooks and site of a database of the paper's size


def used() -> np.ndarray:
    """Return seconds of the wall and of the processor so far, ended processes included."""
    uses = [resource.getrusage(who) for who in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN)]
    return np.array([time.perf_counter(), sum(use.ru_utime + use.ru_stime for use in uses)])


def timed(name: str, work: Callable[[], object]) -> np.ndarray:
    """Do `work`, print how long it took, and return the seconds of the wall and of the processor."""
    before = used()
    work()
    return told(name, used() - before)


def told(name: str, seconds: np.ndarray, more: str = "") -> np.ndarray:
    """Print and return the seconds of the wall and of the processor."""
    print(f"{name:<28}{seconds[0]:8.2f} s{seconds[1]:8.2f} s of processor time{more}", flush=True)
    return seconds


def main() -> None:
    """Build the database and time what renders it."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--study", default="paper")
    parser.add_argument("--log-rows", type=int, default=20_000, help="rows of each run's training log")
    parser.add_argument("--figures", action="store_true", help="time single figures and tables")
    arguments = parser.parse_args()
    study = load_study(arguments.study)
    with tempfile.TemporaryDirectory() as folder:
        out = Path(folder)
        database = out / "results.duckdb"
        invented = Synthetic(study, out, sources=39, log_points=arguments.log_rows)
        timed("invented tables", invented.write)
        timed("database", lambda: build_database(study, out, database))
        if arguments.figures:
            report = open_report(arguments.study, database, out)
            total = sum(timed(name, lambda name=name: report.figure(name)) for name in FIGURES)
            total += sum(timed(name, lambda name=name: report.table(name)) for name in TABLES)
        else:
            total = sum(
                timed(
                    section.notebook,
                    lambda path=ROOT / "notebooks" / f"{section.notebook}.ipynb": run_notebook(
                        path, arguments.study, database, out
                    ),
                )
                for section in SECTIONS
            )
            total += timed("site", lambda: write_site(study, out / "report"))
        told("total without the database", total, f" (goal: {GOAL:.0f} s)")


if __name__ == "__main__":
    main()
