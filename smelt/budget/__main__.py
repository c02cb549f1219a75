"""Budgets of a study: `python -m smelt.budget {tables,plan,match} --study S`."""

from __future__ import annotations

import argparse
from dataclasses import replace
from pathlib import Path

from smelt import cli
from smelt.budget.plan import MACHINES, choose_machine, make_plan
from smelt.budget.power import seed_spread
from smelt.budget.render import match_text, plan_text, write_csv
from smelt.budget.resolve import baseline_geometry, recipe
from smelt.budget.solver import PREFERENCES, match, trade_off
from smelt.budget.tables import write_tables
from smelt.errors import SmeltError
from smelt.files import write_json
from smelt.study import Study, load_study
from smelt.study.runs import find_point


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="python -m smelt.budget", description=__doc__)
    commands = parser.add_subparsers(dest="command", required=True)
    tables = commands.add_parser("tables", help="write the budget tables as Parquet")
    plan = commands.add_parser("plan", help="print sizes, FLOPs, hours, memory, disk and expected gaps")
    solve = commands.add_parser("match", help="print the solver's sizes for a run and what else was possible")
    for command in (tables, plan, solve):
        command.add_argument("--study", required=True, help="name of a shipped study or a YAML file")
    for command in (tables, plan):
        command.add_argument("--seeds", type=int, help="number of seeds (default: the study's)")
    tables.add_argument("--out", type=Path, required=True, help="folder of the tables")
    plan.add_argument("--json", type=Path, help="write the plan to this file too")
    plan.add_argument("--csv", type=Path, help="write the plan's runs to this file too")
    plan.add_argument("--device", help=f"one of {', '.join(MACHINES)} (default: by the study's precision)")
    plan.add_argument("--mfu", type=float, help="share of the device's peak that is assumed")
    plan.add_argument(
        "--results", type=Path, help="results folder; adds the spread between seeds found there"
    )
    solve.add_argument("--run", required=True, help="a run that has a Baseline")
    solve.add_argument("--narrow", help=f"one of {', '.join(PREFERENCES)} (default: the study's)")
    return parser


def _solutions(study: Study, run: str, narrow: str | None) -> str:
    point = find_point(study, run)
    if point.baseline is None:
        raise SmeltError(f"--run is {run!r}, a Baseline; it must be a run that is matched to one")
    baseline = baseline_geometry(study, point.scale, study.sparsities[point.sparsity])
    wanted = recipe(study, point)
    wanted = replace(wanted, narrow=narrow or wanted.narrow)
    attended = study.corpus.attended_context
    best = match(baseline, wanted, attended)
    return match_text(run, baseline, best, trade_off(baseline, wanted, attended))


def main() -> None:
    """Run the command."""
    args = _parser().parse_args()
    study = load_study(args.study)
    if args.command == "match":
        print(_solutions(study, args.run, args.narrow), end="")
        return
    if args.seeds is not None and args.seeds < 1:
        raise SmeltError(f"--seeds is {args.seeds}; it must be at least 1")
    if args.command == "tables":
        for name, rows in write_tables(study, args.seeds, args.out).items():
            print(f"{args.out / name}.parquet: {rows} rows")
        return
    plan = make_plan(study, args.seeds, choose_machine(study, args.device, args.mfu))
    spread = seed_spread(study, args.results) if args.results else {}
    if args.json:
        write_json(args.json, plan)
    if args.csv:
        write_csv(args.csv, plan["runs"])
    print(plan_text(plan, spread), end="")


if __name__ == "__main__":
    cli.run(main)
