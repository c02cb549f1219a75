"""A corpus of generated text, a study of one cell, and a run with two untrained endpoints."""

import dataclasses

import pytest

from smelt.budget import resolve_run
from smelt.corpus.build import build
from smelt.corpus.sources import Source, SourceSet
from smelt.files import sha256_file, write_json
from smelt.model import LoopedLM, ModelConfig, save_weights
from smelt.results.parquet import write_table
from smelt.study import load_study

RUN = "xs-s85-smelt"


def source(name, category, cap_mb):
    return Source(name, category, "own", name, cap_mb=cap_mb, min_bytes=5)


SOURCES = SourceSet(
    name="generated",
    description="for tests",
    tokenizer_bytes=200_000,
    validation_fraction=0.2,
    decay_fraction=0.2,
    sources=(
        source("gen-brackets", "Code", 0.03),
        source("gen-arithmetic", "Math/STEM", 0.06),
        source("gen-records", "Knowledge", 0.06),
        source("gen-ledgers", "Finance", 0.06),
        source("gen-copying", "Web", 0.06),
    ),
)


@pytest.fixture(scope="session")
def study():
    study = load_study("smoke")
    return dataclasses.replace(
        study,
        corpus=dataclasses.replace(study.corpus, vocab=480, context=96, max_epochs=100),
        training=dataclasses.replace(study.training, horizons=(4, 8), decay_steps=2, warmup_steps=1, batch=2),
        evaluation=dataclasses.replace(
            study.evaluation, items=3, seeds=2, shots=(0, 1), validation_tokens=1500, max_length=400
        ),
    )


@pytest.fixture(scope="session")
def corpus(study, tmp_path_factory):
    folder = tmp_path_factory.mktemp("evaluate")
    (folder / "lock").write_text("")
    return build(study, SOURCES, folder, folder / "corpus", 1, lock=folder / "lock")


@pytest.fixture(scope="session")
def tasks(study, corpus):
    from smelt.evaluate.make import make_tasks

    make_tasks(study, corpus.folder, corpus.folder.parent / "tasks")
    return corpus.folder.parent / "tasks"


@pytest.fixture(scope="session")
def run(study, corpus):
    """The folder of a run as the trainer leaves it, with weights of two different seeds."""
    folder = corpus.folder.parent / "runs" / RUN
    spec = resolve_run(study, RUN)
    endpoints = []
    for seed, horizon in enumerate(study.training.horizons):
        weights = f"endpoints/h{horizon}.safetensors"
        save_weights(folder / weights, LoopedLM(ModelConfig.from_spec(spec), seed).state_dict())
        entry = {
            "horizon": horizon,
            "step": horizon + 2,
            "tokens": 192 * (horizon + 2),
            "flops": 1e9 * horizon,
        }
        endpoints.append({**entry, "weights": weights, "sha256": sha256_file(folder / weights)})
    write_json(folder / "spec.json", spec.to_dict())
    manifest = {"run": RUN, "spec_hash": spec.spec_hash, "corpus": corpus.sha256, "endpoints": endpoints}
    write_json(folder / "manifest.json", manifest)
    speed = {"tokens_per_s": 1e3, "mfu": None, "peak_flops": None, "device": "none", "seconds": 4.0}
    write_table(folder, "throughput", [{"run": RUN, "phase": phase, **speed} for phase in ("trunk", "decay")])
    return folder
