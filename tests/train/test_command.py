import json
import sys

import pytest

from smelt.budget import resolve_run
from smelt.errors import SmeltError
from smelt.study import load_study
from smelt.train import __main__ as module
from smelt.train.__main__ import locked, main
from smelt.train.engine import check_corpus
from tests.train.tiny import PROCESSES, RandomCorpus, tiny_spec


def command(monkeypatch, run, spec, out):
    arguments = ["--study", "smoke", "--run", run, "--spec", spec, "--corpus", "nowhere", "--out", str(out)]
    monkeypatch.setattr(sys, "argv", ["smelt.train", *arguments])
    return main()


def test_another_specification_than_the_planned_one_is_refused(monkeypatch, tmp_path):
    with pytest.raises(SmeltError, match=r"run xs-s85-smelt has the specification [0-9a-f]{64}, but abc was"):
        command(monkeypatch, "xs-s85-smelt", "abc", tmp_path / "run")
    assert not (tmp_path / "run").exists()


def test_a_missing_corpus_is_refused(monkeypatch, tmp_path):
    spec = resolve_run(load_study("smoke"), "xs-s85-smelt").spec_hash
    with pytest.raises(SmeltError, match=r"nowhere/manifest.json does not exist"):
        command(monkeypatch, "xs-s85-smelt", spec, tmp_path / "run")


def test_more_epochs_than_the_study_allows_are_refused(monkeypatch):
    corpus = RandomCorpus()
    check_corpus(tiny_spec(), corpus)
    monkeypatch.setattr(corpus, "rows", lambda phase, context: 5)
    with pytest.raises(SmeltError, match=r"run xs-s85-smelt asks for 28 contexts .* 5.60 epochs of the 5"):
        check_corpus(tiny_spec(), corpus)


def _try_lock(folder, answers, patience):
    module._PATIENCE = patience
    try:
        with locked(folder):
            answers.put("")
    except SmeltError as error:
        answers.put(str(error))


def test_one_process_at_a_time_trains_in_a_folder(tmp_path):
    answers = PROCESSES.SimpleQueue()
    process = PROCESSES.Process(target=_try_lock, args=(tmp_path, answers, 0.1))
    with locked(tmp_path):
        process.start()
        process.join()
    assert answers.get() == f"another process is training in {tmp_path}; wait for it or end it"


def test_a_process_that_is_ending_is_waited_for(tmp_path):
    answers = PROCESSES.SimpleQueue()
    process = PROCESSES.Process(target=_try_lock, args=(tmp_path, answers, 60))
    with locked(tmp_path):
        process.start()
        process.join(0.5)
        assert process.is_alive()
    process.join()
    assert answers.get() == ""


def _loaded_modules(answers):
    answers.put(sorted({name.partition(".")[0] for name in sys.modules}))


def test_training_does_not_import_what_it_does_not_use():
    answers = PROCESSES.SimpleQueue()
    process = PROCESSES.Process(target=_loaded_modules, args=(answers,))
    process.start()
    loaded = set(answers.get())
    process.join()
    assert {"lightning", "torch"} <= loaded
    assert not loaded & {"torchmetrics", "matplotlib", "transformers", "scipy", "torchvision"}


def test_the_specification_is_kept_with_the_run(finished):
    assert json.loads((finished / "spec.json").read_text())["point"]["run"] == "xs-s85-smelt"
