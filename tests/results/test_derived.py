"""Tables that the database derives: lengths of documents from the corpus's index, costs from Snakemake."""

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from smelt.errors import SmeltError
from smelt.files import read_json, sha256_file, write_json
from smelt.results.costs import cost_rows
from smelt.results.lengths import length_rows
from tests.results.test_build import RUN, STUDY, Synthetic


@pytest.fixture
def corpus(tmp_path):
    Synthetic(STUDY, tmp_path, sources=3)._documents()
    return tmp_path / "corpus"


def _replace(corpus, table, **options):
    pq.write_table(table, corpus / "documents.parquet", **options)
    manifest = read_json(corpus / "manifest.json")
    manifest["files"]["documents.parquet"] = sha256_file(corpus / "documents.parquet")
    write_json(corpus / "manifest.json", manifest)


def test_buckets_hold_their_bound_and_the_last_has_none(corpus):
    tokens = [2, 32, 33, 64, 65, 4096, 4097, 9_000_000]
    rest = {"source": "a", "category": "Web", "split": "trunk"}
    _replace(corpus, pa.Table.from_pylist([rest | {"tokens": number} for number in tokens]))
    found = {row["length_bucket"]: (row["documents"], row["tokens"]) for row in length_rows(corpus)}
    assert found == {32: (2, 34), 64: (2, 97), 128: (1, 65), 4096: (3, 4096 + 4097 + 9_000_000)}


def test_sums_over_many_batches_are_those_of_the_index(corpus):
    random = np.random.default_rng(1)
    size = 200_000  # more than a batch
    columns = {
        "source": random.choice(["a", "b"], size),
        "category": np.full(size, "Web"),
        "split": random.choice(["trunk", "validation"], size),
        "tokens": random.integers(2, 5000, size),
    }
    _replace(corpus, pa.table(columns), row_group_size=50_000)
    rows = length_rows(corpus)
    assert len(rows) == len({(row["source"], row["split"], row["length_bucket"]) for row in rows}) == 32
    mine = (columns["source"] == "b") & (columns["split"] == "validation") & (columns["tokens"] <= 32)
    (cell,) = (r for r in rows if (r["source"], r["split"], r["length_bucket"]) == ("b", "validation", 32))
    assert (cell["documents"], cell["tokens"]) == (mine.sum(), columns["tokens"][mine].sum())
    assert sum(row["documents"] for row in rows) == size


def test_an_index_that_is_not_the_manifests_is_refused(corpus):
    path = corpus / "documents.parquet"
    data = bytearray(path.read_bytes())
    data[100] ^= 1
    path.write_bytes(data)
    with pytest.raises(SmeltError, match=r"documents\.parquet is damaged: its SHA-256 differs; delete"):
        length_rows(corpus)
    path.unlink()
    with pytest.raises(SmeltError, match=r"documents\.parquet does not exist; delete .*manifest"):
        length_rows(corpus)


def test_records_are_read_with_threads_and_devices(tmp_path):
    folder = tmp_path / "benchmarks"
    write_json(folder / "claims.jsonl", {"s": 1.5})
    write_json(folder / "train_run" / f"{RUN}.jsonl", {"s": 60, "threads": 4, "resources": {"gpu": 2}})
    write_json(folder / "train_run" / "gone-s0-smelt.jsonl", {"s": 1})
    write_json(folder / "site.jsonl", {"s": 1})
    assert cost_rows(tmp_path, {RUN: ""}) == [
        {"stage": "train_run", "job": RUN, "seconds": 60.0, "cores": 4, "devices": 2},
        {"stage": "claims", "job": "all", "seconds": 1.5, "cores": 1, "devices": 0},
    ]
    assert cost_rows(tmp_path / "elsewhere", {RUN: ""}) == []


@pytest.mark.parametrize("record", [{}, {"s": "soon"}, {"s": None}, [1.0], {"s": 1, "resources": 3}])
def test_a_damaged_record_is_named(tmp_path, record):
    write_json(tmp_path / "benchmarks" / "claims.jsonl", record)
    with pytest.raises(SmeltError, match=r"claims\.jsonl is no benchmark record"):
        cost_rows(tmp_path, {})


@pytest.mark.parametrize(
    "text",
    [
        "",
        '{"s": 1',
        '{"s": NaN}',
        '{"s": -500}',
        '{"s": 1e400}',
        '{"s": 1, "threads": 1e400}',
        '{"s": 1, "threads": 0}',
        '{"s": 1, "threads": 99999999999999999999999}',
        '{"s": 1, "resources": {"gpu": -1}}',
    ],
)
def test_an_impossible_record_is_named_and_what_mends_it(tmp_path, text):
    path = tmp_path / "benchmarks" / "claims.jsonl"
    path.parent.mkdir()
    path.write_text(text)
    with pytest.raises(SmeltError, match=r"claims\.jsonl is no benchmark record of Snakemake; delete it"):
        cost_rows(tmp_path, {})
