"""Seconds to render a report of the paper's size: `python -m bench.report [--study paper] [--figures]`.

The database is invented (`tests/report/synthetic.py`): 192 endpoints, 39 sources, 20,000 rows of training log
a run. A capture of a million tokens leaves no more rows than a small one: the mechanism tables hold sums.
Prints seconds of the wall and of this process for each notebook and the site, and with `--figures` for each
figure and table instead.
"""

from __future__ import annotations

import argparse
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

from smelt.files import ROOT
from smelt.report.book import open_report
from smelt.report.contents import FIGURES, SECTIONS, TABLES
from smelt.report.notebook import run_notebook
from smelt.report.site import write_site
from smelt.results.build import build_database
from smelt.study import load_study
from tests.report.synthetic import Synthetic


def timed(name: str, work: Callable[[], object]) -> float:
    """Do `work`, print how long it took, and return the seconds of the wall."""
    wall, own = time.perf_counter(), time.process_time()
    work()
    wall, own = time.perf_counter() - wall, time.process_time() - own
    print(f"{name:<28}{wall:8.2f} s{own:8.2f} s in this process", flush=True)
    return wall


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
        print(f"{'total without the database':<28}{total:8.2f} s")


if __name__ == "__main__":
    main()
