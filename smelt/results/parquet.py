"""Typed rows to Parquet and back, checked against the declared schema."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from smelt.errors import SmeltError
from smelt.files import atomic_path
from smelt.results.schemas import TABLES, Table

_ARROW = {"s": pa.string(), "i": pa.int64(), "f": pa.float64(), "b": pa.bool_()}


def arrow_schema(table: Table) -> pa.Schema:
    """Return the Arrow schema of a declared table."""
    return pa.schema([pa.field(c.name, _ARROW[c.kind], nullable=c.nullable) for c in table.columns])


def write_table(folder: Path | str, name: str, rows: Iterable[Mapping[str, Any]]) -> Path:
    """Write rows of the declared table `name` to `<folder>/<name>.parquet`, sorted by key, atomically.

    Raises:
        SmeltError: a column is missing, unknown, NULL where that is not allowed, not finite, or a key
            occurs twice.
    """
    table = TABLES[name]
    rows = list(rows)
    _check_rows(table, rows)
    rows.sort(key=lambda row: tuple(row[key] for key in table.key_names))
    arrow = pa.Table.from_pylist([dict(row) for row in rows], schema=arrow_schema(table))
    path = Path(folder) / f"{name}.parquet"
    with atomic_path(path) as temporary:
        pq.write_table(arrow, temporary)
    return path


def write_columns(folder: Path | str, name: str, columns: Mapping[str, Any]) -> Path:
    """Write a large table given as columns (arrays of equal length); otherwise like `write_table`.

    Raises:
        SmeltError: a column is missing, unknown, NULL where that is not allowed, not finite, or a key
            occurs twice.
    """
    table = TABLES[name]
    schema = arrow_schema(table)
    if columns.keys() != set(schema.names):
        raise SmeltError(f"table {name}: the columns are {sorted(columns)}, not {sorted(schema.names)}")
    arrow = pa.table([pa.array(columns[f.name], f.type) for f in schema], schema=schema)
    for column in table.columns:
        values = arrow[column.name]
        if values.null_count and not column.nullable:
            raise SmeltError(f"table {name}: {column.name} is missing in {values.null_count} rows")
        if column.kind == "f" and not pc.all(pc.is_finite(values)).as_py():
            raise SmeltError(f"table {name}: {column.name} is not finite in some row")
    keys = list(table.key_names)
    if arrow.group_by(keys).aggregate([]).num_rows != arrow.num_rows:
        raise SmeltError(f"table {name}: a key occurs twice")
    path = Path(folder) / f"{name}.parquet"
    with atomic_path(path) as temporary:
        pq.write_table(arrow.sort_by([(key, "ascending") for key in keys]), temporary)
    return path


def _check_rows(table: Table, rows: list[Mapping[str, Any]]) -> None:
    expected = {column.name for column in table.columns}
    seen = set()
    for row in rows:
        if row.keys() != expected:
            raise SmeltError(
                f"table {table.name}: a row lacks {sorted(expected - row.keys())} and has the unknown "
                f"{sorted(row.keys() - expected)}"
            )
        for column in table.columns:
            _check_value(table, column, row)
        key = tuple(row[name] for name in table.key_names)
        if key in seen:
            raise SmeltError(f"table {table.name}: the key {key} occurs twice")
        seen.add(key)


def _check_value(table: Table, column: Any, row: Mapping[str, Any]) -> None:
    value = row[column.name]
    if value is None:
        if not column.nullable:
            raise SmeltError(f"table {table.name}: {column.name} is missing in {dict(row)}")
    elif column.kind == "f" and not math.isfinite(value):
        raise SmeltError(f"table {table.name}: {column.name} is {value} in {dict(row)}")


def read_rows(path: Path | str) -> list[dict[str, Any]]:
    """Read a Parquet file of a declared table as a list of rows.

    Raises:
        SmeltError: the file is missing, damaged or not of its table's schema.
    """
    path = Path(path)
    table = TABLES[path.stem]
    try:
        arrow = pq.read_table(path)
    except FileNotFoundError:
        raise SmeltError(f"{path} does not exist") from None
    except (pa.ArrowException, OSError) as error:
        raise SmeltError(f"{path} is damaged ({error}); delete it and run the same command again") from None
    if arrow.schema.names != arrow_schema(table).names:
        raise SmeltError(f"{path} has other columns than table {table.name}; delete it and run again")
    return arrow.to_pylist()
