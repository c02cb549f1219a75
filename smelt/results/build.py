"""The study's database: every declared table, from the stage files of the study's own runs.

DuckDB lets no second process in while one writes, so the stages write Parquet and this one step makes
the database in a temporary file, which is renamed when it is closed and whole.
"""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path

import duckdb
import pyarrow as pa
import pyarrow.parquet as pq

from smelt.errors import SmeltError
from smelt.files import atomic_path, read_json
from smelt.results.parquet import read_rows
from smelt.results.provenance import provenance_rows
from smelt.results.schemas import SQL_TYPES, TABLES, Table
from smelt.study import Study, run_points

# Where the stages leave the tables; those of a run lie in one folder a run.
STUDY_FOLDERS = {
    "budget": ("runs", "pairs", "ablation_points", "power", "published_configs"),
    "corpus": ("corpus_sources",),
    "claims": ("claims",),
}
RUN_FOLDERS = {
    "runs": ("train_log", "throughput"),
    "evaluate": ("endpoints", "validation", "task_scores", "items"),
}
LAWS, MECHANISM = "laws", "mechanism"


def build_database(study: Study, results: Path, out: Path, seeds: int | None = None) -> dict[str, int]:
    """Build the database `out` from the stage files under `results`; return the rows of each table.

    A table that no stage has written exists and is empty. `seeds` is how many seeds the runs table must
    cover; by default whatever it covers.

    Raises:
        SmeltError: the runs table is missing, a file is damaged, of another study, of another
            specification than the study's, or has a key twice.
    """
    results, out = Path(results), Path(out)
    runs = _study_runs(study, results, seeds)
    counts = {}
    with atomic_path(out) as temporary:
        try:
            with duckdb.connect(str(temporary)) as connection:
                for name, table in TABLES.items():
                    _create(connection, table)
                    files = [] if name == "provenance" else list(_files(results, name, runs))
                    if files:
                        _load(connection, table, files, runs)
                _insert_provenance(connection, provenance_rows(study, results, runs))
                for name, table in TABLES.items():
                    counts[name] = _check_keys(connection, table)
                connection.execute("CHECKPOINT")
        except duckdb.Error as error:
            raise SmeltError(f"{out} cannot be built: {str(error).splitlines()[0]}") from None
        finally:
            temporary.with_name(temporary.name + ".wal").unlink(missing_ok=True)
    return counts


def _study_runs(study: Study, results: Path, seeds: int | None) -> dict[str, str]:
    """Return the specification hash of every run of the study, checked against what was trained."""
    path = results / "budget" / "runs.parquet"
    mend = f"`python -m smelt.budget tables --study {study.name} --out {path.parent}` writes it"
    if not path.is_file():
        raise SmeltError(f"{path} does not exist; {mend}")
    rows = read_rows(path)
    seeds = seeds or 1 + max((row["seed"] for row in rows), default=0)
    if {row["run"] for row in rows} != run_points(study, seeds).keys():
        raise SmeltError(f"{path} has not the runs of study {study.name} with {seeds} seeds; {mend} anew")
    runs = {row["run"]: row["spec_hash"] for row in rows}
    for run, spec_hash in runs.items():
        manifest = results / "runs" / run / "manifest.json"
        if manifest.is_file() and read_json(manifest).get("spec_hash") != spec_hash:
            raise SmeltError(
                f"{manifest} was trained from another specification than study {study.name} now has for "
                f"run {run}; run the workflow again to train it anew"
            )
    return runs


def _files(results: Path, name: str, runs: Iterable[str]) -> Iterable[Path]:
    """Yield the existing files of a table in a fixed order."""
    for folder, names in STUDY_FOLDERS.items():
        if name in names:
            yield from _existing(results / folder / f"{name}.parquet")
    yield from _existing(results / LAWS / f"{name}.parquet")
    for folder, names in {**RUN_FOLDERS, MECHANISM: tuple(TABLES)}.items():
        if name in names:
            for run in sorted(runs):
                yield from _existing(results / folder / run / f"{name}.parquet")


def _existing(path: Path) -> Iterable[Path]:
    if path.is_file():
        yield path


def _create(connection: duckdb.DuckDBPyConnection, table: Table) -> None:
    columns = ", ".join(
        f'"{column.name}" {SQL_TYPES[column.kind]}{"" if column.nullable else " NOT NULL"}'
        for column in table.columns
    )
    connection.execute(f'CREATE TABLE "{table.name}" ({columns})')


def _load(
    connection: duckdb.DuckDBPyConnection, table: Table, files: list[Path], runs: dict[str, str]
) -> None:
    """Insert the rows of `files` sorted by key."""
    for path in files:
        _check_columns(table, path)
    names = [str(path) for path in files]
    if "run" in table.key_names:
        _check_runs(connection, names, runs)
    keys = ", ".join(f'"{key}"' for key in table.key_names)
    columns = ", ".join(f'"{column.name}"' for column in table.columns)
    connection.execute(
        f'INSERT INTO "{table.name}" SELECT {columns} FROM read_parquet(?) ORDER BY {keys}', [names]
    )


def _insert_provenance(connection: duckdb.DuckDBPyConnection, rows: list[dict[str, str]]) -> None:
    values = sorted((row["key"], row["value"]) for row in rows)
    connection.executemany("INSERT INTO provenance VALUES (?, ?)", values)


def _check_columns(table: Table, path: Path) -> None:
    try:
        names = pq.read_schema(path).names
    except (pa.ArrowInvalid, OSError) as error:
        raise SmeltError(f"{path} is damaged ({error}); delete it and run the same command again") from None
    if names != [column.name for column in table.columns]:
        raise SmeltError(f"{path} has other columns than table {table.name}; delete it and run again")


def _check_runs(connection: duckdb.DuckDBPyConnection, files: list[str], runs: dict[str, str]) -> None:
    """Refuse rows of a run that the study does not have, or that lie in another run's folder."""
    found = connection.execute(
        "SELECT DISTINCT filename, run FROM read_parquet(?, filename = true) ORDER BY ALL", [files]
    )
    for path, run in found.fetchall():
        folder = Path(path).parent.name
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
