"""Malformed task files are refused with file, line and field."""

import json

import pytest

from smelt.errors import SmeltError
from smelt.evaluate.items import item_groups, read_items
from smelt.evaluate.registry import CHOICE, COMPLETION, LANGUAGE, SCHEMA, Task

GOOD = {
    CHOICE: {"query": "Q", "choices": ["a", "b"], "gold": 1},
    SCHEMA: {"context_options": ["a", "b"], "continuation": "c", "gold": 0},
    COMPLETION: {"context": "C", "continuation": "c"},
}


def task(kind, by_category=False):
    return Task("toy", kind, 0, " ", LANGUAGE, 0.0, "toy.jsonl", by_category=by_category)


def write(path, *rows):
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))
    return path


@pytest.mark.parametrize("kind", GOOD)
def test_good_items_are_read_and_texts_are_stripped(tmp_path, kind):
    padded = {k: f" {v}\n" if isinstance(v, str) else v for k, v in GOOD[kind].items()}
    assert read_items(write(tmp_path / "t.jsonl", padded), task(kind)) == [GOOD[kind]]


def test_entries_of_lists_are_not_stripped(tmp_path):
    row = {"query": "Q ", "choices": [" a ", "b"], "gold": 0}
    assert read_items(write(tmp_path / "t.jsonl", row), task(CHOICE))[0]["choices"] == [" a ", "b"]


@pytest.mark.parametrize(
    ("kind", "change", "message"),
    [
        (CHOICE, {"choices": []}, "choices has 0 entries; at least 2"),
        (CHOICE, {"choices": ["a", " "]}, "every entry must be a non-empty text"),
        (CHOICE, {"choices": ["a", 3]}, "choices contains 3"),
        (CHOICE, {"gold": 2}, "gold is 2; it must be 0 to 1"),
        (CHOICE, {"gold": -1}, "gold is -1; it must be 0 to 1"),
        (CHOICE, {"gold": True}, "gold is True; it must be of type int"),
        (CHOICE, {"gold": "1"}, "gold is '1'; it must be of type int"),
        (CHOICE, {"query": None}, "query is None; it must be of type str"),
        (SCHEMA, {"context_options": ["a"]}, "context_options has 1 entries"),
        (COMPLETION, {"continuation": "  "}, "continuation is empty"),
    ],
)
def test_bad_values_are_refused(tmp_path, kind, change, message):
    path = write(tmp_path / "t.jsonl", GOOD[kind], {**GOOD[kind], **change})
    with pytest.raises(SmeltError, match=message) as error:
        read_items(path, task(kind))
    assert f"{path}, line 2" in str(error.value)


def test_missing_fields_are_named(tmp_path):
    path = write(tmp_path / "t.jsonl", {"query": "Q", "choices": ["a", "b"]})
    with pytest.raises(SmeltError, match="line 1: 'gold' is missing; .* query, choices, gold"):
        read_items(path, task(CHOICE))
    path = write(tmp_path / "t.jsonl", GOOD[COMPLETION])
    with pytest.raises(SmeltError, match="'category' is missing"):
        read_items(path, task(COMPLETION, by_category=True))


@pytest.mark.parametrize("line", ["{", "[1]", '{"context": "\xff'])
def test_malformed_lines_are_named(tmp_path, line):
    path = tmp_path / "t.jsonl"
    path.write_bytes(json.dumps(GOOD[COMPLETION]).encode() + b"\n\n" + line.encode("latin-1") + b"\n")
    with pytest.raises(SmeltError, match="line 3"):
        read_items(path, task(COMPLETION))


@pytest.mark.parametrize(
    "value",
    ['"\\ud800"', "1" * 5000, "[" * 100_000 + "]" * 100_000],
    ids=["half a surrogate pair", "endless number", "endless nesting"],
)
@pytest.mark.parametrize("field", ["continuation", "of_others"])
def test_json_that_python_cannot_hold_is_refused_with_its_line(tmp_path, field, value):
    path = write(tmp_path / "t.jsonl", GOOD[COMPLETION])
    path.write_text(f'{path.read_text()}{{"context": "C", "continuation": "d", "{field}": {value}}}\n')
    with pytest.raises(SmeltError, match="line 2: not valid JSON"):
        read_items(path, task(COMPLETION))


def test_repeated_items_are_refused_unless_the_file_is_taken_as_it_is(tmp_path):
    path = write(tmp_path / "t.jsonl", GOOD[CHOICE], {**GOOD[CHOICE], "gold": 0}, GOOD[CHOICE])
    with pytest.raises(SmeltError, match="line 3: the item is the same as that of line 1"):
        read_items(path, task(CHOICE))
    assert len(read_items(path, task(CHOICE), unique=False)) == 3


def test_empty_and_absent_files_are_refused(tmp_path):
    with pytest.raises(SmeltError, match="has no items"):
        read_items(write(tmp_path / "t.jsonl"), task(CHOICE))
    with pytest.raises(SmeltError, match="does not exist"):
        read_items(tmp_path / "absent.jsonl", task(CHOICE))


def test_groups_are_sorted_by_name():
    rows = [{"category": name} for name in ("b", "a", "b")]
    assert list(item_groups(rows, task(COMPLETION, by_category=True)).items()) == [("a", [1]), ("b", [0, 2])]
    assert item_groups(rows, task(COMPLETION)) == {"": [0, 1, 2]}
