"""`python -m smelt.laws --study S --results R --out R/laws`: every analysis of sections 5 to 7 as tables."""

from __future__ import annotations

import argparse
from typing import Any

from smelt import cli
from smelt.errors import SmeltError
from smelt.laws import ablations, benchmarks, crossover, lengths, pairs, referees, shots, subsets, surfaces
from smelt.laws.inputs import Results, designs, load_results
from smelt.laws.recovery import recovery_tables
from smelt.results.parquet import write_table
from smelt.results.stages import OF_STUDY
from smelt.study import load_study

PER_TASK = "calibration:task:"
Rows = list[dict[str, Any]]
# Written even when empty, so that nothing stale is left and every consumer finds the file.
TABLES = OF_STUDY["laws"]


def analyses(results: Results) -> dict[str, Rows]:
    """Return the rows of every table that comes from the study's own results."""
    study = results.study
    *both, dropped = designs(results)
    sparse = sorted(percent for percent in study.sparsities if percent > 0)
    surface = surfaces.analyse(tuple(both), sparse, study.laws.starts, study.laws.draws)
    tables = {name: [] for name in TABLES} | {
        "law_fits": surfaces.fit_rows(surface),
        "law_draws": surfaces.draw_rows(surface),
        "ce_gain": surfaces.gain_rows(surface),
        "tpp": surfaces.tpp_rows(surface, study.laws.tpp_draws),
        "law_contrasts": surfaces.contrast_rows(surface),
        "law_notes": surfaces.note_rows(surface, results.problems + dropped),
        "law_profiles": surfaces.profile_table(surface),
        "law_coverage": surfaces.coverage_table(surface, study.laws.draws),
    }
    for more in (
        pairs.gap_tables(results, surface),
        pairs.win_tables(results),
        crossover.crossover_tables(results),
        ablations.ablation_tables(results, surface),
        referees.referee_tables(results, surface),
        benchmarks.calibration_tables(results),
        subsets.subset_tables(results, surface),
        lengths.length_tables(results),
        shots.shot_tables(results),
    ):
        for name, rows in more.items():
            tables[name].extend(rows)
    return tables


def main() -> int:
    """Read the stage tables, run the analyses, write their tables."""
    parser = argparse.ArgumentParser(prog="python -m smelt.laws", description=__doc__)
    parser.add_argument("--study", required=True, help="study name or file")
    parser.add_argument("--results", required=True, help="results folder of the study")
    parser.add_argument("--out", required=True, help="folder for the tables")
    arguments = parser.parse_args()
    results = load_results(load_study(arguments.study), arguments.results)
    if not results.endpoints:
        raise SmeltError(f"{arguments.results}/evaluate holds no endpoint of study {results.study.name}")
    tables = analyses(results)
    for name, rows in recovery_tables(results.study.laws.draws).items():
        tables[name].extend(rows)
    for name in sorted(tables):
        write_table(arguments.out, name, tables[name])
    _say(tables["law_notes"])
    return 0


def _say(notes: Rows) -> None:
    """Print what could not be analysed and why, single tasks as one line."""
    failed = [row for row in notes if not row["ok"]]
    tasks = [row["analysis"].rsplit(":", 1)[1] for row in failed if row["analysis"].startswith(PER_TASK)]
    for row in failed:
        if not row["analysis"].startswith(PER_TASK):
            print(f"{row['analysis']}: {row['reason']}")
    if tasks:
        print(f"{PER_TASK.rstrip(':')}: no curve for {', '.join(tasks)}")


if __name__ == "__main__":
    cli.run(main)
