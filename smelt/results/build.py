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
from smelt.results.parquet import arrow_schema, read_rows
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
    "evaluate": ("endpoints", "validation", "task_scores"),
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
                    if name == "provenance":
                        rows, files = provenance_rows(study, results, runs), []
                        parts = [pa.Table.from_pylist(rows, schema=arrow_schema(table))]
                    else:
                        files = list(_files(results, name, runs))
                        parts = [_read(table, path, runs) for path in files]
                    counts[name] = _insert(connection, table, parts, files)
                connection.execute("CHECKPOINT")
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


def _insert(
    connection: duckdb.DuckDBPyConnection, table: Table, parts: list[pa.Table], files: list[Path]
) -> int:
    """Insert `parts` sorted by key and return the number of rows; `files` is where they come from."""
    if not parts:
        return 0
    rows = pa.concat_tables(parts)
    keys = ", ".join(f'"{key}"' for key in table.key_names)
    connection.register("incoming", rows)
    connection.execute(f'INSERT INTO "{table.name}" SELECT * FROM incoming ORDER BY {keys}')
    connection.unregister("incoming")
    twice = connection.execute(
        f'SELECT {keys} FROM "{table.name}" GROUP BY {keys} HAVING count(*) > 1 ORDER BY {keys} LIMIT 1'
    ).fetchone()
    if twice:
        raise SmeltError(f"table {table.name}: the key {twice} occurs twice in {_shown(files)}")
    return rows.num_rows


def _shown(files: list[Path]) -> str:
    return str(files[0]) if len(files) == 1 else f"{files[0]} and {len(files) - 1} further files"


def _read(table: Table, path: Path, runs: dict[str, str]) -> pa.Table:
    try:
        rows = pq.read_table(path)
    except (pa.ArrowInvalid, OSError) as error:
        raise SmeltError(f"{path} is damaged ({error}); delete it and run the same command again") from None
    expected = arrow_schema(table)
    if rows.schema.names != expected.names:
        raise SmeltError(f"{path} has other columns than table {table.name}; delete it and run again")
    if "run" in expected.names:
        _check_runs(rows, path, runs)
    return rows.cast(expected)


def _check_runs(rows: pa.Table, path: Path, runs: dict[str, str]) -> None:
    """Refuse rows of a run that the study does not have, or that lie in another run's folder."""
    named = set(rows["run"].unique().to_pylist())
    own = path.parent.name
    allowed = {own} if own in runs else set(runs)
    if strange := sorted(named - allowed):
        raise SmeltError(
            f"{path} has rows of run {strange[0]}, which does not belong there; "
            "delete it and run the same command again"
        )
