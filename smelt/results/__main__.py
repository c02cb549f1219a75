"""Command line of the results: `python -m smelt.results build`."""

from __future__ import annotations

import argparse
from pathlib import Path

from smelt import cli
from smelt.results.build import build_database
from smelt.study import load_study


def main() -> None:
    """Parse the arguments and build the database."""
    parser = argparse.ArgumentParser(prog="python -m smelt.results", description=__doc__)
    commands = parser.add_subparsers(required=True)
    build = commands.add_parser("build", help="build the study's database from its stage files")
    build.add_argument("--study", required=True, help="name of a shipped study or path of a study file")
    build.add_argument("--results", required=True, type=Path, help="the study's result folder")
    build.add_argument(
        "--seeds", type=int, help="seeds that must be there (default: those of the runs table)"
    )
    build.add_argument("--out", required=True, type=Path, help="the database file")
    arguments = parser.parse_args()
    study = load_study(arguments.study)
    counts = build_database(study, arguments.results, arguments.out, arguments.seeds)
    filled = {name: count for name, count in counts.items() if count}
    print(f"{arguments.out}: {sum(filled.values())} rows in {len(filled)} of {len(counts)} tables")


if __name__ == "__main__":
    cli.run(main)
