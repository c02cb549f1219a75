"""Scores name their suite and baselines; prompts that the context cut are counted."""

import json

import pandas as pd
import pytest

from smelt.report.data import Data
from smelt.report.figures import domains, downstream
from smelt.report.suite import cut_prompts, cut_share_note, mostly_cut, suite_note
from smelt.report.tables import tasks as task_table
from smelt.results.build import build_database
from smelt.results.parquet import write_table
from tests.report.synthetic import Synthetic

RUNS = ("xs-s85-baseline", "xs-s85-smelt")


@pytest.fixture(scope="module")
def cut(study, tmp_path_factory):
    """The study with items of two tasks: of operators every prompt of the largest k is cut."""
    folder = Synthetic(study, tmp_path_factory.mktemp("cut"), sources=2).write()
    shots, horizons = study.evaluation.shots, study.training.horizons
    for run in RUNS:
        rows = [
            {
                "run": run,
                "horizon": horizon,
                "task": task,
                "shots": k,
                "seed": 0,
                "item": item,
                "option": option,
            }
            | {"part": "a", "gold": not option, "nll": 1.0, "tokens": 1, "bytes": 1, "greedy": False}
            | {"truncated": k == max(shots) and task == "bigbench_operators" and horizon == max(horizons)}
            for horizon in (min(horizons), max(horizons))
            for task in ("bigbench_operators", "squad")
            for k in shots
            for item in range(3)
            for option in range(2)
        ]
        write_table(folder / "evaluate" / run, "items", rows)
    build_database(study, folder, folder / "results.duckdb")
    data = Data(study, folder / "results.duckdb")
    yield data
    data.close()


def test_cut_prompts_are_those_of_the_last_endpoint(cut, study):
    frame = cut_prompts(cut).set_index(["task", "shots"])
    last = max(study.evaluation.shots)
    assert (frame["answers"] == 12).all()
    assert frame.at[("bigbench_operators", last), "cut"] == 12 and frame["cut"].sum() == 12


def test_the_share_of_cut_prompts_is_told_by_demonstrations(cut, study):
    prompts = cut_prompts(cut)
    last = max(study.evaluation.shots)
    note = cut_share_note(cut, prompts)
    assert f"to fit the context of {study.corpus.context} tokens: 0% at k = 0" in note
    assert note.endswith(f"50% at k = {last}.")
    assert mostly_cut(prompts) == set()
    assert mostly_cut(prompts[prompts["task"] == "bigbench_operators"]) == {last}
    whole = cut_share_note(cut, prompts[prompts["task"] == "squad"])
    assert whole == f"Every prompt fits the context of {study.corpus.context} tokens."
    assert cut_share_note(cut, prompts[:0]) == ""


def test_figures_of_demonstrations_tell_it_and_shade_it(cut):
    # Of all prompts at the largest k half are cut, of one task all.
    for draw, shaded in ((domains.shots, []), (domains.task_shots, ["most prompts cut"])):
        drawing = draw(cut)
        assert "Answers whose prompt was cut on the left" in drawing.note
        assert "no random baseline is taken off." in drawing.note
        labels = [text.get_text() for text in drawing.figure.legends[0].get_texts()]
        assert labels == ["Baseline", "SMELT", *shaded]


def test_scores_name_suite_and_baselines(data, drawn):
    suite = data.frame("SELECT DISTINCT suite FROM endpoints")["suite"].tolist()
    assert suite == ["local"]
    for name in ("fig01c", "fig05", "fig06", "fig08", "fig09a", "fig09b", "fig11b", "fig11c", "fig24"):
        note = json.loads((drawn / "figures" / f"{name}.json").read_text())["note"]
        assert "Suite: local (this project's own tasks local_*, not DCLM); " in note, name
    assert "chance is that of random baselines v2." in downstream.radar(data).note
    assert "random baselines that centre Core: v2." in downstream.core(data).note
    assert "the score uses no random baseline." in downstream.completion(data).note
    assert "chance is that of random baselines v2." in task_table.tasks(data).note


def test_the_original_suite_is_named_as_such(data, monkeypatch):
    rows = pd.DataFrame({"suite": ["dclm"], "baseline_version": ["v1"]})
    monkeypatch.setattr(data, "frame", lambda sql: rows)
    assert suite_note(data) == "Suite: DCLM; random baselines: v1."
    monkeypatch.setattr(data, "frame", lambda sql: rows[:0])
    assert suite_note(data) == ""
