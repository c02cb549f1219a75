"""The golden cases of the specification of the DCLM tasks: tokens, truncation, scores."""

import math

import numpy as np
import pytest

from smelt.errors import SmeltError
from smelt.evaluate.registry import CHOICE, COMPLETION, LANGUAGE, SCHEMA, Task
from smelt.evaluate.scores import centred, task_scores
from smelt.evaluate.sequences import Encoder, build
from smelt.evaluate.shots import shot_table
from tests.evaluate.toys import GPT, LLAMA, Toy

ANSWER = "\nAnswer: "


def task(kind, delimiter=" ", **other):
    return Task("toy", kind, 0, delimiter, LANGUAGE, 0.0, "toy.jsonl", **other)


def shown(toy, kind, item, shots=(), delimiter=" ", limit=2048, keep_bos=True):
    """Return context pieces, answer pieces and start of each option."""
    sequences = build(task(kind, delimiter), item, shots, toy.encoder(), limit, keep_bos)
    return [(toy.show(s.ids[: s.start]), toy.show(s.ids[s.start :]), s.start) for s in sequences]


def test_choice_with_answer_delimiter():
    item = {"query": "Question: dresser", "choices": ["use it", "paint"], "gold": 0}
    first, second = shown(Toy(GPT), CHOICE, item, delimiter=ANSWER)
    assert first == (["Question", ":", " dresser", "\n", "Answer", ":"], [" use", " it"], 6)
    assert second == (first[0], [" paint"], 6)


def test_choice_context_that_ends_in_answer():
    item = {"query": "Pick\nAnswer:", "choices": ["A", "B"], "gold": 0}
    assert shown(Toy(GPT), CHOICE, item) == [
        (["Pick", "\n", "Answer", ":"], [" A"], 4),
        (["Pick", "\n", "Answer", ":"], [" B"], 4),
    ]


def test_completion_with_one_shot():
    shot = {"context": "The sky is", "continuation": "blue"}
    item = {"context": "Grass is", "continuation": "green"}
    assert shown(Toy(GPT), COMPLETION, item, [shot]) == [
        (["The", " sky", " is", " blue", "\n", "Grass", " is"], [" green"], 7)
    ]


def test_choices_that_share_their_beginning_are_both_scored_from_it():
    item = {"query": "Q", "choices": ["run", "run fast"], "gold": 0}
    assert shown(Toy(GPT), CHOICE, item) == [(["Q"], [" run"], 1), (["Q"], [" run", " fast"], 1)]


def test_schema_without_and_with_a_shot():
    item = {
        "context_options": ["Ann beat Bo so Ann", "Ann beat Bo so Bo"],
        "continuation": "won.",
        "gold": 0,
    }
    first, second = shown(Toy(GPT), SCHEMA, item)
    assert first == (["Ann", " beat", " Bo", " so", " Ann"], [" won", "."], 5)
    assert second[0][-1] == " Bo" and second[1:] == ([" won", "."], 5)
    shot = {"context_options": ["Al", "Cy"], "continuation": "lost.", "gold": 0}
    item = {"context_options": ["Ann", "Bo"], "continuation": "won.", "gold": 0}
    assert shown(Toy(GPT), SCHEMA, item, [shot])[0] == (
        ["Al", " lost", ".", "\n", "Ann"],
        [" won", "."],
        5,
    )


def test_truncation_keeps_bos_or_drops_it_first():
    item = {"context": "one two three four", "continuation": "five six"}
    full = shown(Toy(GPT, bos=True), COMPLETION, item)
    assert full == [(["<bos>", "one", " two", " three", " four"], [" five", " six"], 5)]
    dropped = shown(Toy(GPT, bos=True), COMPLETION, item, limit=5, keep_bos=False)
    assert dropped == [([" two", " three", " four"], [" five", " six"], 3)]
    kept = shown(Toy(GPT, bos=True), COMPLETION, item, limit=5)
    assert kept == [(["<bos>", " three", " four"], [" five", " six"], 3)]
    (sequence,) = build(task(COMPLETION), item, [], Toy(GPT, bos=True).encoder(), 5)
    assert sequence.truncated and sequence.nbytes == len("five six")


def test_an_answer_without_room_for_context_is_refused():
    item = {"context": "one", "continuation": "two three four"}
    with pytest.raises(SmeltError, match="3 tokens; with at least one"):
        build(task(COMPLETION), item, [], Toy(GPT).encoder(), 3)
    assert build(task(COMPLETION), item, [], Toy(GPT).encoder(), 4)


def test_zero_shots_without_bos_need_a_context():
    with pytest.raises(SmeltError, match="has no tokens"):
        build(task(COMPLETION), {"context": "", "continuation": "two"}, [], Toy(GPT).encoder(), 8)


def test_the_seam_is_not_tokenised_jointly():
    shot = {"context": "Q", "continuation": "a."}
    item = {"context": "Q b", "continuation": "c"}
    toy = Toy(LLAMA)
    assert shown(toy, COMPLETION, item, [shot])[0][0] == ["Q", " a", ".", "\n", "Q", " b"]
    assert toy.show(toy.encode("Q a.\nQ b")) == ["Q", " a", ".\n", "Q", " b"]


