from __future__ import annotations

import zipfile

import pytest

from smelt.corpus import archives
from smelt.corpus.archives import read_members
from smelt.corpus.fetch import check_archive, fetch, load_lock, locked_packages
from smelt.corpus.sources import Source, SourceSet
from smelt.errors import SmeltError
from smelt.files import read_json

from .conftest import lock_line, write_wheel


def small_set(*packages: str) -> SourceSet:
    source = Source("one", "Web", "own", "text", packages)
    return SourceSet("tiny", "for tests", 1000, 0.1, 0.2, (source,))


def test_members_come_sorted_and_filtered(tmp_path):
    write_wheel(tmp_path / "a.whl", {"b/x.py": b"2", "a/x.py": b"1", "a/tests/x.py": b"3", "c.txt": b"4"})
    assert list(read_members(tmp_path / "a.whl", ["*.py"], ["*/tests/*"])) == [
        ("a/x.py", b"1"),
        ("b/x.py", b"2"),
    ]


@pytest.mark.parametrize("name", ["../evil.py", "/etc/passwd", "a/../../b", "C:/x", "a\\..\\b", "", "."])
def test_names_that_leave_the_archive_are_refused(tmp_path, name):
    with zipfile.ZipFile(tmp_path / "a.whl", "w") as archive:
        info = zipfile.ZipInfo("placeholder")
        info.filename = name
        archive.writestr(info, "x")
    with pytest.raises(SmeltError, match="refused"):
        list(read_members(tmp_path / "a.whl"))


def test_bombs_are_refused_whatever_their_header_says(tmp_path, monkeypatch):
    monkeypatch.setattr(archives, "MAX_MEMBER", 1 << 20)
    write_wheel(tmp_path / "a.whl", {"x.txt": b"0" * (1 << 21)})
    with pytest.raises(SmeltError, match=r"x\.txt' unpacks past the limit"):
        list(read_members(tmp_path / "a.whl"))
    monkeypatch.setattr(archives, "MAX_MEMBER", 1 << 22)
    monkeypatch.setattr(archives, "MAX_TOTAL", 3 << 20)
    write_wheel(tmp_path / "a.whl", {f"{i}.txt": b"0" * (1 << 20) for i in range(4)})
    with pytest.raises(SmeltError, match=r"3\.txt' unpacks past"):
        list(read_members(tmp_path / "a.whl"))
    monkeypatch.setattr(archives, "MAX_MEMBERS", 3)
    with pytest.raises(SmeltError, match="has 4 members"):
        list(read_members(tmp_path / "a.whl"))


def test_a_damaged_archive_is_one_sentence(tmp_path):
    path = tmp_path / "a.whl"
    with pytest.raises(SmeltError, match="does not exist"):
        list(read_members(path))
    path.write_bytes(b"not a zip file")
    with pytest.raises(SmeltError, match="not a readable archive"):
        list(read_members(path))
    write_wheel(path, {"x.txt": b"some text that is stored" * 50})
    data = bytearray(path.read_bytes())
    data[40:50] = b"\xff" * 10
    path.write_bytes(data)
    with pytest.raises(SmeltError, match="not a readable archive"):
        list(read_members(path))


def test_fetch_from_a_full_cache_needs_no_network_and_writes_the_stamp(tmp_path, monkeypatch):
    sha256 = write_wheel(tmp_path / "words-1.0-py3-none-any.whl", {"x.txt": b"text"})
    (tmp_path / "lock").write_text(lock_line("words", "words-1.0-py3-none-any.whl", sha256))
    monkeypatch.setattr("smelt.corpus.fetch.subprocess.run", None)
    stamp = fetch(small_set("words"), tmp_path, tmp_path / "lock")
    assert stamp == tmp_path / "tiny.json"
    assert read_json(stamp) == {"set": "tiny", "archives": {"words-1.0-py3-none-any.whl": sha256}}


def test_a_tampered_archive_is_named_and_kept_for_inspection(tmp_path):
    path = tmp_path / "words-1.0-py3-none-any.whl"
    write_wheel(path, {"x.txt": b"text"})
    (tmp_path / "lock").write_text(lock_line("words", path.name, "0" * 64))
    with pytest.raises(SmeltError, match=r"words-1\.0-py3-none-any\.whl has SHA-256"):
        fetch(small_set("words"), tmp_path, tmp_path / "lock")
    assert path.exists() and not (tmp_path / "tiny.json").exists()


def test_an_empty_cache_without_network_is_one_sentence(tmp_path, monkeypatch):
    monkeypatch.setenv("PIP_NO_INDEX", "1")
    monkeypatch.setenv("PIP_FIND_LINKS", str(tmp_path))
    monkeypatch.setenv("PIP_CONFIG_FILE", "/dev/null")
    (tmp_path / "lock").write_text(lock_line("words", "words-1.0-py3-none-any.whl", "0" * 64))
    with pytest.raises(SmeltError, match="1 of 1 archives could not be fetched.*No matching distribution"):
        fetch(small_set("words"), tmp_path / "cache", tmp_path / "lock")
    assert [p.name for p in (tmp_path / "cache").iterdir()] == []


def test_pip_refuses_another_hash_and_fetches_the_right_one(tmp_path, monkeypatch):
    shop = tmp_path / "shop"
    shop.mkdir()
    meta = {
        "words-1.0.dist-info/METADATA": b"Metadata-Version: 2.1\nName: words\nVersion: 1.0\n",
        "words-1.0.dist-info/WHEEL": b"Wheel-Version: 1.0\nRoot-Is-Purelib: true\nTag: py3-none-any\n",
        "words-1.0.dist-info/RECORD": b"",
    }
    sha256 = write_wheel(shop / "words-1.0-py3-none-any.whl", meta)
    monkeypatch.setenv("PIP_NO_INDEX", "1")
    monkeypatch.setenv("PIP_FIND_LINKS", str(shop))
    monkeypatch.setenv("PIP_CONFIG_FILE", "/dev/null")
    lock, cache = tmp_path / "lock", tmp_path / "cache"
    lock.write_text(lock_line("words", "words-1.0-py3-none-any.whl", "0" * 64))
    with pytest.raises(SmeltError, match="could not be fetched"):
        fetch(small_set("words"), cache, lock)
    lock.write_text(lock_line("words", "words-1.0-py3-none-any.whl", sha256))
    fetch(small_set("words"), cache, lock)
    assert sorted(p.name for p in cache.iterdir()) == ["tiny.json", "words-1.0-py3-none-any.whl"]


def test_build_needs_the_archive(tmp_path):
    (tmp_path / "lock").write_text(lock_line("words", "words-1.0-py3-none-any.whl", "0" * 64))
    package = load_lock(tmp_path / "lock")["words"]
    with pytest.raises(SmeltError, match="run `python -m smelt.corpus fetch`"):
        check_archive(tmp_path, package)


def test_lock_mistakes_are_named(tmp_path):
    lock = tmp_path / "lock"
    lock.write_text("# comment\nwords==1.0\n")
    with pytest.raises(SmeltError, match="line 2"):
        load_lock(lock)
    lock.write_text(lock_line("words", "w.whl", "0" * 64) * 2)
    with pytest.raises(SmeltError, match="locked twice"):
        load_lock(lock)
    with pytest.raises(SmeltError, match="reads other"):
        lock.write_text(lock_line("words", "w.whl", "0" * 64))
        locked_packages(small_set("other"), lock)
