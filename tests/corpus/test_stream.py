"""The streamed set, tested on local data sets in the format of the public ones."""

from __future__ import annotations

import dataclasses
import json
import random
import shutil

import numpy as np
import pytest

from smelt.corpus import Corpus, stream_parts
from smelt.corpus.fetch import fetch
from smelt.corpus.public import open_dataset, part_of
from smelt.corpus.sources import Source, SourceSet
from smelt.corpus.stream import build_stream, needed_tokens
from smelt.corpus.stream_parts import hashed_split
from smelt.errors import SmeltError
from smelt.files import read_json

from .conftest import document_hashes, prose

pytest.importorskip("datasets")
BLOCK = 4_000


@pytest.fixture(scope="module")
def texts():
    """Texts of two data sets, in two files and in one."""
    rng = random.Random(5)
    return {
        name: [[prose(rng, rng.randrange(20, 300)) for _ in range(count)] for count in counts]
        for name, counts in (("web", (120, 80)), ("filings", (90,)))
    }


@pytest.fixture(scope="module")
def public(texts, tmp_path_factory):
    folder = tmp_path_factory.mktemp("hub")
    columns = {"web": "text", "filings": "content"}
    sources = []
    for (name, files), category in zip(texts.items(), ("Web", "Finance"), strict=True):
        (folder / name).mkdir()
        for number, rows in enumerate(files):
            lines = "".join(json.dumps({"id": i, columns[name]: text}) + "\n" for i, text in enumerate(rows))
            (folder / name / f"{number}.jsonl").write_text(lines)
        share = len(files)
        sources.append(
            Source(
                name, category, "own", "stream", dataset=str(folder / name), column=columns[name], share=share
            )
        )
    return SourceSet("public", "for tests", 50_000, 0.15, 0.2, tuple(sources), parts=2)


@pytest.fixture(scope="module")
def study(study):
    training = dataclasses.replace(study.training, horizons=(20, 60), warmup_steps=10)
    return dataclasses.replace(
        study, corpus=dataclasses.replace(study.corpus, max_epochs=1), training=training
    )


@pytest.fixture(scope="module")
def cache(public, tmp_path_factory):
    folder = tmp_path_factory.mktemp("cache")
    stamp = fetch(public, folder)
    assert read_json(stamp) == {"set": "public", "revisions": {"web": "local", "filings": "local"}}
    return folder


@pytest.fixture(scope="module")
def corpus(study, public, cache, tmp_path_factory):
    return build_stream(study, public, cache, tmp_path_factory.mktemp("out"), 1, block=BLOCK)


def all_texts(corpus: Corpus) -> list[str]:
    found = []
    for shard in corpus.manifest["shards"]:
        ids = np.fromfile(corpus.folder / "shards" / f"{shard['name']}.bin", corpus.dtype)
        pieces = np.split(ids, np.flatnonzero(ids == corpus.bos)[1:])
        found += [corpus.tokenizer.decode(piece.tolist()) for piece in pieces]
    return found


def test_every_document_arrives_at_most_once_in_the_split_of_its_hash(corpus, texts, public):
    from smelt.corpus.documents import sha256_text

    given = {text for files in texts.values() for rows in files for text in rows}
    found = all_texts(corpus)
    assert len(found) == len(set(found)) and set(found) <= given
    for shard in corpus.manifest["shards"]:
        assert shard["tokens"] > 0
    table = corpus.documents
    held_out = {t for t in found if hashed_split(sha256_text(t), 0.15, 0.2) == "validation"}
    assert {corpus.text(i) for i in range(len(table["tokens"]))} == held_out
    assert [sha256_text(corpus.text(i)) for i in range(len(table["tokens"]))] == document_hashes(corpus)


def test_there_is_as_much_text_as_the_study_needs(corpus, study, public):
    needed = needed_tokens(study, public)
    given = sum(corpus.manifest["splits"].values())
    # Every one of the four parts may go on to the end of its last block.
    assert needed <= given <= needed + 4 * 2 * BLOCK
    batch = corpus.batch(
        "trunk", 0, study.training.horizons[-1] - 1, study.training.batch, study.corpus.context
    )
    assert batch.inputs_bt.shape == (study.training.batch, study.corpus.context)
    scored = sum((b.documents_bt >= 0).sum() for b in corpus.validation(64, 10**6, 4))
    assert scored == np.minimum(corpus.documents["tokens"], 64).sum() > 500


def test_an_interrupted_stream_goes_on_and_ends_with_the_same_bytes(
    corpus, study, public, cache, tmp_path, monkeypatch
):
    write, calls = stream_parts.write_shard, []

    def dies(*args):
        calls.append(args)
        if len(calls) == 9:
            raise KeyboardInterrupt
        return write(*args)

    monkeypatch.setattr(stream_parts, "write_shard", dies)
    with pytest.raises(KeyboardInterrupt):
        build_stream(study, public, cache, tmp_path, 1, block=BLOCK)
    before = len(calls) - 1
    again = build_stream(study, public, cache, tmp_path, 1, block=BLOCK)
    assert again.sha256 == corpus.sha256
    # Whole blocks that were there are not written again: at most the three files of the block that died.
    assert len(calls) - 1 - before <= len(corpus.manifest["shards"]) - before + 3
    for path in (corpus.folder / "shards").iterdir():
        assert (tmp_path / "shards" / path.name).read_bytes() == path.read_bytes()


