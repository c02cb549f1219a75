"""The command on a run's folder: files in, every table out, one sentence for what is wrong."""

import json
import random
from dataclasses import replace
from types import SimpleNamespace

import numpy as np
import pytest
import torch

from smelt.budget import resolve_run
from smelt.corpus import Corpus
from smelt.errors import SmeltError
from smelt.files import sha256_file, write_json
from smelt.mechanism import __main__ as command
from smelt.mechanism.capture import TABLES, Cost, sample
from smelt.mechanism.prompts import ANSWER, PAIRS, TARGETS, build_prompts, sequence
from smelt.model import LoopedLM, ModelConfig, save_weights
from smelt.results.parquet import read_rows
from smelt.results.schemas import TABLES as SCHEMAS
from smelt.study import load_study
from tests.mechanism.conftest import BOS, as_corpus, make_batch

# Tables that an unlooped run has rows of.
UNLOOPED = {"diagnostics", "residual_flow", "sink", "update_cosine"}
# The measured columns of every table, with the prefix of their intervals' ends.
MEASURED = {
    "diagnostics": {"value": "", "reference": "reference_", "difference": "difference_"},
    "routing_overlap": {"fraction": ""},
    "residual_flow": {"rms": "", "relative": "relative_"},
    "norm_ratios": {"ratio": ""},
    "update_cosine": {"cosine": ""},
    "visit_cosine": {"cosine": ""},
    "token_overlap": {"value": "", "control": "control_"},
    "sink": {"mass": ""},
    "dyck_heads": {"delta": "", "delta_choice": "delta_choice_", "perplexity": "perplexity_"},
    "dyck_map": {"part_mass": "part_", "change": "change_"},
    "dyck_mass": {"mass": ""},
    "interventions": {"rise": "", "loss": "loss_"},
}


@pytest.fixture
def study():
    study = load_study("smoke")
    return replace(
        study,
        corpus=replace(study.corpus, vocab=300, context=128),
        mechanism=replace(study.mechanism, tokens=512, draws=20),
    )


@pytest.fixture
def corpus(tokenizer):
    return as_corpus([make_batch(2, 128, 32, seed=seed) for seed in range(2)], tokenizer)


@pytest.fixture
def make_run(tmp_path, study, corpus, monkeypatch):
    """Write the folder of an untrained run; the command reads the study and the corpus of the test."""
    monkeypatch.setattr(command, "load_study", lambda name: study)
    monkeypatch.setattr(Corpus, "open", lambda folder: corpus)

    def make(run):
        spec = resolve_run(study, run)
        folder = tmp_path / run
        model = LoopedLM(ModelConfig.from_spec(spec), 0)
        endpoints = []
        for horizon in reversed(study.training.horizons):
            weights = f"endpoints/h{horizon}.safetensors"
            save_weights(folder / weights, model.state_dict())
            sha256 = sha256_file(folder / weights)
            entry = {
                "horizon": horizon,
                "step": horizon + 8,
                "tokens": 1000 * horizon,
                "flops": 1e9 * horizon,
            }
            endpoints.append({**entry, "weights": weights, "sha256": sha256})
        write_json(folder / "spec.json", spec.to_dict())
        manifest = {"run": run, "spec_hash": spec.spec_hash, "corpus": corpus.sha256, "endpoints": endpoints}
        write_json(folder / "manifest.json", manifest)
        return folder

    return make


def call(monkeypatch, folder, out):
    monkeypatch.setattr(
        "sys.argv", ["x", "--study", "smoke", "--run", str(folder), "--corpus", "c", "--out", str(out)]
    )
    command.main()


@pytest.mark.parametrize("run", ["xs-s85-smelt", "xs-s85-baseline"])
def test_every_table_is_written_and_the_same_bytes_again(make_run, monkeypatch, tmp_path, capsys, run):
    folder = make_run(run)
    for name in ("one", "two"):
        call(monkeypatch, folder, tmp_path / name)
    assert sorted(path.stem for path in (tmp_path / "one").iterdir()) == sorted(TABLES)
    for name in TABLES:
        path = tmp_path / "one" / f"{name}.parquet"
        assert path.read_bytes() == (tmp_path / "two" / path.name).read_bytes()
        rows = read_rows(path)
        assert bool(rows) == (run.endswith("smelt") or name in UNLOOPED), name
        assert {row["run"] for row in rows} <= {run}
    assert capsys.readouterr().out.startswith(f"{run}, horizon 100: 512 tokens; per 1,000: forward pass")


