"""The local suite: every item is right, tasks are what they claim to be, leaks are left out."""

import dataclasses
import random
import re
from collections import Counter

import pytest

from smelt.errors import SmeltError
from smelt.evaluate import make
from smelt.evaluate.items import check_item, read_items
from smelt.evaluate.local import commonsense, knowledge, language, reading, symbolic
from smelt.evaluate.local.tasks import LOCAL_TASKS
from smelt.evaluate.local.texts import VALIDATION, Texts
from smelt.evaluate.registry import CATEGORIES, KINDS
from smelt.evaluate.sequences import Encoder, build
from smelt.evaluate.suite import open_suite
from smelt.files import read_json

MANY = 300
OWN = [task for task in LOCAL_TASKS if task.make.__name__ == "<lambda>"]


def draws(make, count=MANY):
    rng = random.Random(11)
    return [make(rng) for _ in range(count)]


def test_suite_has_what_was_asked_for():
    assert len(LOCAL_TASKS) >= 14 and all(task.name.startswith("local_") for task in LOCAL_TASKS)
    assert {task.category for task in LOCAL_TASKS} == set(CATEGORIES)
    assert {task.kind for task in LOCAL_TASKS} == set(KINDS)
    assert sum(task.task(0).completion for task in LOCAL_TASKS) >= 6


@pytest.mark.parametrize("local", OWN, ids=lambda task: task.name)
def test_generated_items_are_well_formed_and_varied(local):
    items = draws(lambda rng: local.make(rng, None))
    for item in items:
        check_item(item, local.task(0), local.name)
        options = item.get("choices") or item.get("context_options") or [""]
        assert len(options) == local.options and len(set(options)) == len(options)
    if local.options > 1:
        counts = Counter(item["gold"] for item in items)
        assert max(counts.values()) < 1.5 * MANY / local.options
    assert len({str(item) for item in items}) > 80


def test_dyck_answers_close_the_brackets():
    pairs = {"(": ")", "[": "]", "{": "}", "<": ">"}
    for item in draws(symbolic.dyck):
        stack = []
        given = item["context"].removesuffix(" |").split()
        for bracket in [*given, *item["continuation"].split()]:
            if bracket in pairs:
                stack.append(pairs[bracket])
            else:
                assert stack.pop() == bracket
        assert not stack and 1 <= len(item["continuation"].split()) <= 5


def test_algorithms_answers():
    def brackets(text):
        while "()" in text:
            text = text.replace("()", "")
        return "no" if text else "yes"

    def subsequence(a, b):
        if not a or not b:
            return 0
        if a[0] == b[0]:
            return 1 + subsequence(a[1:], b[1:])
        return max(subsequence(a[1:], b), subsequence(a, b[1:]))

    seen = Counter()
    for item in draws(symbolic.algorithms):
        kind, rest = item["context"].split("\n")[0].split(": ")
        seen[kind, item["continuation"]] += 1
        if kind == "Brackets":
            assert item["continuation"] == brackets(rest)
        elif kind == "Strings":
            assert item["continuation"] == str(subsequence(*rest.split()))
        else:
            assert item["continuation"] == str(sorted(map(int, rest.split()))[-2])
    assert seen["Brackets", "yes"] > 20 and seen["Brackets", "no"] > 20


def test_operator_answers():
    checks = {
        r"op i is i plus (\d+)": lambda a, x: x[0] + a,
        r"op i is (\d+) times i": lambda a, x: x[0] * a,
        r"op i j is i plus j plus (\d+)": lambda a, x: sum(x) + a,
        r"op i j k is the first of them above (\d+), or 0": lambda a, x: ([v for v in x if v > a] or [0])[0],
    }
    seen = Counter()
    for item in draws(symbolic.operators):
        definition, question = item["context"].split(".\n")
        values = [int(v) for v in question.removeprefix("op ").removesuffix(" =").split()]
        for pattern, apply in checks.items():
            if found := re.fullmatch(pattern, definition):
                seen[pattern] += 1
                assert item["continuation"] == str(apply(int(found[1]), values))
    assert len(seen) == len(checks)


