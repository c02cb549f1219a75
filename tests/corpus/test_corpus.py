from __future__ import annotations

import dataclasses
import json
import pickle
import shutil

import numpy as np
import pyarrow.parquet as pq
import pytest

from smelt.corpus import IGNORE, Corpus, length_bucket
from smelt.corpus.build import build
from smelt.corpus.finish import check_epochs
from smelt.errors import SmeltError
from smelt.files import read_json
from smelt.results.parquet import read_rows

from .conftest import document_hashes


def test_two_builds_are_equal_byte_for_byte(corpus, study, sources, cache, tmp_path):
    again = build(study, sources, cache, tmp_path, 1, lock=cache / "lock")
    assert again.sha256 == corpus.sha256
    files = sorted(p.relative_to(tmp_path) for p in tmp_path.rglob("*") if p.is_file())
    assert files == sorted(p.relative_to(corpus.folder) for p in corpus.folder.rglob("*") if p.is_file())
    for file in files:
        assert (tmp_path / file).read_bytes() == (corpus.folder / file).read_bytes(), file


def test_every_document_decodes_to_the_text_it_was_hashed_from(corpus):
    from smelt.corpus.documents import sha256_text

    table = corpus.documents
    for index, sha256 in enumerate(document_hashes(corpus)):
        text = corpus.text(index)
        assert sha256_text(text) == sha256
        assert len(text.encode()) == table["bytes"][index]
        assert len(corpus.tokenizer.encode(text).ids) + 1 == table["tokens"][index]


def test_splits_share_no_document_and_every_source_is_in_each(corpus):
    table, sha256 = corpus.documents, np.array(document_hashes(corpus))
    hashes = {s: set(sha256[table["split"] == s]) for s in ("validation", "trunk", "decay")}
    assert sum(len(h) for h in hashes.values()) == len(sha256)
    assert len(set.union(*hashes.values())) == len(sha256)
    for split in hashes:
        assert set(table["source"][table["split"] == split]) == set(table["source"])
    assert list(table["split"]) == sorted(table["split"], key=["validation", "trunk", "decay"].index)


def test_equal_names_of_documents_are_one_object(corpus):
    """A corpus of millions of documents would not fit otherwise."""
    for name in ("source", "category", "split"):
        column = corpus.documents[name]
        assert len({id(value) for value in column}) == len(set(column)) < len(column)
    file = pq.read_table(corpus.folder / "documents.parquet")
    for name, column in corpus.documents.items():
        assert column.tolist() == file[name].to_pylist()


def test_held_out_rows_are_the_first_ones_of_the_index(corpus):
    held = corpus.documents["split"] == "validation"
    assert corpus.held_out.keys() == corpus.documents.keys() and 0 < held.sum() < len(held)
    for name, column in corpus.held_out.items():
        assert (
            column.tolist()
            == corpus.documents[name][: held.sum()].tolist()
            == corpus.documents[name][held].tolist()
        )


def test_validation_reads_no_other_rows(corpus):
    fresh = Corpus.open(corpus.folder)
    assert list(fresh.validation(64, 2000, 4))
    assert "documents" not in vars(fresh) and "held_out" in vars(fresh)


def test_source_table_adds_up(corpus):
    rows = read_rows(corpus.folder / "corpus_sources.parquet")
    table = corpus.documents
    for row in rows:
        mine = table["source"] == row["source"]
        held_out = mine & (table["split"] == "validation")
        assert row["documents"] == mine.sum()
        assert row["validation_tokens"] == table["tokens"][held_out].sum() > 0
        assert row["train_tokens"] == table["tokens"][mine & ~held_out].sum()
    manifest = read_json(corpus.folder / "manifest.json")
    assert sum(manifest["splits"].values()) == table["tokens"].sum()


def test_an_epoch_shows_every_token_once_with_its_successor(corpus):
    context = 32
    rows = corpus.rows("trunk", context)
    batch = corpus.batch("trunk", seed=3, step=0, batch=rows, context=context)
    stream = np.fromfile(corpus.folder / "shards" / "trunk-00000.bin", corpus.dtype).astype(int)
    expected = stream[: rows * context].reshape(rows, context)
    assert sorted(map(tuple, batch.inputs_bt)) == sorted(map(tuple, expected))
    following = dict(
        zip(map(tuple, expected), stream[1 : rows * context + 1].reshape(rows, context), strict=True)
    )
    for row in range(rows):
        target = following[tuple(batch.inputs_bt[row])]
        assert (batch.targets_bt[row] == np.where(target == corpus.bos, IGNORE, target)).all()


