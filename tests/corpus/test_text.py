"""Extraction, cleaning, deduplication, decontamination, hold-out."""

from __future__ import annotations

import dataclasses
import json
import random

import mwparserfromhell.parser
import numpy as np
import pytest
import yaml
from hypothesis import given
from hypothesis import strategies as st

from smelt.corpus import yaml_text
from smelt.corpus.build import build
from smelt.corpus.clean import MAX_LINE, clean, decode
from smelt.corpus.decontaminate import Decontaminator, study_items
from smelt.corpus.dedup import MAX_SHINGLES, Deduplicator, signature
from smelt.corpus.documents import read_source
from smelt.corpus.extract import EXTRACTORS
from smelt.corpus.html_text import html_to_text
from smelt.corpus.sources import Source
from smelt.corpus.split import LENGTH_BOUNDS, length_bucket, split_documents
from smelt.corpus.windows import repeated_share, windows
from smelt.errors import SmeltError
from smelt.study import load_study

from .conftest import document_hashes, prose, write_wheel


def read(kind: str, text: str) -> list[str]:
    return list(EXTRACTORS[kind].read("member", text))


def test_clean_keeps_indentation_of_code_and_collapses_prose():
    text = "\ufeffdef f():\r\n\tx =  1\x00 \r\n\n\n\n    y\n"
    assert clean(text, prose=False) == "def f():\n\tx =  1\n\n    y"
    assert clean("  a \u00a0 b\tc  \n\n\n\n d ", prose=True) == "a b c\n\nd"
    assert clean("a\ud800b", prose=True) == "ab"
    assert clean("x" * (MAX_LINE + 1) + "\nkept", prose=False) == "kept"


def test_a_line_of_fifty_megabytes_is_dropped():
    assert clean("a " * 25_000_000, prose=True) == ""


@given(st.text())
def test_clean_is_idempotent(text):
    for kind in (True, False):
        once = clean(text, kind)
        assert clean(once, kind) == once


def test_decode_refuses_what_is_not_utf8():
    assert decode("\ufeffä".encode()) == "ä"
    assert decode(b"\xff\xfea\x00") is None


def test_html_blocks_breaks_entities_and_dropped_parts():
    assert html_to_text("<p>a &amp; <b>b</b></p><p>c<br>d</p>") == "a & b\n\nc\nd"
    assert html_to_text("plain  text") == "plain text"
    assert html_to_text("<ul><li>x</li><li>y</li></ul><script>no</script>z") == "x\n\ny\n\nz"
    assert html_to_text("a<pre>  1\n   2</pre>") == "a\n\n  1\n   2"
    assert html_to_text("<!-- only a comment -->") == ""
    assert "deep" in html_to_text("<div>" * 200 + "deep")


def test_docstrings_of_module_functions_and_classes():
    module = '''"""Module."""
def f(a, *, b):
    """First.

        Indented.
    """
class C:
    """A class."""
    def m(self, x):
        """A method."""
    def silent(self): ...
def undocumented(): ...
'''
    assert read("docstrings", module) == [
        "Module.",
        "f(a)\n\nFirst.\n\nIndented.",
        "class C\n\nA class.\n\nm(x)\n\nA method.",
    ]
    assert read("docstrings", "def broken(:") == []


def test_fields_of_interface_classes():
    module = '''
class PaymentIntent:
    """What is paid."""
    amount_due: int
    """In cents."""
    class Inner:
        name: str
        """Its name."""
    other: int
'''
    assert read("fields", module) == [
        "Payment Intent\n\nWhat is paid.\n\namount due: In cents.\n\nname: Its name."
    ]


def test_chapters_are_cut_at_verse_starts():
    module = 'Bible(V, """One. Two. Three.""", {1001001: 0, 1001002: 5, 1002001: 10}, {})'
    assert read("chapters", module) == ["One. Two.", "Three."]


def test_rst_loses_markup_but_not_literal_lines():
    (text,) = read(
        "rst", "**Title**\n\nUse ``ls`` and see `here <https://x.org>`__. ::\n\n    ls \\\n        -l\n"
    )
    assert text == "Title\n\nUse ls and see here.\n\nls \\\n    -l"
    (text,) = read("rst", ".. include:: /etc/passwd\n\n.. raw:: html\n\n   <b>x</b>\n\nend `broken\n")
    assert "root" not in text and "end" in text