def test_a_leading_comma_gets_a_blank():
    item = {"query": "Then", "choices": [", he ran", " he sat"], "gold": 0}
    answers = [answer for _, answer, _ in shown(Toy(GPT), CHOICE, item)]
    assert answers == [[" ,", " he", " ran"], [" he", " sat"]]


def test_a_vocabulary_that_does_not_carry_blanks_gets_none():
    item = {"query": "Then", "choices": ["run", "sit"], "gold": 0}
    toy = Toy(r"[A-Za-z]+|\s|[^\sA-Za-z]")
    assert [answer for _, answer, _ in shown(toy, CHOICE, item)] == [["run"], ["sit"]]


def test_answers_of_a_corpus_start_with_a_blank_however_small_its_vocabulary(corpus):
    assert len(corpus.tokenizer.encode(" a")) == 2
    encoder = Encoder.of_corpus(corpus.tokenizer, corpus.bos)
    (sequence,) = build(task(COMPLETION), {"context": "It is", "continuation": "red"}, [], encoder, 64)
    assert corpus.tokenizer.decode(sequence.ids) == "It is red"
    assert corpus.tokenizer.decode(sequence.ids[sequence.start :]) == " red"


def items(kind, rows, **other):
    """Return scores of items given as (item, part, [(nll, tokens, greedy)], gold)."""
    columns = {name: [] for name in ("item", "option", "part", "gold", "nll", "tokens", "greedy")}
    for item, part, options, gold in rows:
        for option, (nll, tokens, greedy) in enumerate(options):
            for name, value in zip(
                columns, (item, option, part, option == gold, nll, tokens, greedy), strict=True
            ):
                columns[name].append(value)
    size = len(columns["nll"])
    columns |= {"run": ["r"] * size, "horizon": [1] * size, "task": ["toy"] * size}
    columns |= {"shots": [0] * size, "seed": [1234] * size}
    rows = task_scores({k: np.array(v) for k, v in columns.items()}, {"toy": task(kind, **other)})
    return {row["metric"]: row["value"] for row in rows}


def test_choice_is_decided_by_the_mean_loss():
    # run: 1.0; run fast: 1.0 and 0.2. Means 1.0 and 0.6; sums would choose the other.
    assert items(CHOICE, [(0, "", [(1.0, 1, False), (1.2, 2, False)], 1)])["accuracy"] == 1.0
    assert items(CHOICE, [(0, "", [(1.0, 1, False), (1.2, 1, False)], 0)])["accuracy"] == 1.0
    ties = [(0, "", [(1.0, 1, False), (2.0, 2, False)], 0), (1, "", [(2.0, 2, False), (1.0, 1, False)], 0)]
    assert items(CHOICE, ties)["accuracy"] == 1.0


def test_schema_is_decided_by_the_mean_loss():
    rows = [(0, "", [(1.2, 2, False), (1.4, 2, False)], 0)]
    assert items(SCHEMA, rows)["accuracy"] == 1.0


def test_completion_is_right_when_every_token_is_the_most_likely():
    loss = math.log(2) + math.log(4)
    wrong = items(COMPLETION, [(0, "", [(loss, 2, False)], 0)])
    right = items(COMPLETION, [(0, "", [(loss, 2, True)], 0)])
    assert wrong["loss"] == right["loss"] == pytest.approx(1.039721, abs=1e-6)
    assert (wrong["accuracy"], right["accuracy"]) == (0.0, 1.0)


def test_centring():
    assert centred(0.5, 0.403) == pytest.approx(0.162479, abs=1e-6)
    assert centred(0.5, 0.62) == pytest.approx(-0.315789, abs=1e-6)
    assert centred(0.2, 0.0) == 0.2


def test_parts_of_a_task_count_equally():
    rows = [(i, "a", [(1.0, 1, i == 0)], 0) for i in range(2)]
    rows += [(i, "b", [(1.0, 1, False)], 0) for i in range(2, 6)]
    assert items(COMPLETION, rows, by_category=True)["accuracy"] == 0.25


@pytest.mark.parametrize(
    ("n", "k", "expected"),
    [
        (5, 2, [[3, 4], [0, 4], [0, 1], [0, 4]]),
        (230, 3, [[112, 29, 199], [149, 206, 23], [8, 177, 171], [25, 196, 21]]),
        (8, 10, [[1, 2, 3, 4, 5, 6, 7], [0, 2, 3, 4, 5, 6, 7]]),
        (32, 10, [[1, 2, 3, 6, 18, 21, 22, 25, 28, 31], [0, 7, 11, 15, 19, 20, 22, 25, 28, 29]]),
        (60, 10, [[2, 5, 37, 7, 6, 42, 44, 49, 51, 28], [39, 41, 15, 49, 50, 22, 55, 56, 58, 30]]),
        (
            2376,
            10,
            [
                [71, 969, 1452, 1805, 143, 371, 343, 403, 30, 478],
                [64, 608, 1417, 1898, 749, 468, 373, 59, 126, 1983],
            ],
        ),
        (
            3270,
            10,
            [
                [2750, 1805, 143, 2384, 371, 3187, 343, 2838, 30, 478],
                [64, 3139, 71, 969, 1417, 1452, 403, 3230, 126, 2655],
            ],
        ),
    ],
)
def test_shot_tables_are_the_originals(n, k, expected):
    assert shot_table(n, k)[: len(expected)] == expected