def test_ordering_answers():
    for item in draws(symbolic.ordering):
        above = dict(re.findall(r"(\w+) is \w+ than (\w+)\.", item["query"]))
        first = next(name for name in item["choices"] if name not in above.values())
        last = next(name for name in item["choices"] if name not in above)
        wanted = re.search(r"The (\w+) is$", item["query"])[1]
        top = wanted in ("oldest", "tallest", "fastest")
        assert item["choices"][item["gold"]] == (first if top else last)


def test_answers_of_the_reading_tasks_stand_in_the_text():
    for item in draws(reading.key_value):
        field, name = re.search(r"What is the (\w+) of (\w+)\?$", item["context"]).groups()
        assert re.search(rf"^{name}: .*\b{field} {item['continuation']}\b", item["context"], re.M)
    for item in draws(reading.where_is):
        thing = re.search(r"The (\w+) is in the$", item["context"])[1]
        assert f"the {thing} in the {item['continuation']}." in item["context"]
    for item in draws(reading.is_it_true):
        thing, colour = re.search(r"Is the (\w+) (\w+)\?$", item["query"]).groups()
        assert (f"a {colour} {thing}." in item["query"]) == (item["choices"][item["gold"]] == "yes")


def test_the_right_option_is_the_one_its_table_says():
    effects = {cause.split("{n} ")[1]: effect for cause, effect in commonsense._EFFECTS}
    for item in draws(commonsense.cause_effect):
        cause = item["query"].removesuffix(", therefore").split(" ", 1)[1]
        assert item["choices"][item["gold"]] == effects[cause]
    for item in draws(language.agreement):
        plural = item["continuation"].split()[0] in ("are", "were", "have")
        assert item["context_options"][item["gold"]].split()[1].endswith("s") == plural
    meant = {(clause.split("} ")[1][:8], rest): who for clause, rest, who in language._REFERENCES}
    assert len(meant) > 8
    for item in draws(knowledge.series):
        assert item["continuation"] not in item["context"].split()[-2]


def test_held_out_tasks_come_from_held_out_documents(corpus):
    texts, rng = Texts(corpus), random.Random(4)
    held = [
        " ".join(corpus.text(i).split())
        for i in range(len(corpus.documents["split"]))
        if corpus.documents["split"][i] == VALIDATION
    ]
    items = [language.continuation(rng, texts) for _ in range(60)]
    items = [item for item in items if item]
    assert len(items) > 20
    for item in items:
        whole = f"{item['query']} {item['choices'][item['gold']]}"
        assert any(whole in text for text in held)
    for item in filter(None, (language.last_word(rng, texts) for _ in range(200))):
        assert item["continuation"] in re.findall(r"[A-Za-z]+", item["context"])
    kinds = [item for item in (language.kind_of_text(rng, texts) for _ in range(60)) if item]
    assert {tuple(item["choices"]) for item in kinds} == {("code", "finance", "knowledge", "science", "web")}


FACTBOOK = """{name}: Government

Country name, conventional short form: {name}

Country name, conventional long form: Republic of {name}; also known as The {name}

Country name, local short form: {name}

Capital, name: {capital}

Elevation, highest point: Mount {capital} 1,234 m"""


def test_country_facts_are_read_from_the_factbook():
    names = ["Aland", "Boria", "Cadia", "Dunia", "Eland"]

    class Book:
        def of_sources(self, prefix):
            assert prefix == "factbook"
            for name in names:
                yield FACTBOOK.format(name=name, capital=f"{name} City")
            yield "Aland: Geography\n\nMap references: Europe"

    book, rng = Book(), random.Random(0)
    drawn = (knowledge.country_fact(rng, book) for _ in range(99))
    facts = {(item["context"], item["continuation"]) for item in drawn}
    assert ("The capital of Boria is", "Boria City") in facts
    assert ("The full name of Cadia is", "Republic of Cadia") in facts
    assert ("The highest point of Aland is", "Mount Aland City") in facts
    # the local name is the name itself, and one map reference makes no choice of four
    assert len(facts) == 15
    for _ in range(50):
        item = knowledge.country_choice(rng, book)
        assert (item["query"], item["choices"][item["gold"]]) in facts and len(set(item["choices"])) == 4


