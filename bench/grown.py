"""Synthetic inputs of the stages at any size, and the stages run on them, for `bench.memory`."""

from __future__ import annotations

import random
import zipfile
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import yaml

from smelt.corpus.build import _DOCUMENT_SCHEMA
from smelt.corpus.build import build as build_corpus
from smelt.corpus.corpus import DOCUMENTS, TOKENIZER, Corpus
from smelt.corpus.finish import finish
from smelt.corpus.gen_patterns import word
from smelt.corpus.shards import SHARD_TOKENS, Shard, token_type, write_shard
from smelt.corpus.sources import CATEGORIES, Source, SourceSet
from smelt.corpus.split import SPLITS
from smelt.corpus.tokenizer import save_tokenizer, train_tokenizer
from smelt.files import ROOT, sha256_file, write_json
from smelt.results.parquet import write_columns
from smelt.results.schemas import TABLES
from smelt.results.stages import OF_GRID_RUN, OF_RUN
from smelt.study import load_study
from tests.report import synthetic_laws
from tests.report.synthetic import Synthetic

STUDY = load_study("smoke")
RUN = "xs-s85-smelt"
TOKENS = 2_000_000  # of a corpus of size 1
DOCUMENT = 400  # tokens
SHARES = {"validation": 0.1, "trunk": 0.6, "decay": 0.3}
LOG_ROWS, ITEM_ROWS = 200, 2_000  # of a run at size 1
BATCHES = 300
TEXT = 1_000_000  # bytes that a corpus of size 1 is built from


