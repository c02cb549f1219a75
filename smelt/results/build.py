"""The study's database: every declared table, from the stage files of the study's own runs.

DuckDB lets no second process in while one writes, so the stages write Parquet and this one step makes
the database in a temporary file, which is renamed when it is closed and whole.
"""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import Any

import duckdb
import pyarrow as pa
import pyarrow.compute as pc

from smelt.errors import SmeltError
from smelt.files import atomic_path
from smelt.results.costs import cost_rows
from smelt.results.lengths import length_rows
from smelt.results.parquet import arrow_schema, read_arrow, read_rows
from smelt.results.provenance import provenance_rows
from smelt.results.schemas import SQL_TYPES, TABLES, Table
from smelt.results.stages import require, stage_files
from smelt.study import Study, run_points
from smelt.study.records import MANIFEST, SPEC, make_anew, read_run_of

# Of the job, which DuckDB would not keep to by itself: beyond the memory it sorts on the disk.
_LIMITS = {"memory_limit": "1GB", "threads": 1}


def build_database(
    study: Study, results: Path, out: Path, seeds: int | None = None, partial: bool = False
) -> dict[str, int]:
    """Build the database `out` from the stage files under `results`; return the rows of each table.

    `seeds` is how many seeds the runs table must cover; by default whatever it covers. With `partial`, for
    the picture of a study under way, files may be missing (the runs table must not); a table that no stage
    has written exists and is empty.

    Raises:
        SmeltError: a file is missing, damaged, of another study, of another specification than the
            study's, or has a key twice.
    """
    results, out = Path(results), Path(out)
    rows = _study_runs(study, results, seeds)
    runs = {row["run"]: row["spec_hash"] for row in rows}
    files = list(stage_files(results, runs, [row["run"] for row in rows if row["grouping"] == "grid"]))
    if partial:
        files = [path for path in files if path.is_file()]
    require(files)
    for run, spec_hash in sorted(runs.items()):
        if not partial or (results / "runs" / run / MANIFEST).exists():
            _check_trained(study, results / "runs" / run, spec_hash)
    derived = {
        "corpus_lengths": _lengths(results / "corpus", partial),
        "stage_costs": cost_rows(results, runs),
        "provenance": provenance_rows(study, results, runs),
    }
    counts = {}
    with atomic_path(out) as temporary:
        try:
            with duckdb.connect(str(temporary), config=_LIMITS) as connection:
                for name, table in TABLES.items():
                    _create(connection, table)
                    if found := [path for path in files if path.stem == name]:
                        _load(connection, table, found, runs)
                for name, found in derived.items():
                    _insert(connection, TABLES[name], pa.Table.from_pylist(found, arrow_schema(TABLES[name])))
                for name, table in TABLES.items():
                    counts[name] = _check_keys(connection, table)
                connection.execute("CHECKPOINT")
        except duckdb.Error as error:
            raise SmeltError(f"{out} cannot be built: {str(error).splitlines()[0]}") from None
        finally:
            temporary.with_name(temporary.name + ".wal").unlink(missing_ok=True)
            shutil.rmtree(temporary.with_name(temporary.name + ".tmp"), ignore_errors=True)
    return counts


def _study_runs(study: Study, results: Path, seeds: int | None) -> list[dict[str, Any]]:
    """Return the rows of the runs table, checked against the study."""
    path = results / "budget" / "runs.parquet"
    mend = f"`python -m smelt.budget tables --study {study.name} --out {path.parent}` writes it"
    if not path.is_file():
        raise SmeltError(f"{path} does not exist; {mend}")
    rows = read_rows(path)
    seeds = seeds or 1 + max((row["seed"] for row in rows), default=0)
    if {row["run"] for row in rows} != run_points(study, seeds).keys():
        raise SmeltError(f"{path} has not the runs of study {study.name} with {seeds} seeds; {mend} anew")
    return rows


def _check_trained(study: Study, folder: Path, spec_hash: str) -> None:
    """Refuse a folder that is not of the run that it is named after, as the study has that now."""
    spec, _ = read_run_of(study, folder)
    if spec.point.run != folder.name:
        raise SmeltError(
            f"{folder / SPEC} is of run {spec.point.run}, not of {folder.name}; "
            f"{make_anew(folder / MANIFEST)}"
        )
    if spec.spec_hash != spec_hash:
        raise SmeltError(
            f"{folder / MANIFEST} was trained from another specification than study {study.name} now has for "
            f"run {folder.name}; run the workflow again to train it anew"
        )


def _create(connection: duckdb.DuckDBPyConnection, table: Table) -> None:
    columns = ", ".join(
        f'"{column.name}" {SQL_TYPES[column.kind]}{"" if column.nullable else " NOT NULL"}'
        for column in table.columns
    )
    connection.execute(f'CREATE TABLE "{table.name}" ({columns})')


def _load(
    connection: duckdb.DuckDBPyConnection, table: Table, files: list[Path], runs: dict[str, str]
) -> None:
    """Insert the rows of `files`, which are in the order of the runs they hold, sorted by key."""
    for path in files:
        # DuckDB's own reader checks no checksum.
        rows = read_arrow(path)
        if "run" in table.key_names:
            _check_runs(path, rows, runs)
        _insert(connection, table, rows)


def _insert(connection: duckdb.DuckDBPyConnection, table: Table, rows: pa.Table) -> None:
    keys = ", ".join(f'"{key}"' for key in table.key_names)
    columns = ", ".join(f'"{column.name}"' for column in table.columns)
    connection.register("rows", rows)
    connection.execute(f'INSERT INTO "{table.name}" SELECT {columns} FROM rows ORDER BY {keys}')
    connection.unregister("rows")


def _lengths(corpus: Path, partial: bool) -> list[dict[str, Any]]:
    """Return the lengths of the documents; of a study under way, none before the corpus is built."""
    if partial and not (corpus / MANIFEST).exists():
        return []
    return length_rows(corpus)


def _check_runs(path: Path, rows: pa.Table, runs: dict[str, str]) -> None:
    """Refuse rows of a run that the study does not have, or that lie in another run's folder."""
    folder = path.parent.name
    for run in sorted(pc.unique(rows["run"]).to_pylist()):
        if run not in runs or (folder in runs and run != folder):
            raise SmeltError(
                f"{path} has rows of run {run}, which does not belong there; "
                "delete it and run the same command again"
            )


def _check_keys(connection: duckdb.DuckDBPyConnection, table: Table) -> int:
    """Return the number of rows; raise a SmeltError where a key occurs twice."""
    keys = ", ".join(f'"{key}"' for key in table.key_names)
    twice = connection.execute(
        f'SELECT {keys} FROM "{table.name}" GROUP BY {keys} HAVING count(*) > 1 ORDER BY {keys} LIMIT 1'
    ).fetchone()
    if twice:
        raise SmeltError(f"table {table.name}: the key {twice} occurs twice; delete its files and run again")
    return connection.execute(f'SELECT count(*) FROM "{table.name}"').fetchone()[0]