def test_intervals_hold_their_values(make_run, monkeypatch, tmp_path):
    call(monkeypatch, make_run("xs-s85-smelt"), tmp_path / "out")
    for name, columns in MEASURED.items():
        rows, wide = read_rows(tmp_path / "out" / f"{name}.parquet"), 0
        for column, prefix in columns.items():
            for row in rows:
                if row[column] is None:
                    assert row[f"{prefix}low"] is row[f"{prefix}high"] is None
                    continue
                low, high = row[f"{prefix}low"], row[f"{prefix}high"]
                assert 2 * low - high <= row[column] <= 2 * high - low
                wide += high > low
        assert wide > len(rows) / 4, name


def test_every_measured_number_has_an_interval():
    # What follows from the geometry alone, and the map of a single prompt, which has no documents to draw.
    exact = {"chance", "chance_mean", ("dyck_map", "mass")}
    for name in TABLES:
        columns = {column.name: column for column in SCHEMAS[name].columns}
        ends = {end for prefix in MEASURED[name].values() for end in (f"{prefix}low", f"{prefix}high")}
        assert all(columns[end].nullable for end in ends)
        values = {column for column in columns if columns[column].kind == "f"} - ends
        assert {v for v in values if v not in exact and (name, v) not in exact} == set(MEASURED[name]), name


def test_damaged_weights_are_refused(make_run, monkeypatch, tmp_path):
    folder = make_run("xs-s85-smelt")
    path = folder / "endpoints/h100.safetensors"
    data = bytearray(path.read_bytes())
    data[-1] ^= 1
    path.write_bytes(data)
    with pytest.raises(
        SmeltError, match="h100.safetensors is damaged.*; delete .*/xs-s85-smelt/manifest.json and run"
    ):
        call(monkeypatch, folder, tmp_path / "out")
    path.unlink()
    with pytest.raises(SmeltError, match="h100.safetensors does not exist; delete .*/manifest.json and run"):
        call(monkeypatch, folder, tmp_path / "out")
    assert not (tmp_path / "out").exists()


def test_other_corpus_and_other_specification_are_refused(make_run, monkeypatch, tmp_path, corpus):
    folder = make_run("xs-s85-smelt")
    corpus.sha256 = "1" * 64
    with pytest.raises(SmeltError, match="was trained on another corpus"):
        call(monkeypatch, folder, tmp_path / "out")
    manifest = json.loads((folder / "manifest.json").read_text())
    write_json(folder / "manifest.json", manifest | {"spec_hash": "0" * 64})
    with pytest.raises(SmeltError, match="spec_hash is '000.* spec.json beside it has"):
        call(monkeypatch, folder, tmp_path / "out")
    write_json(folder / "manifest.json", {})
    with pytest.raises(SmeltError, match=r"manifest.json: 'run' is a required property"):
        call(monkeypatch, folder, tmp_path / "out")


def test_missing_run_is_one_sentence(make_run, monkeypatch, tmp_path):
    make_run("xs-s85-smelt")
    with pytest.raises(SmeltError, match="nowhere/manifest.json does not exist"):
        call(monkeypatch, tmp_path / "nowhere", tmp_path / "out")


def test_sample_shorter_than_a_context_is_refused(corpus):
    with pytest.raises(SmeltError, match="mechanism.tokens is 100; it must be at least corpus.context"):
        next(iter(sample(corpus, 128, 100, torch.device("cpu"))))


def test_sample_of_one_document_is_refused(make_run, monkeypatch, tmp_path, corpus):
    batch = make_batch(1, 128, 128)
    corpus.validation = lambda *_: iter([SimpleNamespace(**{k: v.numpy() for k, v in vars(batch).items()})])
    with pytest.raises(SmeltError, match=r"the sample holds 1 document\(s\); mechanism.tokens must cover 2"):
        call(monkeypatch, make_run("xs-s85-smelt"), tmp_path / "out")