def make_corpus(folder: Path, size: int) -> None:
    """Write a corpus of `size` times `TOKENS` random tokens in documents of `DOCUMENT` tokens."""
    rng, out = np.random.default_rng(0), folder / "corpus"
    words = random.Random(0)
    texts = (" ".join(word(words) for _ in range(300)) for _ in range(300))
    out.mkdir(parents=True, exist_ok=True)
    save_tokenizer(train_tokenizer(texts, STUDY.corpus.vocab), out / TOKENIZER)
    shards: list[Shard] = []
    with pq.ParquetWriter(out / DOCUMENTS, _DOCUMENT_SCHEMA) as writer:
        for split in SPLITS:
            left = round(size * TOKENS * SHARES[split] / DOCUMENT)
            number = 0
            while left > 0:
                count = min(left, SHARD_TOKENS // DOCUMENT)
                documents = _documents(rng, count)
                dtype = token_type(STUDY.corpus.vocab)
                shards.append(write_shard(out, f"{split}-{number:05d}", split, documents, dtype))
                writer.write_table(_index(split, number, count))
                left, number = left - count, number + 1
    finish(STUDY, out, shards, {"set": "grown", "sources": {}})


def _documents(rng: np.random.Generator, count: int) -> Iterator[np.ndarray]:
    for _ in range(count):
        ids = rng.integers(4, STUDY.corpus.vocab, DOCUMENT)
        ids[0] = 0
        yield ids


def _index(split: str, shard: int, count: int) -> pa.Table:
    names = np.array([f"source-{i}" for i in range(20)])[np.arange(count) % 20]
    columns = {
        "source": names,
        "category": np.full(count, "Web"),
        "split": np.full(count, split),
        "tokens": np.full(count, DOCUMENT),
        "bytes": np.full(count, 3 * DOCUMENT),
        "sha256": [f"{split}-{shard}-{i}".ljust(64, "0") for i in range(count)],
        "shard": np.full(count, shard),
        "offset": np.arange(count) * DOCUMENT,
    }
    return pa.table([pa.array(columns[f.name], f.type) for f in _DOCUMENT_SCHEMA], schema=_DOCUMENT_SCHEMA)


def read_batches(folder: Path) -> None:
    """Draw training batches as the trainer does."""
    corpus, training = Corpus.open(folder / "corpus"), STUDY.training
    for step in range(BATCHES):
        corpus.batch("trunk", 0, step, training.batch, STUDY.corpus.context)
        corpus.batch("decay", 0, step, training.batch, STUDY.corpus.context)


def make_archive(folder: Path, size: int) -> None:
    """Write a wheel of `size` times `TEXT` bytes, in documents of about 2 kB, and its lock."""
    words, folder = random.Random(0), folder / "cache"
    vocabulary = [word(words) for _ in range(20_000)]
    folder.mkdir(parents=True)
    name = "grown-1.0-py3-none-any.whl"
    with zipfile.ZipFile(folder / name, "w", zipfile.ZIP_DEFLATED) as archive:
        for number in range(size * TEXT // 2000):
            text = " ".join(words.choices(vocabulary, k=300))
            archive.writestr(f"{number % len(CATEGORIES)}/{number}.txt", text)
    (folder / "lock").write_text(f"grown==1.0 --hash=sha256:{sha256_file(folder / name)}  # {name}\n")


def build_archive(folder: Path) -> None:
    """Build a corpus of the wheel in one process."""
    cap = 1000.0  # megabytes: none
    sources = tuple(
        Source(f"grown-{number}", category, "own", "text", ("grown",), (f"{number}/*.txt",), cap_mb=cap)
        for number, category in enumerate(CATEGORIES)
    )
    grown = SourceSet("grown", "for the bench", 200_000, 0.05, 0.2, sources)
    build_corpus(STUDY, grown, folder / "cache", folder / "corpus", 1, lock=folder / "cache" / "lock")


def make_run(folder: Path, size: int) -> None:
    """Write a grown corpus, tasks of 50 items, and an untrained run of the smallest model."""
    from smelt.budget import flops_per_token, resolve_run
    from smelt.evaluate.make import write_items
    from smelt.evaluate.registry import COMPLETION, Task
    from smelt.evaluate.suite import LOCAL, write_manifest
    from smelt.model import LoopedLM, ModelConfig, save_weights
    from smelt.train import complete

    make_corpus(folder, size)
    corpus, spec = Corpus.open(folder / "corpus"), resolve_run(STUDY, RUN)
    task = Task("words", COMPLETION, 2, " ", "symbolic problem solving", 0.0, "words.jsonl")
    items = [{"context": f"one two {i}", "continuation": str(i % 10)} for i in range(50)]
    write_items(folder / "tasks" / task.file, items)
    write_manifest(
        folder / "tasks", LOCAL, LOCAL, None, (), False, corpus.sha256, {"words": task}, {"words": {}}
    )
    run, endpoints = folder / "run", []
    write_json(run / "spec.json", spec.to_dict())
    weights = LoopedLM(ModelConfig.from_spec(spec), 0).state_dict()
    for horizon in spec.training.horizons:
        name, step = f"endpoints/h{horizon}.safetensors", horizon + spec.training.decay_steps
        save_weights(run / name, weights)
        tokens = step * spec.training.batch * spec.corpus.context
        flops = tokens * flops_per_token(spec.geometry, spec.corpus.attended_context)
        entry = {"horizon": horizon, "step": step, "tokens": tokens, "flops": flops, "weights": name}
        endpoints.append({**entry, "sha256": sha256_file(run / name)})
    _write_log(run, RUN, 1)
    device = {"tokens_per_s": [1.0], "mfu": [None], "peak_flops": [None], "device": ["cpu"], "seconds": [1.0]}
    write_columns(run, "throughput", {"run": [RUN], "phase": ["trunk"], **device})
    complete.write_manifest(run, spec, corpus, endpoints)


def evaluate(folder: Path) -> None:
    """Evaluate the run."""
    from smelt.evaluate.run import evaluate_run

    evaluate_run(STUDY, folder / "run", folder / "corpus", folder / "tasks", folder / "evaluate")


def make_tables(folder: Path, size: int) -> None:
    """Write the tables that grow with a study's length: the log of every run and its answered items."""
    from smelt.budget.tables import write_tables
    from smelt.study import run_points

    write_tables(STUDY, None, folder / "budget")
    for run in run_points(STUDY):
        _write_log(folder / "runs" / run, run, size)
        _write_items(folder / "evaluate" / run, run, size * ITEM_ROWS)


def _write_log(folder: Path, run: str, size: int) -> None:
    count = size * LOG_ROWS
    step = np.arange(count)
    columns = {column.name: 1.0 + 1.0 / (1 + step) for column in TABLES["train_log"].columns}
    columns |= {"run": np.full(count, run), "phase": np.full(count, "trunk"), "horizon": 0 * step}
    write_columns(folder, "train_log", {**columns, "step": step, "tokens": 1024 * step})


def _write_items(folder: Path, run: str, count: int) -> None:
    index, rng = np.arange(count), np.random.default_rng(0)
    numbers = {"horizon": 100, "shots": 0, "seed": 0, "option": 0, "tokens": 3, "bytes": 9}
    columns = {name: np.full(count, value) for name, value in numbers.items()}
    flags = {name: np.zeros(count, bool) for name in ("gold", "greedy", "truncated")}
    texts = {"run": np.full(count, run), "task": np.full(count, "local_dyck"), "part": np.full(count, "")}
    write_columns(folder, "items", {**columns, **flags, **texts, "item": index, "nll": rng.random(count)})


def build(folder: Path) -> None:
    """Build the database of what is there."""
    from smelt.results.build import build_database

    build_database(STUDY, folder, folder / "results.duckdb", partial=True)


def make_seeds(folder: Path, size: int) -> None:
    """Write the tables that the laws read, of the study with `size` seeds."""
    left_out = (*OF_RUN["runs"], "items", *OF_GRID_RUN["mechanism"])
    Synthetic(STUDY, folder, seeds=size, skip=left_out).write()
    shots = STUDY.evaluation.shots[-1]
    tasks = {
        name: {
            "kind": "language_modeling" if name in synthetic_laws.COMPLETION else "multiple_choice",
            "shots": shots,
            "category": category,
            "core": True,
        }
        for name, category in synthetic_laws.TASKS.items()
    }
    write_json(folder / "tasks" / "tasks.json", {"tasks": tasks, "mmlu": None})


def fit_laws(folder: Path) -> None:
    """Run every analysis of the laws."""
    from smelt.laws.__main__ import analyses
    from smelt.laws.inputs import load_results

    analyses(load_results(STUDY, folder))


def make_database(folder: Path, size: int) -> None:
    """Write the grown tables and build their database."""
    make_tables(folder, size)
    build(folder)


def draw(folder: Path) -> None:
    """Draw every figure that the tables are enough for."""
    from smelt.report.book import Report
    from smelt.report.contents import FIGURES
    from smelt.report.data import Data

    data = Data(STUDY, folder / "results.duckdb")
    report = Report(data, folder)
    for name in FIGURES:
        report.figure(name)
    data.close()


def big_study(folder: Path, runs: int) -> Path:
    """Write the study `big` with so many runs, a multiple of 40: two scales, ten sparsities and seeds."""
    study = yaml.safe_load((ROOT / "config/studies/smoke.yaml").read_text(encoding="utf-8"))
    study |= {"name": "big", "sparsities": {50 + 5 * i: 16 * (i + 1) for i in range(10)}}
    del study["ablations"]
    study["seeds"] = runs // (2 * len(study["scales"]) * len(study["sparsities"]))
    folder.mkdir(parents=True, exist_ok=True)
    path = folder / "big.yaml"
    path.write_text(yaml.safe_dump(study, sort_keys=False), encoding="utf-8")
    return path