def test_task_files_are_complete_and_repeatable(study, corpus, tasks, tmp_path):
    make.make_tasks(study, corpus.folder, tmp_path)
    files = {path.name: path.read_bytes() for path in tasks.iterdir()}
    assert files == {path.name: path.read_bytes() for path in tmp_path.iterdir()}
    raw, suite = read_json(tasks / "tasks.json"), open_suite(tasks)
    assert len(suite.tasks) >= 14 and suite.corpus == corpus.sha256 and raw["suite"] == "local"
    for name, entry in raw["tasks"].items():
        items = read_items(tasks / entry["file"], suite.tasks[name])
        assert len(items) == entry["items"] and 0 <= entry["chance"] < 1
    # no factbook among these sources: those tasks are left out, not made up
    assert "local_country_facts" not in raw["tasks"]


def test_items_that_the_training_text_holds_are_left_out(study, corpus, tmp_path, monkeypatch):
    make.make_tasks(study, corpus.folder, tmp_path / "before")
    task = open_suite(tmp_path / "before").tasks["local_where_is"]
    stolen = read_items(tmp_path / "before" / task.file, task)[:5]
    leak = "\n\n".join(f"Then. {item['context'].upper()}\n{item['continuation']} !" for item in stolen)
    monkeypatch.setattr(make, "training_texts", lambda corpus: [leak])
    make.make_tasks(study, corpus.folder, tmp_path / "after")
    kept = read_items(tmp_path / "after" / task.file, task)
    assert not [item for item in kept if item in stolen] and len(kept) == study.evaluation.items + 64
    assert read_json(tmp_path / "after" / "tasks.json")["tasks"]["local_where_is"]["leaked"] == 5


def test_a_study_may_choose_tasks_and_unknown_ones_are_refused(study, corpus, tmp_path):
    def choosing(*names):
        return dataclasses.replace(study, evaluation=dataclasses.replace(study.evaluation, tasks=names))

    make.make_tasks(choosing("local_dyck_languages"), corpus.folder, tmp_path)
    suite = open_suite(tmp_path)
    assert list(suite.tasks) == ["local_dyck_languages"] and not suite.complete
    with pytest.raises(SmeltError, match="contains 'dyck'; suite local has local_key_value"):
        make.make_tasks(choosing("dyck"), corpus.folder, tmp_path)


def test_items_leave_half_of_a_prompt_to_demonstrations(study, corpus, tmp_path, monkeypatch):
    """A held-out text with a word of many tokens does not make a task that no prompt can hold."""
    short = dataclasses.replace(study, evaluation=dataclasses.replace(study.evaluation, max_length=140))
    text = type(corpus).text
    monkeypatch.setattr(
        type(corpus),
        "text",
        lambda self, i: " ".join([*text(self, i).split(), 400 * "x9"]) if i % 3 else text(self, i),
    )
    make.make_tasks(short, corpus.folder, tmp_path)
    suite, encoder = open_suite(tmp_path), Encoder.of_corpus(corpus.tokenizer, corpus.bos)
    assert len(suite.tasks) > 10 and "local_continuation" in suite.tasks
    for name, task in suite.tasks.items():
        for item in suite.items[name]:
            for sequence in build(task, item, [], encoder, 10_000):
                assert len(sequence.ids) <= 71  # BOS and 70


def test_a_corpus_that_makes_none_of_the_tasks_is_refused(study, corpus, tmp_path):
    """A suite without tasks would be refused by every later step, which can make no other one."""
    evaluation = dataclasses.replace(study.evaluation, tasks=("local_country_facts",))
    with pytest.raises(SmeltError, match="none of the tasks local_country_facts .* evaluation.tasks"):
        make.make_tasks(dataclasses.replace(study, evaluation=evaluation), corpus.folder, tmp_path)
    assert not (tmp_path / "tasks.json").exists()
