"""Command line of the report: `python -m smelt.report claims | notebook | site`."""

from __future__ import annotations

import argparse
from pathlib import Path

from smelt import cli
from smelt.study import load_study


def _claims(arguments: argparse.Namespace) -> None:
    from smelt.report.claims import write_claims
    from smelt.results.parquet import read_rows
    from smelt.results.stages import require, stage_files

    study, results = load_study(arguments.study), arguments.results
    # A file that is gone must not pass for a claim that nothing was measured of.
    require(stage_files(results, (), (), ("budget", "laws")))
    rows = read_rows(results / "budget" / "runs.parquet")
    grid = [row["run"] for row in rows if row["grouping"] == "grid"]
    require(stage_files(results, [row["run"] for row in rows], grid, ("evaluate", "mechanism")))
    write_claims(study, results, arguments.out)


def _notebook(arguments: argparse.Namespace) -> None:
    from smelt.report.notebook import run_notebook

    print(run_notebook(arguments.notebook, arguments.study, arguments.db, arguments.out))


def _site(arguments: argparse.Namespace) -> None:
    from smelt.report.site import write_site

    print(write_site(load_study(arguments.study), arguments.out))


def main() -> None:
    """Parse the arguments and call one of the three commands."""
    parser = argparse.ArgumentParser(prog="python -m smelt.report", description=__doc__)
    commands = parser.add_subparsers(required=True)

    def add(name: str, call, text: str) -> argparse.ArgumentParser:
        command = commands.add_parser(name, help=text)
        command.add_argument("--study", required=True, help="name of a shipped study or path of a study file")
        command.set_defaults(call=call)
        return command

    claims = add("claims", _claims, "test the paper's claims on the stage tables")
    claims.add_argument("--results", required=True, type=Path, help="the study's result folder")
    claims.add_argument("--out", required=True, type=Path, help="folder for claims.parquet")
    notebook = add("notebook", _notebook, "execute one notebook and make its page")
    notebook.add_argument("--notebook", required=True, type=Path)
    notebook.add_argument("--db", required=True, type=Path, help="the study's database")
    notebook.add_argument("--out", required=True, type=Path, help="the study's result folder")
    site = add("site", _site, "write the site from the database, the figures, the tables and the notebooks")
    site.add_argument(
        "--out", required=True, type=Path, help="folder of the site, inside the study's results"
    )
    arguments = parser.parse_args()
    arguments.call(arguments)


if __name__ == "__main__":
    cli.run(main)