def test_json_kinds():
    recipe = {
        "x": {
            "title": "Soup",
            "category": None,
            "servings": "2",
            "ingredients": ["water"],
            "steps": ["Boil."],
        }
    }
    assert read("recipes", json.dumps(recipe)) == ["Soup\n\nServes: 2\n\n- water\n\n1. Boil."]
    country = {
        "Government": {"Country name": {"conventional short form": {"text": "Utopia"}}},
        "Economy": {"GDP": {"text": "<b>1</b>", "note": "old", "GDP 2020": {"text": "2"}}},
        "People": {"Age": {"total": {"text": "9"}}},
    }
    assert read("factbook", json.dumps(country)) == [
        "Utopia: Government\n\nCountry name, conventional short form: Utopia",
        "Utopia: People\n\nAge, total: 9",
    ]
    assert read("factbook-economy", json.dumps(country)) == [
        "Utopia: Economy\n\nGDP: 1\n\nGDP: old\n\nGDP 2020: 2"
    ]
    entry = {"pos": [{"part_of_speech": "n.", "definitions": [{"text": "A tree.", "examples": []}]}]}
    words = {word: {"entry": word, **entry} for word in "abcd"}
    pages = read("definitions", json.dumps(words))
    assert [page.count("\n") + 1 for page in pages] == [1, 2, 1] and pages[0] == "a (n.) A tree."
    service = {
        "documentation": "<p>About.</p>",
        "operations": {"Get": {"documentation": "<p>Gets.</p>", "input": {"shape": "In"}}},
        "shapes": {
            "In": {"members": {"Id": {"documentation": "<p>Which.</p>"}}},
            "Out": {"members": {"Size": {"documentation": "How large."}, "X": {}}},
        },
    }
    assert read("operations", json.dumps(service)) == [
        "About.",
        "Get\n\nGets.\n\nId: Which.",
        "Out\n\n\n\nSize: How large.",
    ]
    with pytest.raises(SmeltError, match="not valid JSON"):
        read("recipes", "{")
    with pytest.raises(SmeltError, match="expected structure"):
        read("recipes", '["x"]')


def test_readme_is_the_body_of_the_metadata():
    assert read("readme", "Name: x\nDescription-Content-Type: text/markdown\n\n# Hello\n") == ["# Hello\n"]


@pytest.mark.parametrize(
    ("members", "message"),
    [
        ({"a.txt": b"\xff\xfe" * 200}, "has no document.*1 files were not UTF-8"),
        ({"a.txt": b"word " * 100}, "has one document"),
        ({"a.txt": b"short"}, "has no document"),
        ({}, "has no document"),
    ],
)
def test_an_empty_source_is_one_sentence(tmp_path, members, message):
    write_wheel(tmp_path / "a.whl", members)
    with pytest.raises(SmeltError, match=f"source one {message}"):
        read_source(Source("one", "Web", "own", "text", ("a",)), [tmp_path / "a.whl"])


def test_documents_are_sorted_by_hash_unique_and_within_bounds(tmp_path):
    rng = random.Random(0)
    texts = [prose(rng, n).encode() for n in (1, 100, 100, 5000)]
    write_wheel(tmp_path / "a.whl", {f"{i}": t for i, t in enumerate([*texts, texts[1]])})
    source = Source("one", "Web", "own", "text", ("a",), min_bytes=50, max_bytes=10_000)
    assert sorted(read_source(source, [tmp_path / "a.whl"]).texts) == sorted(t.decode() for t in texts[1:3])


def test_repeated_paragraphs_and_documents_go():
    seen, long = (
        Deduplicator(),
        "A paragraph that is certainly longer than eighty bytes, so that it counts as said before.",
    )
    assert seen.new_text(f"{long}\n\nshort") == (f"{long}\n\nshort", 0)
    assert seen.new_text(f"new start\n\n{long}\n\nshort") == ("new start\n\nshort", 1)
    assert seen.new_text("short and new") == ("short and new", 0)
    assert seen.new_text("short and new") == ("", 0)


