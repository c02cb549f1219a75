"""Command line: `tasks` writes the in-context tasks, `run` evaluates the endpoints of a run."""

from __future__ import annotations

import argparse
from pathlib import Path

from smelt import cli, devices
from smelt.study import load_study


def main(argv: list[str] | None = None) -> None:
    """Parse the arguments and run one command."""
    parser = argparse.ArgumentParser(prog="python -m smelt.evaluate", description=__doc__)
    commands = parser.add_subparsers(dest="command", required=True)
    tasks = commands.add_parser("tasks", help="write the study's tasks as JSON lines, checked for leaks")
    run = commands.add_parser("run", help="validation loss and task scores of every endpoint of a run")
    for command in (tasks, run):
        command.add_argument("--study", required=True, help="name of a study or its file")
        command.add_argument("--corpus", required=True, type=Path, help="folder of the built corpus")
        command.add_argument("--out", required=True, type=Path, help="folder to write to")
    run.add_argument("--run", required=True, type=Path, help="folder of the trained run")
    run.add_argument("--tasks", required=True, type=Path, help="folder that `tasks` has written")
    arguments = parser.parse_args(argv)
    study = load_study(arguments.study)
    # Imported late: `--help` and bad arguments need no torch.
    if arguments.command == "tasks":
        from smelt.evaluate.make import make_tasks

        make_tasks(study, arguments.corpus, arguments.out)
    else:
        with devices.lease():
            from smelt.evaluate.run import evaluate_run

            evaluate_run(study, arguments.run, arguments.corpus, arguments.tasks, arguments.out)


if __name__ == "__main__":
    cli.run(main)
