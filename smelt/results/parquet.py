"""Typed rows to Parquet and back, checked against the declared schema, with a checksum of the whole file.

Parquet's own page checksums leave the footer open: a flipped bit there can lead a column to another one's
page. So the SHA-256 of all other bytes stands, behind a mark, between the pages and the footer. The footer
finds pages by their offsets, which stay as they were, so every reader of Parquet reads the file.
"""

from __future__ import annotations

import hashlib
import math
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from smelt.errors import SmeltError
from smelt.files import atomic_path
from smelt.results.schemas import TABLES, Table

_MARK = b"\xff\xfe smelt: SHA-256 of the other bytes \xfe\xff"  # no text holds it, as it is not UTF-8
_DIGEST = hashlib.sha256().digest_size
_TAIL = 8  # bytes behind the footer: its length and Parquet's magic
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
    return _write(arrow, Path(folder) / f"{name}.parquet")


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
        if column.kind == "f" and not pc.all(pc.is_finite(values), min_count=0).as_py():
            raise SmeltError(f"table {name}: {column.name} is not finite in some row")
    keys = list(table.key_names)
    if arrow.group_by(keys, use_threads=False).aggregate([]).num_rows != arrow.num_rows:
        raise SmeltError(f"table {name}: a key occurs twice")
    return _write(arrow.sort_by([(key, "ascending") for key in keys]), Path(folder) / f"{name}.parquet")


def _write(arrow: pa.Table, path: Path) -> Path:
    sink = pa.BufferOutputStream()
    pq.write_table(arrow, sink)
    data = memoryview(sink.getvalue())
    footer = len(data) - _TAIL - int.from_bytes(data[-_TAIL : 4 - _TAIL], "little")
    with atomic_path(path) as temporary, open(temporary, "wb") as stream:
        for part in (data[:footer], _MARK, _digest(data[:footer], data[footer:]), data[footer:]):
            stream.write(part)
    return path


def _digest(before: memoryview, behind: memoryview) -> bytes:
    digest = hashlib.sha256(before)
    digest.update(behind)
    return digest.digest()


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


class ParquetReader(pq.ParquetFile):
    """A Parquet file that is read without starting a thread.

    Arrow's pools sometimes abort a process that ends soon after their first use (its issue 34314).
    """

    def __init__(self, source: Any, **options: Any) -> None:
        super().__init__(source, pre_buffer=False, **options)

    def read(self) -> pa.Table:
        """Return the whole file."""
        return super().read(use_threads=False)

    def read_row_group(self, group: int) -> pa.Table:
        """Return one row group."""
        return super().read_row_group(group, use_threads=False)

    def iter_batches(self, columns: list[str]) -> Iterator[pa.RecordBatch]:
        """Yield some columns in batches of rows."""
        return super().iter_batches(columns=columns, use_threads=False)


def read_rows(path: Path | str) -> list[dict[str, Any]]:
    """Read a Parquet file of a declared table as a list of rows.

    Raises:
        SmeltError: the file is missing, damaged or not of its table's schema.
    """
    return read_arrow(path).to_pylist()


def read_arrow(path: Path | str) -> pa.Table:
    """Read a Parquet file of a declared table, checked against its checksum if it has one.

    Raises:
        SmeltError: the file is missing, damaged or not of its table's schema.
    """
    path = Path(path)
    table = TABLES[path.stem]
    try:
        data = memoryview(path.read_bytes())
        _check_digest(data)
        with ParquetReader(pa.BufferReader(data)) as file:
            arrow = file.read()
        arrow.validate(full=True)
        columns = [(field.name, field.type) for field in arrow.schema]
    except FileNotFoundError:
        raise SmeltError(f"{path} does not exist") from None
    except (pa.ArrowException, OSError, ValueError) as error:
        reason = " ".join(str(error).split())
        raise SmeltError(f"{path} is damaged ({reason}); delete it and run the same command again") from None
    if columns != [(column.name, _ARROW[column.kind]) for column in table.columns]:
        raise SmeltError(f"{path} has other columns than table {table.name}; delete it and run again")
    return arrow


def _check_digest(data: memoryview) -> None:
    """Raise a ValueError where `data` holds a checksum that is not its own."""
    # Looked for, as a damaged length of the footer would lead elsewhere. Files of earlier versions have none.
    mark = data.obj.rfind(_MARK)
    begin = mark + len(_MARK)
    if mark >= 0 and data[begin : begin + _DIGEST] != _digest(data[:mark], data[begin + _DIGEST :]):
        raise ValueError("its SHA-256 differs")
