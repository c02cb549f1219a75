"""A tiny corpus of wheels made here: two packages, one source a category, three generators."""

from __future__ import annotations

import dataclasses
import random
import zipfile
from pathlib import Path

import pyarrow.parquet as pq
import pytest

from smelt.corpus.build import build
from smelt.corpus.gen_patterns import word
from smelt.corpus.sources import Source, SourceSet
from smelt.files import sha256_file
from smelt.study import load_study

ZIP_TIME = (2020, 1, 1, 0, 0, 0)


def write_wheel(path: Path, members: dict[str, bytes]) -> str:
    """Write a wheel with fixed time stamps and return its SHA-256."""
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as archive:
        for name, data in members.items():
            archive.writestr(zipfile.ZipInfo(name, ZIP_TIME), data)
    return sha256_file(path)


def document_hashes(corpus) -> list[str]:
    """Return the SHA-256 of each document's text, as the corpus's file says."""
    return pq.read_table(corpus.folder / "documents.parquet")["sha256"].to_pylist()


def prose(rng: random.Random, words: int) -> str:
    return " ".join(word(rng) for _ in range(words))


def lock_line(name: str, file: str, sha256: str) -> str:
    return f"{name}==1.0 --hash=sha256:{sha256}  # {file}\n"


@pytest.fixture(scope="session")
def study():
    """The smoke study with a small vocabulary and few steps."""
    study = load_study("smoke")
    return dataclasses.replace(
        study,
        corpus=dataclasses.replace(study.corpus, vocab=400, context=64, max_epochs=4),
        training=dataclasses.replace(study.training, horizons=(10, 20), decay_steps=5, batch=4),
    )


@pytest.fixture(scope="session")
def sources():
    """One text source for each of three categories and a generator for the two others."""
    return SourceSet(
        name="tiny",
        description="for tests",
        tokenizer_bytes=200_000,
        validation_fraction=0.1,
        decay_fraction=0.2,
        sources=(
            Source("speeches", "Knowledge", "own", "text", ("words",), ("*.txt",), cap_mb=0.2, min_bytes=20),
            Source("code", "Code", "own", "source", ("words",), ("*.py",), cap_mb=0.1, min_bytes=20),
            Source("readme", "Web", "own", "text", ("notes",), ("*.txt",), cap_mb=0.1, min_bytes=20),
            Source("sums", "Math/STEM", "own", "gen-arithmetic", cap_mb=0.05, min_bytes=5),
            Source("ledgers", "Finance", "own", "gen-ledgers", cap_mb=0.05, min_bytes=5),
        ),
    )


@pytest.fixture(scope="session")
def cache(tmp_path_factory):
    """A cache with both wheels and a lock file `lock` beside them."""
    folder, rng = tmp_path_factory.mktemp("cache"), random.Random(1)
    texts = {f"words/{i:03d}.txt": prose(rng, rng.randrange(5, 400)).encode() for i in range(120)}
    code = {
        f"words/m{i}.py": f"def {word(rng)}(x):\n    return x + {i}  # {prose(rng, 12)}\n".encode()
        for i in range(40)
    }
    notes = {f"notes/{i}.txt": prose(rng, 60).encode() for i in range(40)}
    lines = ""
    for name, members in (("words", {**texts, **code}), ("notes", notes)):
        file = f"{name}-1.0-py3-none-any.whl"
        lines += lock_line(name, file, write_wheel(folder / file, members))
    (folder / "lock").write_text(lines)
    return folder


@pytest.fixture(scope="session")
def corpus(study, sources, cache, tmp_path_factory):
    """The tiny corpus, built once."""
    return build(study, sources, cache, tmp_path_factory.mktemp("corpus"), 1, lock=cache / "lock")