def test_documents_too_short_for_eight_tokens_are_refused(make_run, monkeypatch, tmp_path, corpus, tokenizer):
    short = as_corpus([make_batch(2, 128, 8)], tokenizer)
    corpus.validation, corpus.documents = short.validation, short.documents
    with pytest.raises(
        SmeltError, match="no token of the sample has a value of .*top8.*documents are too short"
    ):
        call(monkeypatch, make_run("xs-s85-smelt"), tmp_path / "out")


def test_prompts_that_do_not_fit_leave_the_dyck_tables_empty(make_run, monkeypatch, tmp_path, corpus, capsys):
    def refuse(*_):
        raise SmeltError("corpus.context is 16")

    monkeypatch.setattr(command, "build_prompts", refuse)
    call(monkeypatch, make_run("xs-s85-smelt"), tmp_path / "out")
    assert "xs-s85-smelt: no Dyck head, because corpus.context is 16" in capsys.readouterr().out
    for name in TABLES:
        rows = read_rows(tmp_path / "out" / f"{name}.parquet")
        assert bool(rows) != name.startswith("dyck"), name


def test_cost_is_told_as_multiples_of_the_forward_pass():
    text = str(Cost(tokens=2000, forward=0.2, statistics=0.3, interventions=1.0))
    assert text == (
        "2,000 tokens; per 1,000: forward pass 100.0 ms (1.0x), capture 250.0 ms (2.5x), "
        "interventions 500.0 ms (5.0x)"
    )


def test_cost_of_an_unlooped_run_has_no_interventions():
    assert "interventions" not in str(Cost(tokens=1000, forward=0.1, statistics=0.1))


def test_mixed_precision_follows_the_training(study):
    spec = resolve_run(study, "xs-s85-smelt")
    expected = {
        ("auto", "cpu"): False,
        ("auto", "cuda"): True,
        ("bf16", "cpu"): True,
        ("fp32", "cuda"): False,
    }
    for (precision, device), mixed in expected.items():
        changed = replace(spec, training=replace(spec.training, precision=precision))
        assert command._mixed(changed, torch.device(device)) is mixed


def test_bracket_sequences_lack_exactly_their_answers():
    for seed in range(50):
        rng = random.Random(seed)
        text, answer = sequence(4 + seed % 9, 1 + seed % 3, rng)
        stack = []
        for bracket in text + answer:
            if bracket in PAIRS:
                stack.append(bracket)
            else:
                assert PAIRS[stack.pop()] == bracket
        assert not stack
        assert len(answer) == 1 + seed % 3
        assert len(text) - (4 + seed % 9) in (0, 1)


def test_prompts_fit_their_context_and_mark_their_targets(tokenizer):
    for context in (120, 300):
        prompts = build_prompts(tokenizer, BOS, context, 5, 1)
        assert max(len(prompt.ids) for prompt in prompts) <= context
        assert prompts == build_prompts(tokenizer, BOS, context, 5, 1)
        for prompt in prompts:
            assert prompt.ids[0] == BOS
            assert len(prompt.ids) == len(prompt.roles) == len(prompt.tokens)
            assert len(prompt.targets) == TARGETS
            assert {prompt.tokens[t].strip() for t in prompt.targets} <= set(PAIRS.values())
            assert {prompt.roles[t] for t in prompt.targets} == {ANSWER}
            assert tokenizer.decode(list(prompt.ids[1:])) == "".join(prompt.tokens)
    choice, shown = (build_prompts(tokenizer, BOS, 300, 5, seed) for seed in (1, 2))
    assert not {prompt.ids for prompt in choice} & {prompt.ids for prompt in shown}
    lengths = [np.mean([len(p.ids) for p in build_prompts(tokenizer, BOS, c, 5, 1)]) for c in (120, 300)]
    assert lengths[0] < lengths[1]


def test_prompt_that_fits_no_context_is_refused(tokenizer):
    with pytest.raises(SmeltError, match="corpus.context is 32; a Dyck prompt with 4 demonstrations of 4"):
        build_prompts(tokenizer, BOS, 32, 2, 1)