@pytest.mark.parametrize("words", [300, 3 * MAX_SHINGLES])
def test_near_duplicates_are_found_and_others_kept(words):
    rng, seen = random.Random(1), Deduplicator()
    text = prose(rng, words)
    changed = text.split()
    changed[words // 2] = "other"
    half = [*text.split()[: words // 2], *prose(rng, words // 2).split()]
    assert not seen.is_near(signature(text))
    assert seen.is_near(signature(" ".join(changed)))
    assert not seen.is_near(signature(" ".join(half)))
    assert not seen.is_near(signature(prose(rng, words)))
    assert not seen.is_near(signature("too short"))


def test_signature_estimates_the_jaccard_similarity():
    rng = random.Random(2)
    shared = prose(rng, 600).split()
    a, b = " ".join(shared + prose(rng, 200).split()), " ".join(shared + prose(rng, 200).split())
    sets = [set(windows(text.split(), 5).tolist()) for text in (a, b)]
    true = len(sets[0] & sets[1]) / len(sets[0] | sets[1])
    assert np.mean(signature(a) == signature(b)) == pytest.approx(true, abs=0.2)


def test_windows_depend_on_order_and_count_repetition():
    assert len(windows(["a"] * 3, 4)) == 0
    assert windows(list("abc"), 3) != windows(list("acb"), 3)
    assert repeated_share(["a b c d e f g h i", "a b c d e f g h"]) == pytest.approx(1 / 3)
    assert repeated_share(["few words"]) == 0


def test_thirteen_shared_words_contaminate_whatever_case_and_punctuation():
    item = "The quick, brown fox jumps over the lazy dog while nine cats watch it calmly."
    words = item.split()
    items = Decontaminator([item, "too short to be found"])
    assert items.items == 2
    assert items.hits("so THE quick brown fox -- jumps over the lazy dog; while nine cats watch it, then")
    assert not items.hits(" ".join(words[:12]) + " else " + " ".join(words[12:]))
    assert not items.hits("too short to be found")
    assert not Decontaminator().hits(item)


def test_items_of_the_study_are_read_from_its_folder(tmp_path, monkeypatch):
    study = load_study("smoke")
    assert list(study_items(study)) == []
    study = dataclasses.replace(
        study, evaluation=dataclasses.replace(study.evaluation, suite="dclm", folder=str(tmp_path / "d"))
    )
    with pytest.raises(SmeltError, match=r"holds no \.jsonl file"):
        list(study_items(study))
    (tmp_path / "d").mkdir()
    path = tmp_path / "d" / "x.jsonl"
    path.write_text('{"query": "a", "choices": ["b", "c"], "gold": 1}\n')
    assert list(study_items(study)) == ["a b c"]
    path.write_text('{"query": "a"}\n{')
    with pytest.raises(SmeltError, match=r"x\.jsonl, line 2"):
        list(study_items(study))


def test_a_build_leaves_contaminated_documents_out(study, sources, cache, corpus, tmp_path):
    table = corpus.documents
    row = next(
        i for i in range(len(table["tokens"])) if table["source"][i] == "speeches" and table["bytes"][i] > 500
    )
    (tmp_path / "x.jsonl").write_text(json.dumps({"query": corpus.text(row)[100:400]}) + "\n")
    study = dataclasses.replace(
        study, evaluation=dataclasses.replace(study.evaluation, suite="dclm", folder=str(tmp_path))
    )
    other = build(study, sources, cache, tmp_path / "out", 1, lock=cache / "lock")
    assert document_hashes(corpus)[row] not in document_hashes(other)
    assert other.manifest["removed"]["speeches"]["in evaluation"] == 1
    assert other.manifest["items"]["count"] == 1


def test_a_source_that_only_repeats_another_is_one_sentence(study, sources, cache, tmp_path):
    copy = dataclasses.replace(sources.sources[0], name="copy")
    twice = dataclasses.replace(sources, sources=(*sources.sources, copy))
    with pytest.raises(
        SmeltError, match="source copy has 0 documents that no other source has; at least two"
    ):
        build(study, twice, cache, tmp_path / "out", 1, lock=cache / "lock")
    assert not (tmp_path / "out" / "manifest.json").exists()


def test_length_buckets_have_the_bounds_of_figure_11():
    assert LENGTH_BOUNDS == (32, 64, 128, 256, 512, 1024, 2048, 4096)
    assert [length_bucket(n) for n in (1, 32, 33, 4096, 4097)] == [32, 32, 64, 4096, 4096]


@given(st.lists(st.integers(1, 100_000), min_size=2, max_size=200), st.integers(0, 5))
def test_split_covers_every_length_and_depends_on_hashes_only(sizes, salt):
    rng = random.Random(salt)
    hashes = [f"{rng.randrange(1 << 60):015x}" for _ in sizes]
    splits = split_documents(sizes, hashes, 0.1, 0.2)
    held_out = [size for size, split in zip(sizes, splits, strict=True) if split == "validation"]
    assert 1 <= len(held_out) < len(sizes)
    for length in {size.bit_length() for size in sizes}:
        count = sum(size.bit_length() == length for size in sizes)
        taken = sum(size.bit_length() == length for size in held_out)
        assert taken >= min(12 if length <= 12 else 1, count // 4)
    order = list(range(len(sizes)))
    rng.shuffle(order)
    moved = split_documents([sizes[i] for i in order], [hashes[i] for i in order], 0.1, 0.2)
    if len(set(hashes)) == len(hashes):
        assert moved == [splits[i] for i in order]


def test_decay_gets_its_share_of_bytes():
    rng = random.Random(3)
    sizes = [rng.randrange(100, 20_000) for _ in range(500)]
    splits = split_documents(sizes, [f"{i * 7919 % 500:04d}" for i in range(500)], 0.05, 0.2)
    total = {s: sum(n for n, split in zip(sizes, splits, strict=True) if split == s) for s in set(splits)}
    assert total["decay"] / (total["decay"] + total["trunk"]) == pytest.approx(0.2, abs=0.01)


RECORD = """
description: A state pays\n  this amount. # why
metadata: {label: The amount, unit: currency-USD, reference: [{title: 'Code \u00a7 22', href: 'https://x.org'}]}
values:
  0000-01-01: true
  2026-01-01: 1_976
filing_status: [SINGLE, JOINT]
brackets:
- threshold: {2021-01-01: 10_000}
  rate: .inf
unset:
"""


def test_yaml_becomes_its_label_its_description_and_a_line_a_field():
    assert read("yaml", RECORD) == [
        "The amount\nA state pays this amount.\n\nmetadata:\n  unit: currency-USD\n  reference:\n"
        "    - title: Code \u00a7 22\nvalues:\n  0000-01-01: true\n  2026-01-01: 1976\n"
        "filing status:\n  - SINGLE\n  - JOINT\nbrackets:\n  - threshold:\n      2021-01-01: 10000\n"
        "    rate: .inf"
    ]
    assert read("yaml", "- a\n- [b, c]") == ["- a\n- - b\n  - c"]
    assert read("yaml", "") == [""]


BOMB = "\n".join(
    [f"a0: &a0 [{', '.join('x' * 10)}]"]
    + [f"a{n}: &a{n} [{', '.join([f'*a{n - 1}'] * 10)}]" for n in range(1, 7)]
)


@pytest.mark.parametrize(
    ("text", "told"),
    [
        ("a: [b", "member member is not valid YAML: "),
        ("a: {b: c: d}", "member member is not valid YAML: "),
        ("[" * 100_000, "member member is not valid YAML: "),
        (BOMB, "more than .* entries"),
        (f"a: &a {'x' * 10_000}\nb: [{', '.join(['*a'] * 50_000)}]", "more than 10 times as long"),
        ("&a [*a]", "recursive"),
    ],
)
def test_yaml_that_is_broken_or_a_bomb_is_one_sentence(text, told):
    with pytest.raises(SmeltError, match=told) as caught:
        read("yaml", text)
    assert "\n" not in str(caught.value)


def test_yaml_never_builds_what_a_tag_names():
    assert read("yaml", "a: !!python/object/apply:os.getcwd []") == [""]


WIKI = """#format wiki
## a remark
= Title =
[[TracGuideToc]]
[[PageOutline(2-4,,inline)]]
=== Part 2 === #anchor
Some \'\'\'bold\'\'\' and \'\'slanted\'\' **words** at [https://x.org/a the place], [wiki:Page#here a page],
[[Other|another]] or [trac:ThatPage],
see https://x.org//b; `[[kept]] \'\'so\'\'` !NoLink.<<BR>>More.<<Macro(1,2)>>
||=\'\'\'Name\'\'\'=||= Size =||
||<class="x"> a || 1 ||
{{{
 if [[x]] \'\'\'y\'\'\' {{{ z }}}
}}}
{{{#!python
a = {{{1}}}
}}}
{{{#!td style="x"
In a \'\'cell\'\' {{{code()}}}
}}}
{{{#!comment
gone
}}}
"""


def test_wiki_markup_goes_and_code_stays_literally():
    (text,) = read("wikitext", WIKI)
    lines = [" ".join(line.split()) for line in text.split("\n") if line.strip()]
    assert lines == [
        "Title",
        "Part 2",
        "Some bold and slanted words at the place, a page,",
        "another or ThatPage,",
        "see https://x.org//b; [[kept]] ''so'' NoLink. More.",
        "Name | Size",
        "a | 1",
        "if [[x]] '''y''' {{{ z }}}",
        "a = {{{1}}}",
        "In a cell code()",
    ]


def test_yaml_and_wiki_texts_are_the_same_without_compiled_parsers(monkeypatch):
    compiled = read("yaml", RECORD), read("wikitext", WIKI)
    monkeypatch.setattr(yaml_text, "_Loader", yaml.BaseLoader)
    monkeypatch.setattr(mwparserfromhell.parser, "use_c", False)
    assert (read("yaml", RECORD), read("wikitext", WIKI)) == compiled


@given(st.text(alphabet="[]{}='`|!#<>*/\\n ab\ue000\ue0010"))
def test_wiki_markup_of_any_kind_is_read(markup):
    assert len(read("wikitext", markup)) == 1


def test_wiki_layout_nested_without_end_is_no_crash():
    (text,) = read("wikitext", "{{{#!div\n" * 5000 + "deep")
    assert "deep" in text
    (text,) = read("wikitext", "{{{#!div\n" * 5000 + "deep" + "\n}}}" * 5000)
    assert "deep" in text


def test_wiki_entities_cannot_name_what_was_kept():
    assert read("wikitext", "a &#57344;7&#57345; b `c`\r\n= T =\r\nd") == ["a  b c\nT\nd"]
