"""Hostile input: files that would run code, names that would reach a shell, a page or the database."""

import json
import os
import pickle
import subprocess
import sys

import duckdb
import pytest
import yaml

from smelt.budget import resolve_run
from smelt.corpus.fetch import Locked, _download
from smelt.corpus.sources import load_sources
from smelt.errors import SmeltError
from smelt.files import ROOT, write_json
from smelt.results.provenance import provenance_rows
from smelt.study import load_study, study_path
from smelt.workflow import check_config
from tests.study.conftest import SMOKE, changed

HOSTILE = [
    "a;rm -rf x",
    "$(touch pwned)",
    "`id`",
    "../up",
    "a b",
    "a'b",
    'a"b',
    "a\nb",
    "a\n",
    "-rf",
    "<script>",
    "",
]


class Payload:
    """Pickles to a call that leaves a trace."""

    def __init__(self, trace):
        self.trace = trace

    def __reduce__(self):
        return os.mkdir, (str(self.trace),)


def test_pickled_weights_are_refused_and_not_run(tmp_path):
    from smelt.model import load_model

    path, trace = tmp_path / "h40.safetensors", tmp_path / "pwned"
    path.write_bytes(pickle.dumps(Payload(trace)))
    with pytest.raises(SmeltError, match="h40.safetensors is not a whole safetensors file"):
        load_model(path, resolve_run(load_study("smoke"), "xs-s85-smelt"))
    assert not trace.exists()


def test_a_pickled_checkpoint_is_skipped_and_not_run(tmp_path):
    from smelt.files import sha256_file
    from smelt.train.resume import Identity, Store

    identity, trace = Identity("s", "c", 1), tmp_path / "pwned"
    store = Store(tmp_path, identity)
    for part in ("rows", "0"):
        path = tmp_path / "resume" / f"000000005-{part}.safetensors"
        path.parent.mkdir(exist_ok=True)
        path.write_bytes(pickle.dumps(Payload(trace)))
    files = {path.name: sha256_file(path) for path in (tmp_path / "resume").iterdir()}
    store.commit(5, 5, files, [])
    with pytest.raises(Exception, match="(?i)header"):
        store.rows(5)
    assert not trace.exists()


@pytest.mark.parametrize("tag", ["!!python/object/apply:os.mkdir", "!!python/object/new:os.mkdir"])
def test_yaml_that_would_call_something_is_refused(tmp_path, tag):
    trace = tmp_path / "pwned"
    path = tmp_path / "smoke.yaml"
    path.write_text(f"name: {tag} [{trace}]\n")
    with pytest.raises(SmeltError, match="smoke.yaml: not valid YAML"):
        load_study(path)
    with pytest.raises(SmeltError, match="smoke.yaml: not valid YAML"):
        load_sources("smoke", tmp_path)
    assert not trace.exists()


@pytest.mark.parametrize("name", HOSTILE)
def test_no_name_of_a_study_reaches_a_shell_or_a_path(tmp_path, name):
    for where in ("name", "corpus.sources", f"scales.{name}", "evaluation.suite"):
        value = SMOKE["scales"]["xs"] if where.startswith("scales") else name
        path = tmp_path / "smoke.yaml"
        study = changed(where, value) if "." not in name else dict(SMOKE, name=name)
        path.write_text(yaml.safe_dump(study, allow_unicode=True))
        with pytest.raises(SmeltError, match="smoke.yaml"):
            load_study(path)


@pytest.mark.parametrize("name", HOSTILE)
def test_no_name_of_a_source_reaches_a_path(tmp_path, name):
    sources = yaml.safe_load((ROOT / "config/sources/small.yaml").read_text())
    sources["sources"][0]["name"] = name
    (tmp_path / "evil.yaml").write_text(yaml.safe_dump(sources))
    with pytest.raises(SmeltError, match="evil.yaml: sources.0.name"):
        load_sources("evil", tmp_path)


@pytest.mark.parametrize("value", [name for name in HOSTILE if name not in ("../up", "-rf")])
@pytest.mark.parametrize("key", ["study", "results", "cache", "seeds"])
def test_no_value_of_the_configuration_reaches_a_shell(key, value):
    config = {"study": "smoke", "results": "results", "cache": "data/cache", key: value}
    with pytest.raises(SmeltError, match=f"configuration: {key}"):
        check_config(config)


