"""The command from a trained run to its tables, and the files it refuses."""

import dataclasses
import re
import shutil
import subprocess
import sys

import pyarrow.parquet as pq
import pytest

from smelt.errors import SmeltError
from smelt.evaluate.plan import STANDARD, SWEEP, VALIDATION, cases, count_cases, extents, settings
from smelt.evaluate.run import evaluate_run
from smelt.evaluate.scores import task_scores
from smelt.evaluate.sequences import Encoder
from smelt.evaluate.shots import ORIGINAL_SEED
from smelt.evaluate.suite import open_suite
from smelt.evaluate.validation import validation_loss
from smelt.files import read_json, write_json
from smelt.results.parquet import read_rows
from tests.evaluate.conftest import SOURCES

TABLES = ("endpoints", "validation", "task_scores", "items")


@pytest.fixture(scope="module")
def out(study, run, corpus, tasks, tmp_path_factory):
    folder = tmp_path_factory.mktemp("out")
    evaluate_run(study, run, corpus.folder, tasks, folder)
    return folder


def table(folder, name):
    return read_rows(folder / f"{name}.parquet")


def test_endpoints_follow_from_the_other_tables(study, run, out):
    endpoints, validation = table(out, "endpoints"), table(out, "validation")
    scores = table(out, "task_scores")
    assert [row["horizon"] for row in endpoints] == [4, 8]
    for row, entry in zip(endpoints, read_json(run / "manifest.json")["endpoints"], strict=True):
        mine = [r for r in validation if r["horizon"] == row["horizon"]]
        assert row["val_loss"] == pytest.approx(validation_loss(mine), rel=1e-12)
        assert (row["tokens"], row["flops"]) == (entry["tokens"], entry["flops"])
        assert (row["suite"], row["baseline_version"], row["mmlu"]) == ("local", "local", None)
        assert row["core"] is not None and 4 < row["completion"] < 9
        assert {r["source"] for r in mine} == {source.name for source in SOURCES.sources}
    assert {r["task"] for r in scores} == set(read_json(run.parent.parent / "tasks/tasks.json")["tasks"])
    values = [r["value"] for r in scores if r["metric"] == "accuracy"]
    assert all(0 <= value <= 1 for value in values)


def test_scores_follow_from_the_items(out, tasks):
    items = pq.read_table(out / "items.parquet").to_pydict()
    again = task_scores(items, open_suite(tasks).tasks)
    key = ("run", "horizon", "task", "shots", "seed", "metric")
    again = {tuple(row[k] for k in key): row for row in again}
    stored = {tuple(row[k] for k in key): row for row in table(out, "task_scores")}
    assert again.keys() == stored.keys()
    for name, row in stored.items():
        assert again[name]["value"] == pytest.approx(row["value"], rel=1e-9)


def test_the_sweep_is_made_at_the_last_endpoint_only(study, out, tasks):
    suite = open_suite(tasks)
    scores = table(out, "task_scores")
    for row in scores:
        task = suite.tasks[row["task"]]
        allowed = {task.shots} if row["horizon"] == 4 or not task.shots else {task.shots, 0, 1}
        assert row["shots"] in allowed
        assert row["seed"] in ({ORIGINAL_SEED} if row["shots"] == 0 else {ORIGINAL_SEED, ORIGINAL_SEED + 1})
    last = {(r["task"], r["shots"]) for r in scores if r["horizon"] == 8}
    assert {(name, k) for name, task in suite.tasks.items() if task.shots for k in (0, 1)} <= last


def test_two_evaluations_give_the_same_bytes(study, run, corpus, tasks, out, tmp_path):
    evaluate_run(study, run, corpus.folder, tasks, tmp_path)
    for name in TABLES:
        assert (tmp_path / f"{name}.parquet").read_bytes() == (out / f"{name}.parquet").read_bytes()


def test_speed_and_cost_are_printed(study, run, corpus, tasks, tmp_path, capsys):
    evaluate_run(study, run, corpus.folder, tasks, tmp_path)
    lines = capsys.readouterr().err.splitlines()
    pattern = r"{} horizon {}: val_loss \d\.\d+ in .* suite local with random baselines local: core .*, "
    pattern += r"completion \d\.\d+, mmlu not measured; \d+ prompts in .* s, \d+ prompts/s, \d+ tokens/s"
    for line, horizon in zip(lines, (4, 8), strict=False):
        assert re.fullmatch(pattern.format(run.name, horizon), line)
    # the run's training took 8 s
    used, share = re.search(r"took ([\d.]+) s of processor time, (\d+)%", lines[2]).groups()
    assert abs(float(used) / 8 - int(share) / 100) < 0.02


def test_what_is_evaluated_where(study):
    spec = study.evaluation
    assert extents(True, 3, spec) == [STANDARD, STANDARD, SWEEP]
    assert extents(True, 2, dataclasses.replace(spec, shot_horizons="all")) == [SWEEP, SWEEP]
    assert extents(False, 3, spec) == [VALIDATION, VALIDATION, STANDARD]


def test_the_plan_counts_its_cases_and_adds_long_shots(study, tasks, corpus):
    suite = open_suite(tasks)
    spec = dataclasses.replace(study.evaluation, long_shots=(3,))
    plan = settings(suite, spec, SWEEP)
    assert {s.task for s in plan if s.shots == 3} == set(suite.long)
    encoder = Encoder.of_corpus(corpus.tokenizer, corpus.bos)
    made = list(cases(suite, spec, plan, encoder, 400))
    assert len(made) == count_cases(suite, spec, plan) == len(plan) * spec.items
    assert settings(suite, spec, VALIDATION) == []
    assert all(s.ids[0] == corpus.bos for case in made for s in case.sequences)


