"""The database: every table there, only this study's rows, whole or absent."""

import dataclasses
import os
import shutil
import subprocess
import sys

import duckdb
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from smelt.budget import resolve_run
from smelt.errors import SmeltError
from smelt.files import read_json, write_json
from smelt.results.build import build_database
from smelt.results.parquet import read_rows, write_table
from smelt.results.schemas import TABLES
from smelt.results.stages import DERIVED, OF_GRID_RUN, OF_RUN, OF_STUDY
from smelt.study import load_study
from tests.report.synthetic import Synthetic

STUDY = load_study("smoke")
RUN = "xs-s85-smelt"


@pytest.fixture(scope="session")
def stages(tmp_path_factory):
    return Synthetic(STUDY, tmp_path_factory.mktemp("stages"), sources=4).write()


@pytest.fixture
def results(stages, tmp_path):
    return shutil.copytree(stages, tmp_path / "results")


def content(path, name):
    with duckdb.connect(str(path), read_only=True) as connection:
        return connection.execute(f'SELECT * FROM "{name}"').fetchall()


def test_every_declared_table_is_there_and_sorted_by_key(results):
    out = results / "results.duckdb"
    counts = build_database(STUDY, results, out)
    assert counts.keys() == TABLES.keys()
    for name, table in TABLES.items():
        rows = content(out, name)
        assert len(rows) == counts[name]
        keys = [row[: table.keys] for row in rows]
        assert keys == sorted(keys), name
    assert counts["runs"] and counts["endpoints"] and counts["claims"] == 22


def test_rows_are_those_of_the_stage_files(results):
    out = results / "results.duckdb"
    build_database(STUDY, results, out)
    expected = [tuple(row.values()) for row in read_rows(results / "laws" / "ce_gain.parquet")]
    assert content(out, "ce_gain") == expected


def test_a_stage_that_has_not_run_leaves_an_empty_table_in_a_partial_database(results):
    shutil.rmtree(results / "mechanism")
    (results / "claims" / "claims.parquet").unlink()
    counts = build_database(STUDY, results, results / "results.duckdb", partial=True)
    assert counts["sink"] == counts["claims"] == 0 < counts["validation"]


def test_every_table_that_is_not_derived_has_its_stage():
    stages = [
        name for tables in (OF_STUDY, OF_RUN, OF_GRID_RUN) for names in tables.values() for name in names
    ]
    assert sorted(stages) == sorted(TABLES.keys() - set(DERIVED))


@pytest.mark.parametrize(
    "path",
    [
        "budget/power.parquet",
        "corpus/corpus_sources.parquet",
        "corpus/manifest.json",
        f"runs/{RUN}/train_log.parquet",
        f"runs/{RUN}/throughput.parquet",
        f"runs/{RUN}/manifest.json",
        f"runs/{RUN}/spec.json",
        f"evaluate/{RUN}/items.parquet",
        f"evaluate/{RUN}/endpoints.parquet",
        f"mechanism/{RUN}/sink.parquet",
        "laws/tpp.parquet",
        "claims/claims.parquet",
    ],
)
def test_a_missing_file_is_named_and_no_database_is_made(results, path):
    (results / path).unlink()
    with pytest.raises(SmeltError, match=f"{path} does not exist.*run the same snakemake command again"):
        build_database(STUDY, results, results / "results.duckdb")
    assert not (results / "results.duckdb").exists()


def test_only_runs_of_the_grid_need_a_look_inside(results):
    ablations = {row["run"] for row in read_rows(results / "budget" / "runs.parquet")} - {
        path.name for path in (results / "mechanism").iterdir()
    }
    assert ablations
    build_database(STUDY, results, results / "results.duckdb")


def _manifest(**change):
    def harm(results):
        path = results / "runs" / RUN / "manifest.json"
        write_json(path, read_json(path) | change)

    return harm


def _one_endpoint_less(results):
    path = results / "runs" / RUN / "manifest.json"
    raw = read_json(path)
    write_json(path, raw | {"endpoints": raw["endpoints"][:-1]})


def _spec(content):
    return lambda results: write_json(results / "runs" / RUN / "spec.json", content)


def _swapped(results):
    shutil.rmtree(results / "runs" / RUN)
    shutil.copytree(results / "runs" / "xs-s95-smelt", results / "runs" / RUN)


def _list(results):
    write_json(results / "runs" / RUN / "manifest.json", [])


@pytest.mark.parametrize("partial", [False, True])
@pytest.mark.parametrize(
    ("harm", "told"),
    [
        (_manifest(run="xs-s95-smelt"), "manifest.json: run is 'xs-s95-smelt'"),
        (_manifest(endpoints=[{}]), "manifest.json: endpoints.0: 'horizon' is a required"),
        (_list, r"manifest.json: \[\] is not of type 'object'"),
        (_one_endpoint_less, "manifest.json: horizons of the endpoints is"),
        (_spec({}), "spec.json: point is None"),
        (_swapped, "spec.json is of run xs-s95-smelt, not of xs-s85-smelt"),
    ],
)
def test_records_of_another_run_are_refused(results, harm, told, partial):
    harm(results)
    with pytest.raises(SmeltError, match=f"{told}.*delete .*/runs/{RUN}/manifest.json and run the same"):
        build_database(STUDY, results, results / "results.duckdb", partial=partial)