def test_a_file_name_of_tasks_cannot_leave_its_folder(tmp_path):
    from smelt.evaluate.suite import open_suite

    (tmp_path / "secret").write_text("{}")
    folder = tmp_path / "tasks"
    task = {"name": "a", "kind": "schema", "shots": 0, "delimiter": "", "category": "c", "chance": 0.0}
    task |= {"file": "../secret", "by_category": False, "core": True, "sha256": ""}
    suite = {"suite": "local", "baseline_version": "local", "mmlu": None, "long": [], "complete": True}
    write_json(folder / "tasks.json", {**suite, "corpus": "", "tasks": {"a": task}})
    with pytest.raises(SmeltError, match="tasks.a.file"):
        open_suite(folder)


def test_a_study_is_no_way_to_read_other_files(tmp_path):
    """What is not YAML of a study is refused without its content."""
    secret = tmp_path / "smoke.yaml"
    secret.write_text("password: hunter2 hunter2\n")
    with pytest.raises(SmeltError) as caught:
        load_study(secret)
    assert "hunter2" not in str(caught.value)
    with pytest.raises(SmeltError, match="there is no study"):
        study_path("../../etc/passwd")


SECRETS = {
    "HF_TOKEN": "hf_secretsecretsecret",
    "AWS_SECRET_ACCESS_KEY": "aws-secret",
    "WANDB_API_KEY": "wandb-secret",
    "PIP_INDEX_URL": "http://user:index-secret@127.0.0.1:9/simple",
}
WORDS = ("secretsecret", "aws-secret", "wandb-secret", "index-secret")


def test_provenance_tells_no_secret_of_the_environment(tmp_path, monkeypatch):
    from smelt.results.parquet import write_table

    for name, value in SECRETS.items():
        monkeypatch.setenv(name, value)
    write_table(tmp_path / "budget", "runs", [])
    told = json.dumps(provenance_rows(load_study("smoke"), tmp_path, {}))
    assert not [word for word in WORDS if word in told]


def test_a_failed_fetch_tells_no_password(tmp_path, monkeypatch):
    for name, value in {**SECRETS, "PIP_RETRIES": "0", "PIP_CONFIG_FILE": os.devnull}.items():
        monkeypatch.setenv(name, value)
    monkeypatch.delenv("PIP_EXTRA_INDEX_URL", raising=False)
    with pytest.raises(SmeltError, match="could not be fetched") as caught:
        _download([Locked("words", "1.0", "words-1.0-py3-none-any.whl", "0" * 64)], tmp_path)
    assert not [word for word in WORDS if word in str(caught.value)]


def test_a_traceback_of_a_job_tells_no_secret():
    """Even where a stage breaks, the log has no environment in it."""
    code = "import os; from smelt.cli import run\nrun(lambda: {}['gone'])"
    ended = subprocess.run(
        [sys.executable, "-c", code], env={**os.environ, **SECRETS}, cwd=ROOT, capture_output=True, text=True
    )
    assert ended.returncode and "KeyError" in ended.stderr
    assert not [word for word in WORDS if word in ended.stdout + ended.stderr]


def test_values_are_bound_in_queries(tmp_path):
    from smelt.report.data import Data
    from smelt.results.schemas import SQL_TYPES, TABLES

    with duckdb.connect(str(tmp_path / "a.duckdb")) as connection:
        for table in TABLES.values():
            columns = ", ".join(f'"{column.name}" {SQL_TYPES[column.kind]}' for column in table.columns)
            connection.execute(f'CREATE TABLE "{table.name}" ({columns})')
        connection.execute("INSERT INTO provenance VALUES ('study', 'smoke')")
    data = Data(load_study("smoke"), tmp_path / "a.duckdb")
    hostile = "'; DROP TABLE provenance; --"
    assert data.frame("SELECT * FROM provenance WHERE value = ?", hostile).empty
    assert len(data.frame("SELECT * FROM provenance")) == 1
    with pytest.raises(duckdb.Error, match="read-only"):
        data.frame("DROP TABLE provenance")
    data.close()