def test_shots_come_from_the_whole_file_even_when_few_items_are_evaluated(study, tasks, corpus):
    suite = open_suite(tasks)
    plan = [s for s in settings(suite, study.evaluation, STANDARD) if s.task == "local_operators"][:1]
    encoder = Encoder.of_corpus(corpus.tokenizer, corpus.bos)
    few = list(cases(suite, study.evaluation, plan, encoder, 400))
    many = list(cases(suite, dataclasses.replace(study.evaluation, items=40), plan, encoder, 400))
    assert [c.sequences for c in few] == [c.sequences for c in many[: len(few)]]


@pytest.fixture
def copy(run, tmp_path):
    return shutil.copytree(run, tmp_path / "run")


def refuses(study, run, corpus, tasks, out, message):
    with pytest.raises(SmeltError, match=message):
        evaluate_run(study, run, corpus.folder, tasks, out)
    assert not list(out.glob("*.parquet"))


def test_files_that_do_not_belong_together_are_refused(study, copy, corpus, tasks, tmp_path):
    other = dataclasses.replace(study, evaluation=dataclasses.replace(study.evaluation, suite="dclm"))
    refuses(other, copy, corpus, tasks, tmp_path / "o", "tasks are of suite 'local'")
    manifest = read_json(copy / "manifest.json")
    write_json(copy / "manifest.json", {**manifest, "corpus": "0" * 64})
    refuses(study, copy, corpus, tasks, tmp_path / "o", "trained on another corpus")
    write_json(copy / "manifest.json", manifest)
    renewed = shutil.copytree(tasks, tmp_path / "tasks")
    write_json(renewed / "tasks.json", {**read_json(tasks / "tasks.json"), "corpus": "0" * 64})
    refuses(study, copy, corpus, renewed, tmp_path / "o", "checked against another corpus")


def test_manifests_of_another_shape_are_refused(study, copy, corpus, tasks, tmp_path):
    manifest = read_json(copy / "manifest.json")
    changes = {
        "horizons of the endpoints": {"endpoints": manifest["endpoints"][1:]},
        "spec_hash": {"spec_hash": "0" * 64},
        "run is 'xs-s85-baseline'": {"run": "xs-s85-baseline"},
    }
    for told, change in changes.items():
        write_json(copy / "manifest.json", {**manifest, **change})
        mend = f"{told}.* spec.json beside it has .*; delete .*/run/manifest.json and run the same"
        refuses(study, copy, corpus, tasks, tmp_path / "o", mend)
    for value in ([], None, {"run": "x"}, {**manifest, "endpoints": [{}]}):
        write_json(copy / "manifest.json", value)
        refuses(study, copy, corpus, tasks, tmp_path / "o", "manifest.json: .*; delete .*/run/manifest.json")


@pytest.mark.parametrize("tasks_json", [{"suite": "local"}, [], None, {"tasks": {}}, {"tasks": {"x": []}}])
def test_a_tasks_file_of_another_shape_is_refused(study, run, corpus, tasks, tmp_path, tasks_json):
    other = shutil.copytree(tasks, tmp_path / "tasks")
    if isinstance(tasks_json, dict) and "tasks" in tasks_json:
        tasks_json = {**read_json(tasks / "tasks.json"), **tasks_json}
    write_json(other / "tasks.json", tasks_json)
    mend = "tasks.json: .*; delete .*/tasks/tasks.json and run the same snakemake command again"
    refuses(study, run, corpus, other, tmp_path / "o", mend)


def test_a_changed_or_missing_task_file_names_what_to_delete(study, run, corpus, tasks, tmp_path):
    other = shutil.copytree(tasks, tmp_path / "tasks")
    path = min(other.glob("*.jsonl"))
    path.write_bytes(path.read_bytes() + b"\n")
    refuses(study, run, corpus, other, tmp_path / "o", "has changed since .*; delete .*/tasks/tasks.json")
    path.unlink()
    refuses(study, run, corpus, other, tmp_path / "o", "jsonl does not exist; delete .*/tasks/tasks.json")


def test_damaged_and_missing_weights_are_refused(study, copy, corpus, tasks, tmp_path):
    path = copy / "endpoints" / "h8.safetensors"
    data = bytearray(path.read_bytes())
    data[-5] ^= 1
    path.write_bytes(data)
    refuses(
        study, copy, corpus, tasks, tmp_path / "o", "h8.safetensors is damaged.*; delete .*/run/manifest.json"
    )
    path.unlink()
    refuses(
        study,
        copy,
        corpus,
        tasks,
        tmp_path / "o",
        "h8.safetensors does not exist; delete .*/run/manifest.json",
    )


def test_an_answer_that_cannot_fit_is_refused(study, run, corpus, tasks, tmp_path):
    short = dataclasses.replace(study, evaluation=dataclasses.replace(study.evaluation, max_length=6))
    refuses(short, run, corpus, tasks, tmp_path / "o", "it must fit into 6 tokens")


def test_the_command_line_tells_mistakes_in_one_line(tmp_path):
    command = [
        sys.executable,
        "-m",
        "smelt.evaluate",
        "tasks",
        "--study",
        "nosuch",
        "--corpus",
        "c",
        "--out",
        "o",
    ]
    result = subprocess.run(command, capture_output=True, text=True, check=False)
    assert result.returncode == 2 and result.stderr.startswith("error: there is no study 'nosuch'")
    assert len(result.stderr.splitlines()) == 1


def test_nothing_heavy_is_imported():
    heavy = ("lightning", "pandas", "seaborn", "scipy", "matplotlib")
    code = f"import sys, smelt.evaluate.run; print(*(m for m in {heavy} if m in sys.modules))"
    result = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert result.stdout.strip() == ""