def test_segments_start_at_document_starts(corpus):
    batch = corpus.batch("trunk", 0, 0, 8, 64)
    for inputs, targets, segments, positions in zip(
        batch.inputs_bt, batch.targets_bt, batch.segments_bt, batch.positions_bt, strict=True
    ):
        assert segments[0] == positions[0] == 0
        for t in range(1, len(inputs)):
            new = inputs[t] == corpus.bos
            assert segments[t] == segments[t - 1] + new
            assert positions[t] == (0 if new else positions[t - 1] + 1)
            assert targets[t - 1] == (IGNORE if new else inputs[t])


def test_batch_is_a_pure_function_and_seeds_phases_epochs_differ(corpus):
    def draw(*args, **kwargs):
        return Corpus.open(corpus.folder).batch(*args, batch=4, context=32, **kwargs).inputs_bt

    assert (draw("trunk", 0, 7) == draw("trunk", 0, 7)).all()
    assert not (draw("trunk", 0, 7) == draw("trunk", 1, 7)).all()
    assert not (draw("trunk", 0, 7) == draw("trunk", 0, 8)).all()
    steps = corpus.rows("trunk", 32) // 4
    assert not (draw("trunk", 0, 0) == draw("trunk", 0, steps + 1)).all()


def test_a_copy_for_another_process_is_small_and_equal(corpus):
    assert corpus.batch("trunk", 0, 0, 4, 32) and corpus.text(0) and len(corpus.documents)
    data = pickle.dumps(corpus)  # as a data loader's worker gets it
    assert len(data) < 500
    copy = pickle.loads(data)
    assert (copy.batch("trunk", 0, 0, 4, 32).inputs_bt == corpus.batch("trunk", 0, 0, 4, 32).inputs_bt).all()
    assert copy.tokenizer.encode("<|bos|>").ids == corpus.tokenizer.encode("<|bos|>").ids != [corpus.bos]


def test_ranks_cut_the_batch_without_changing_it(corpus):
    whole = corpus.batch("decay", 0, 2, 8, 16)
    parts = [corpus.batch("decay", 0, 2, 8, 16, rank, 4) for rank in range(4)]
    assert (np.concatenate([p.inputs_bt for p in parts]) == whole.inputs_bt).all()
    with pytest.raises(SmeltError, match="divisible"):
        corpus.batch("trunk", 0, 0, 8, 16, 0, 3)
    with pytest.raises(SmeltError, match="'branch'"):
        corpus.batch("branch", 0, 0, 8, 16)


def test_validation_scores_every_held_out_document_once(corpus):
    table, context, seen = corpus.documents, 64, {}
    for batch in corpus.validation(context, 10**6, 8):
        assert batch.inputs_bt.shape[0] <= 8
        for b in range(len(batch.inputs_bt)):
            for document in set(batch.documents_bt[b].tolist()) - {-1}:
                where = batch.documents_bt[b] == document
                assert document not in seen
                ids = [corpus.bos, *corpus.tokenizer.encode(corpus.text(document)).ids]
                assert batch.inputs_bt[b][where].tolist() == ids[:context]
                last = [IGNORE] if len(ids) <= context else []
                assert batch.targets_bt[b][where].tolist() == ids[1 : context + 1] + last
                assert batch.positions_bt[b][where].tolist() == list(range(where.sum()))
                assert len(set(batch.segments_bt[b][where].tolist())) == 1
                seen[document] = where.sum()
            padding = batch.documents_bt[b] == -1
            assert (batch.inputs_bt[b][padding] == corpus.pad).all()
            assert (batch.targets_bt[b][padding] == IGNORE).all()
    assert set(seen) == set(np.flatnonzero(table["split"] == "validation"))


