"""The shipped sets: valid, locked, and with the committed texts."""

from __future__ import annotations

import dataclasses
from collections import Counter

import pytest
import yaml

from smelt.corpus.build import build, source_hash
from smelt.corpus.decontaminate import Decontaminator
from smelt.corpus.fetch import LOCK, load_lock, locked_packages
from smelt.corpus.generators import GENERATORS
from smelt.corpus.pool import Pool
from smelt.corpus.prepare import prepare
from smelt.corpus.reference import REFERENCE, commit_hashes, differing_sources
from smelt.corpus.sources import CATEGORIES, FOLDER, load_sources
from smelt.errors import SmeltError
from smelt.files import ROOT, read_json
from smelt.study import load_study

CACHE = ROOT / "data" / "cache"


@pytest.mark.parametrize("name", ["small", "full"])
def test_shipped_sets_are_locked_and_have_committed_hashes(name):
    sources = load_sources(name)
    assert locked_packages(sources)
    assert {s.name for s in sources.sources} == read_json(REFERENCE)[name].keys()
    assert {s.category for s in sources.sources} == set(CATEGORIES)


def test_every_locked_package_is_used():
    used = {p for path in FOLDER.glob("*.yaml") for p in load_sources(path.stem).packages}
    assert used == load_lock(LOCK).keys()


def test_the_full_set_has_thirty_sources_and_enough_text():
    sources = load_sources("full").sources
    caps = Counter()
    for source in sources:
        caps[source.category] += source.cap
    assert len(sources) >= 30 and min(caps.values()) > 8_000_000


@pytest.mark.parametrize("name", ["small", "full"])
def test_generated_sources_have_their_committed_texts(name, tmp_path):
    sources = load_sources(name)
    own = dataclasses.replace(sources, sources=tuple(s for s in sources.sources if s.kind in GENERATORS))
    committed = read_json(REFERENCE)[name]
    with Pool(1) as pool:
        for item in prepare(own, {}, Decontaminator(), tmp_path, pool):
            assert source_hash(item) == committed[item.source.name], item.source.name


@pytest.mark.slow
@pytest.mark.skipif(
    not (CACHE / "small.json").exists(), reason="the archives of the small set are not fetched"
)
def test_the_small_set_has_its_committed_texts(tmp_path):
    corpus = build(load_study("smoke"), load_sources("small"), CACHE, tmp_path, 1)
    assert differing_sources("small", corpus.manifest["sources"]) == []


def test_differences_are_named_and_accepted(tmp_path):
    path = tmp_path / "hashes.json"
    commit_hashes("a", {"x": "1", "y": "2"}, path)
    commit_hashes("b", {"x": "3"}, path)
    assert differing_sources("a", {"x": "1", "y": "2"}, path) == []
    assert differing_sources("a", {"x": "9", "z": "2"}, path) == ["x", "y", "z"]
    assert differing_sources("c", {"x": "1"}, path) is None


def test_mistakes_in_a_set_are_one_sentence(tmp_path):
    good = {
        "name": "s",
        "description": "d",
        "tokenizer_bytes": 1000,
        "validation_fraction": 0.1,
        "decay_fraction": 0.2,
        "sources": [
            {"name": f"s{i}", "category": c, "licence": "own", "kind": "gen-ledgers"}
            for i, c in enumerate(CATEGORIES)
        ],
    }

    def load(**changes):
        (tmp_path / "s.yaml").write_text(yaml.safe_dump({**good, **changes}))
        return load_sources("s", tmp_path)

    assert len(load().sources) == 5
    first, *rest = good["sources"]
    with pytest.raises(SmeltError, match="no source of category Code"):
        load(sources=rest)
    with pytest.raises(SmeltError, match="source s1: the name occurs twice"):
        load(sources=[*good["sources"], rest[0]])
    with pytest.raises(SmeltError, match="source s0: kind is 'nonsense'; allowed: chapters, definitions, "):
        load(sources=[{**first, "kind": "nonsense"}, *rest])
    with pytest.raises(SmeltError, match="names its packages"):
        load(sources=[{**first, "kind": "text"}, *rest])
    with pytest.raises(SmeltError, match="needs dataset and share"):
        load(sources=[{**first, "kind": "stream"}, *rest])
    with pytest.raises(SmeltError, match="streamed as a whole or not at all"):
        load(sources=[{**first, "kind": "stream", "dataset": "x", "share": 1}, *rest])
    with pytest.raises(SmeltError, match=r"sources\.0\.category: 'Poetry'"):
        load(sources=[{**first, "category": "Poetry"}, *rest])
    with pytest.raises(SmeltError, match="validation_fraction"):
        load(validation_fraction=0)
    with pytest.raises(SmeltError, match="there is no source set 'none'.*there are: full, public, small"):
        load_sources("none")