def test_another_vocabulary_starts_again(corpus, study, public, cache, tmp_path):
    other = dataclasses.replace(study, corpus=dataclasses.replace(study.corpus, vocab=300))
    build_stream(other, public, cache, tmp_path, 1, share=(0, 4), block=BLOCK)
    again = build_stream(study, public, cache, tmp_path, 1, block=BLOCK)
    assert again.sha256 == corpus.sha256


def test_shares_of_several_machines_make_the_same_corpus(corpus, study, public, cache, tmp_path):
    for index in range(3):
        assert build_stream(study, public, cache, tmp_path, 1, share=(index, 3), block=BLOCK) is None
        assert not (tmp_path / "manifest.json").exists()
    assert build_stream(study, public, cache, tmp_path, 1, block=BLOCK).sha256 == corpus.sha256


def test_a_damaged_index_of_a_block_is_named_with_what_makes_it_anew(corpus, study, public, cache, tmp_path):
    out = shutil.copytree(corpus.folder, tmp_path / "copy")
    index = min((out / "index").glob("*.parquet"))
    data = bytearray(index.read_bytes())
    data[len(data) // 2] ^= 1
    index.write_bytes(data)
    part = out / "parts" / f"{index.stem[:-6]}.json"
    with pytest.raises(SmeltError, match=f"{index} is missing or damaged.*; delete {part} and run the same"):
        build_stream(study, public, cache, out, 1, block=BLOCK)
    part.unlink()
    assert build_stream(study, public, cache, out, 1, block=BLOCK).sha256 == corpus.sha256


def test_a_damaged_state_of_a_part_is_named_with_what_makes_it_anew(corpus, study, public, cache, tmp_path):
    out = shutil.copytree(corpus.folder, tmp_path / "copy")
    part = min(path for path in (out / "parts").glob("*.json") if path.stem != "tokenizer")
    whole = part.read_bytes()
    for harmed in (whole[:-9], whole.replace(b'"bytes": ', b'"bytes": 1'), b'{"key": "a", "colour": 1}'):
        part.write_bytes(harmed)
        with pytest.raises(SmeltError, match=f"{part} is not the state of a part .*; delete {part} and run"):
            build_stream(study, public, cache, out, 1, block=BLOCK)
    part.unlink()
    assert build_stream(study, public, cache, out, 1, block=BLOCK).sha256 == corpus.sha256


def test_a_damaged_tokenizer_is_trained_anew(corpus, study, public, cache, tmp_path):
    out = shutil.copytree(corpus.folder, tmp_path / "copy")
    tokenizer = (out / "tokenizer.json").read_bytes()
    (out / "tokenizer.json").write_bytes(tokenizer.replace(b'"merges"', b'"merged"'))
    assert build_stream(study, public, cache, out, 1, block=BLOCK).sha256 == corpus.sha256
    assert (out / "tokenizer.json").read_bytes() == tokenizer


@pytest.mark.parametrize("parts", [1, 2, 3])
def test_parts_read_every_row_once_whether_there_are_enough_files_or_not(public, texts, parts):
    web = public.sources[0]
    found = [row["text"] for part in range(parts) for row in part_of(open_dataset(web, "local"), part, parts)]
    assert sorted(found) == sorted(text for rows in texts["web"] for text in rows)


def test_too_little_text_says_how_many_epochs(study, public, cache, tmp_path):
    long = dataclasses.replace(study, training=dataclasses.replace(study.training, horizons=(20, 5000)))
    with pytest.raises(SmeltError, match=r"epochs of the \d+ that there are"):
        build_stream(long, public, cache, tmp_path, 1, block=BLOCK)
    assert not (tmp_path / "manifest.json").exists()


def test_evaluation_items_are_kept_out(study, public, cache, tmp_path, texts):
    (tmp_path / "items").mkdir()
    leaked = texts["web"][0][0]
    (tmp_path / "items" / "x.jsonl").write_text(json.dumps({"query": " ".join(leaked.split()[:15]).upper()}))
    evaluation = dataclasses.replace(study.evaluation, suite="dclm", folder=str(tmp_path / "items"))
    study = dataclasses.replace(study, evaluation=evaluation)
    corpus = build_stream(study, public, cache, tmp_path / "out", 1, block=BLOCK)
    assert leaked not in all_texts(corpus)
    assert corpus.manifest["removed"]["web"] == {"in evaluation": 1}


def test_mistakes_are_one_sentence(study, public, cache, tmp_path, monkeypatch):
    web, filings = public.sources

    def build(source: Source) -> None:
        build_stream(study, dataclasses.replace(public, sources=(source, filings)), cache, tmp_path / "o", 1)

    with pytest.raises(SmeltError, match="no column 'body'; it has id, text"):
        build(dataclasses.replace(web, column="body"))
    with pytest.raises(SmeltError, match="cannot be opened"):
        build(dataclasses.replace(web, split="test"))
    with pytest.raises(SmeltError, match="run `python -m smelt.corpus fetch` first"):
        build_stream(study, public, tmp_path, tmp_path / "o", 1)
    monkeypatch.setenv("HF_HUB_OFFLINE", "1")
    monkeypatch.setattr("huggingface_hub.constants.HF_HUB_OFFLINE", True)
    with pytest.raises(SmeltError, match="source web: data set nobody/nothing cannot be reached"):
        fetch(
            dataclasses.replace(public, sources=(dataclasses.replace(web, dataset="nobody/nothing"),)),
            tmp_path,
        )