def test_a_small_validation_still_has_all_sources_and_lengths(corpus):
    table, context = corpus.documents, 64
    held_out = table["split"] == "validation"
    buckets = np.array([length_bucket(n) for n in table["tokens"]])
    chosen = corpus.validation_documents(context, 2500)
    assert len(set(chosen)) == len(chosen) and held_out[chosen].all()
    sizes = np.minimum(table["tokens"][chosen], context)
    assert 2500 <= sizes.sum() < 2500 + context
    assert set(table["source"][chosen]) == set(table["source"][held_out])
    assert set(buckets[chosen]) == set(buckets[held_out])
    # A bucket with documents left is never behind another by more than one document.
    totals = {b: sizes[buckets[chosen] == b].sum() for b in set(buckets[chosen])}
    for bucket, total in totals.items():
        if (buckets[chosen] == bucket).sum() < (held_out & (buckets == bucket)).sum():
            assert total > max(totals.values()) - 2 * context


def test_attended_context_is_the_mean_over_trunk_rows(corpus, study):
    rows = corpus.rows("trunk", study.corpus.context)
    positions = corpus.batch("trunk", 0, 0, rows, study.corpus.context).positions_bt
    assert corpus.manifest["attended_context"] == pytest.approx((positions + 1).mean())


def test_a_flipped_byte_is_an_error_that_names_the_shard(corpus, tmp_path):
    folder = shutil.copytree(corpus.folder, tmp_path / "c")
    path = folder / "shards" / "trunk-00000.bin"
    data = bytearray(path.read_bytes())
    data[100] ^= 1
    path.write_bytes(data)
    damaged = Corpus.open(folder)
    assert damaged.batch("decay", 0, 0, 2, 16)
    with pytest.raises(SmeltError, match=r"trunk-00000\.bin is damaged"):
        damaged.batch("trunk", 0, 0, 2, 16)
    path.write_bytes(data[:-2])
    with pytest.raises(SmeltError, match=r"trunk-00000\.bin is damaged: its size"):
        Corpus.open(folder)


@pytest.mark.parametrize("name", ["tokenizer.json", "documents.parquet"])
def test_a_damaged_side_file_is_an_error_that_names_it(corpus, tmp_path, name):
    folder = shutil.copytree(corpus.folder, tmp_path / "c")
    with open(folder / name, "ab") as stream:
        stream.write(b" ")
    with pytest.raises(SmeltError, match=name):
        Corpus.open(folder).text(0)


def test_a_missing_or_foreign_manifest_is_refused(corpus, tmp_path):
    with pytest.raises(SmeltError, match="does not exist"):
        Corpus.open(tmp_path)
    (tmp_path / "manifest.json").write_text('{"format": 99}')
    with pytest.raises(SmeltError, match="manifest.json: .*; delete .*/manifest.json and run the same"):
        Corpus.open(tmp_path)


def test_too_many_epochs_are_counted_and_refused(study, sources, cache, tmp_path):
    specs = (study.corpus, study.training)
    assert check_epochs("it", *specs, {"trunk": 40, "decay": 10}) == {"trunk": 2.0, "decay": 2.0}
    tight = dataclasses.replace(study.corpus, max_epochs=1.5)
    with pytest.raises(SmeltError, match=r"it asks .* 2\.00 epochs of the 40"):
        check_epochs("it", tight, study.training, {"trunk": 40, "decay": 100})
    long = dataclasses.replace(study, training=dataclasses.replace(study.training, horizons=(10, 10**6)))
    with pytest.raises(SmeltError, match="epochs"):
        build(long, sources, cache, tmp_path, 1, lock=cache / "lock")
    assert not (tmp_path / "manifest.json").exists()


@pytest.mark.parametrize(
    "change",
    [
        {"vocab": "many"},
        {"bos": None},
        {"shards": [{}]},
        {"shards": {}},
        {"splits": ["trunk"]},
        {"files": {}},
        {"context": [64]},
        {"shards": [{"name": "../x-0", "split": "trunk", "tokens": 1, "sha256": "0" * 64}]},
    ],
)
def test_a_manifest_with_a_wrong_value_is_refused_with_its_field(corpus, tmp_path, change):
    (tmp_path / "manifest.json").write_text(json.dumps(corpus.manifest | change))
    field = next(iter(change))
    with pytest.raises(
        SmeltError, match=f"manifest.json: {field}.*; delete {tmp_path}/manifest.json and run"
    ):
        Corpus.open(tmp_path)