def test_two_builds_are_equal_and_hold_no_time(results):
    first, second = results / "a.duckdb", results / "b.duckdb"
    build_database(STUDY, results, first)
    os.utime(results / "budget" / "runs.parquet", (0, 0))
    build_database(STUDY, results, second)
    for name in TABLES:
        assert content(first, name) == content(second, name), name


def test_provenance_names_the_study_its_runs_and_versions(results):
    out = results / "results.duckdb"
    build_database(STUDY, results, out)
    facts = dict(content(out, "provenance"))
    assert facts["study"] == "smoke" and facts["seeds"] == "0"
    assert facts[f"spec_{RUN}"] == resolve_run(STUDY, RUN).spec_hash
    assert facts["devices"] == "cpu (synthetic)"
    assert len(facts["corpus_sha256"]) == 64
    assert facts["version_duckdb"] == duckdb.__version__


def test_folders_of_other_runs_are_not_read(results):
    shutil.copytree(results / "evaluate" / RUN, results / "evaluate" / "gone-s85-smelt")
    out = results / "results.duckdb"
    build_database(STUDY, results, out)
    assert {row[0] for row in content(out, "endpoints")} <= {row[0] for row in content(out, "runs")}


def _foreign(results):
    shutil.copy(
        results / "evaluate" / "xs-s95-smelt" / "endpoints.parquet",
        results / "evaluate" / RUN / "endpoints.parquet",
    )


def _unknown(results):
    rows = read_rows(results / "laws" / "residuals.parquet")
    write_table(results / "laws", "residuals", [rows[0] | {"run": "gone"}])


def _truncated(results):
    path = results / "evaluate" / RUN / "validation.parquet"
    path.write_bytes(path.read_bytes()[:-100])


def _columns(results):
    path = results / "laws" / "tpp.parquet"
    pq.write_table(pq.read_table(path).drop_columns(["tpp"]), path)


def _missing(results):
    (results / "budget" / "runs.parquet").unlink()


def _other_study(results):
    rows = [row for row in read_rows(results / "budget" / "runs.parquet") if row["run"] != RUN]
    write_table(results / "budget", "runs", rows)


def _stale(results):
    folder = results / "runs" / RUN
    spec = resolve_run(STUDY, RUN)
    spec = dataclasses.replace(spec, lr=2 * spec.lr)
    write_json(folder / "spec.json", spec.to_dict())
    write_json(folder / "manifest.json", read_json(folder / "manifest.json") | {"spec_hash": spec.spec_hash})


@pytest.mark.parametrize(
    ("harm", "told"),
    [
        (_foreign, "does not belong there"),
        (_unknown, "rows of run gone"),
        (_truncated, "is damaged"),
        (_columns, "has other columns than table tpp"),
        (_missing, "smelt.budget tables"),
        (_other_study, "has not the runs of study smoke"),
        (_stale, "another specification"),
    ],
)
def test_harm_is_named_and_the_old_database_stays(results, harm, told):
    out = results / "results.duckdb"
    build_database(STUDY, results, out)
    before = out.read_bytes()
    harm(results)
    with pytest.raises(SmeltError, match=told):
        build_database(STUDY, results, out)
    assert out.read_bytes() == before
    assert not [path for path in results.iterdir() if path.name.startswith(".")]


def test_a_key_that_occurs_twice_is_refused(results):
    path = results / "laws" / "tpp.parquet"
    table = pq.read_table(path)
    pq.write_table(table.take([0, 0]), path)
    with pytest.raises(SmeltError, match="table tpp: the key .* occurs twice"):
        build_database(STUDY, results, results / "results.duckdb")


def test_seeds_must_be_those_asked_for(results):
    build_database(STUDY, results, results / "results.duckdb", seeds=1)
    with pytest.raises(SmeltError, match="with 2 seeds"):
        build_database(STUDY, results, results / "results.duckdb", seeds=2)


def test_sql_can_tell_all_columns_apart():
    for table in TABLES.values():
        names = [column.name.lower() for column in table.columns]
        assert len(names) == len(set(names)), table.name


def test_an_arrow_error_of_any_kind_is_told_as_damage(results, monkeypatch):
    def unsupported(source, **options):
        raise pa.ArrowNotImplementedError("unknown codec")

    monkeypatch.setattr("smelt.results.parquet.ParquetReader", unsupported)
    path = results / "laws" / "tpp.parquet"
    with pytest.raises(SmeltError, match=r"tpp.parquet is damaged \(unknown codec\); delete it and run"):
        read_rows(path)


THREADS = """
import os, sys
from pathlib import Path
from smelt.results.build import build_database
from smelt.results.parquet import read_arrow, write_columns
from smelt.study import load_study

before, folder = os.listdir("/proc/self/task"), Path(sys.argv[1])
build_database(load_study("smoke"), folder, folder / "results.duckdb")
table = read_arrow(folder / "laws" / "law_draws.parquet")
write_columns(folder, "law_draws", {name: table[name].to_numpy() for name in table.column_names})
print(len(os.listdir("/proc/self/task")) - len(before))
"""


@pytest.mark.skipif(sys.platform != "linux", reason="threads are counted in /proc")
def test_tables_are_read_and_written_without_threads_that_outlive_it(results):
    # Arrow's pool sometimes aborts a process that ends soon after its first use (apache/arrow, issue 34314).
    done = subprocess.run(
        [sys.executable, "-c", THREADS, str(results)], capture_output=True, text=True, check=False
    )
    assert (done.returncode, done.stdout) == (0, "0\n"), done.stderr
