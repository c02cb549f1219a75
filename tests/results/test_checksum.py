"""A damaged Parquet file is refused or reads as before, wherever a bit flipped."""

import duckdb
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from smelt.errors import SmeltError
from smelt.results.build import _load
from smelt.results.parquet import arrow_schema, read_arrow, read_rows, write_columns, write_table
from smelt.results.schemas import TABLES

ROWS = [
    {"analysis": "surface", "ok": True, "reason": ""},
    {"analysis": "tpp", "ok": False, "reason": "too few cells; 5 are needed, é"},
    {"analysis": "ce_gain", "ok": False, "reason": "too few cells; 5 are needed, é"},
]
NUMBERS = [
    {"arch": "smelt", "draw": i, "E": 1.5, "A": 2.5, "K": 3.5 + i, "exp_a": 0.1, "exp_b": 0.2, "exp_c": 0.3}
    | {"degenerate": i == 1}
    for i in range(3)
]


@pytest.mark.parametrize(("name", "rows"), [("law_notes", ROWS), ("law_draws", NUMBERS)])
def test_a_flipped_bit_in_any_byte_is_refused_or_changes_no_value(tmp_path, name, rows):
    path = write_table(tmp_path, name, rows)
    data, before = path.read_bytes(), read_rows(path)
    assert before == sorted(rows, key=lambda row: tuple(row[key] for key in TABLES[name].key_names))
    refused = 0
    for place in range(len(data)):
        flipped = bytearray(data)
        flipped[place] ^= 1 << place % 8
        path.write_bytes(flipped)
        try:
            assert read_rows(path) == before, place
        except SmeltError as error:
            assert str(error).startswith(f"{path} is damaged"), place
            assert "delete it and run the same command again" in str(error)
            refused += 1
    # Only a flip in the mark itself leaves a file that looks like one without a checksum.
    assert len(data) - refused < 50


@pytest.mark.parametrize("left", [0, 1, 7, 8, 100, -50, -1])
def test_truncated(tmp_path, left):
    path = write_table(tmp_path, "law_notes", ROWS)
    path.write_bytes(path.read_bytes()[:left])
    with pytest.raises(SmeltError, match=r"law_notes.parquet is damaged .*; delete it"):
        read_rows(path)


@pytest.mark.parametrize("rows", [ROWS, []])
def test_other_readers_of_parquet_read_the_file(tmp_path, rows):
    path = write_table(tmp_path, "law_notes", rows)
    expected = sorted(tuple(row.values()) for row in rows)
    assert pq.read_table(path).to_pylist() == read_rows(path)
    assert duckdb.sql(f"SELECT * FROM '{path}'").fetchall() == expected
    assert duckdb.sql(f"SELECT analysis FROM '{path}' WHERE analysis > 'd'").fetchall() == [
        row[:1] for row in expected if row[0] > "d"
    ]


def test_a_file_without_a_checksum_is_read(tmp_path):
    """Files of earlier versions have none."""
    path = tmp_path / "law_notes.parquet"
    pq.write_table(pa.Table.from_pylist(ROWS, schema=arrow_schema(TABLES["law_notes"])), path)
    assert read_rows(path) == ROWS


def test_columns_are_written_with_a_checksum_too(tmp_path):
    columns = {name: [row[name] for row in NUMBERS] for name in NUMBERS[0]}
    path = write_columns(tmp_path, "law_draws", columns)
    data = bytearray(path.read_bytes())
    data[len(data) // 2] ^= 4
    path.write_bytes(data)
    with pytest.raises(SmeltError, match="its SHA-256 differs"):
        read_arrow(path)


def test_a_column_may_be_null_in_every_row(tmp_path):
    columns = {"run": ["a"], "phase": ["trunk"], "tokens_per_s": [1.0], "mfu": [None], "peak_flops": [None]}
    path = write_columns(tmp_path, "throughput", {**columns, "device": ["cpu"], "seconds": [2.0]})
    assert read_rows(path)[0]["mfu"] is None


def test_the_database_takes_no_row_of_a_damaged_file(tmp_path):
    path = write_table(tmp_path, "law_notes", ROWS)
    data = bytearray(path.read_bytes())
    place = data.index(b"too few cells")
    data[place] ^= 1
    path.write_bytes(data)
    with duckdb.connect() as connection:
        connection.execute("CREATE TABLE law_notes (analysis VARCHAR, ok BOOLEAN, reason VARCHAR)")
        with pytest.raises(SmeltError, match="law_notes.parquet is damaged"):
            _load(connection, TABLES["law_notes"], [path], {})
        assert connection.execute("SELECT count(*) FROM law_notes").fetchone() == (0,)


def test_text_cannot_hold_the_mark(tmp_path):
    """A reason that quotes this program's own mark is text like any other."""
    rows = [{"analysis": "a", "ok": True, "reason": " smelt: SHA-256 of the other bytes "}]
    assert read_rows(write_table(tmp_path, "law_notes", rows)) == rows
