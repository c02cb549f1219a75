"""The product against an independent implementation of the original, on real items of every task."""

import json

import numpy as np
import pytest
import torch

from smelt.evaluate.items import read_items
from smelt.evaluate.registry import MMLU, dclm_tasks
from smelt.evaluate.scores import core, suite_scores, task_scores
from smelt.evaluate.scoring import score
from smelt.evaluate.sequences import build
from smelt.evaluate.shots import shot_table
from smelt.model.export import export_model
from tests.evaluate import original
from tests.evaluate.toys import GPT, LLAMA, SAMPLES, Toy, sample_rows, tiny_model

TASKS = dclm_tasks()
FILES = {
    "hellaswag_zeroshot": "hellaswag",
    "jeopardy": "jeopardy_by_category",
    "squad": "squad.reconstructed",
    "coqa": "coqa.reconstructed",
    MMLU: "mmlu.reconstructed",
}


def loaded(name):
    file = FILES.get(name, name)
    rows = sample_rows(file)
    return original.load(rows), read_items(SAMPLES / f"{file}.jsonl", TASKS[name])


@pytest.mark.parametrize("name", TASKS)
@pytest.mark.parametrize(("pattern", "bos"), [(GPT, False), (LLAMA, True)])
@pytest.mark.parametrize(("limit", "keep_bos"), [(2048, False), (190, False), (190, True)])
def test_token_sequences_equal_the_originals(name, pattern, bos, limit, keep_bos):
    task, toy = TASKS[name], Toy(pattern, bos)
    theirs, ours = loaded(name)
    assert theirs == ours
    shots = original.few_shot(len(theirs), task.shots, 1234)
    assert shots == shot_table(len(ours), task.shots)
    encoder = toy.encoder()
    for i in range(len(theirs)):
        expected = original.sequences(
            task.kind, theirs, i, shots[i], task.delimiter, toy.encode, toy.bos, limit, keep_bos
        )
        mine = build(task, ours[i], [ours[j] for j in shots[i]], encoder, limit, keep_bos)
        assert [(s.ids, s.start) for s in mine] == expected


@pytest.mark.parametrize("seed", [1235, 1243])
def test_further_seeds_draw_like_the_original(seed):
    assert original.few_shot(60, 10, seed) == shot_table(60, 10, seed)
    assert shot_table(60, 10, seed) != shot_table(60, 10)


@pytest.mark.parametrize(
    "name", ["arc_easy", "winograd", "bigbench_operators", "bigbench_language_identification", "copa"]
)
def test_scores_equal_those_of_single_sequences(name):
    """Losses, decisions and accuracy from trees equal those from one plain forward pass a sequence."""
    task, toy = TASKS[name], Toy(GPT, bos=True)
    theirs, ours = loaded(name)
    theirs, ours = theirs[:8], ours[:8]
    shots = original.few_shot(len(theirs), min(task.shots, 3), 1234)
    encoder = toy.encoder()
    cases = [build(task, ours[i], [ours[j] for j in shots[i]], encoder, 120) for i in range(len(ours))]
    model = tiny_model(vocab=len(toy.pieces))
    answers = score(model, cases, pad=0, batch_tokens=500)
    place, right = 0, []
    for i in range(len(theirs)):
        means = []
        for ids, start in original.sequences(
            task.kind, theirs, i, shots[i], task.delimiter, toy.encode, toy.bos, 120, True
        ):
            with torch.no_grad():
                logits = model(torch.tensor([ids]))[0].tolist()
            losses, greedy = original.losses(ids, start, logits)
            assert answers.nll[place] == pytest.approx(sum(losses), abs=2e-5)
            assert (answers.tokens[place], answers.greedy[place]) == (len(losses), greedy)
            means.append(sum(losses) / len(losses))
            place += 1
        right.append(greedy if task.completion else means.index(min(means)) == theirs[i]["gold"])
    assert place == len(answers.nll)
    assert accuracy(task, cases, ours, answers) == pytest.approx(np.mean(right))


@pytest.mark.parametrize("name", ["arc_easy", "winogrande", "bigbench_dyck_languages"])
def test_scores_equal_those_of_hf_logits(name, tmp_path):
    """The exported Baseline in HF transformers, asked for one sequence after the other, scores the same."""
    transformers = pytest.importorskip("transformers")
    task, toy = TASKS[name], Toy(GPT, bos=True)
    theirs, ours = loaded(name)
    theirs, ours = theirs[:4], ours[:4]
    shots = original.few_shot(len(theirs), min(task.shots, 2), 1234)
    cases = [build(task, ours[i], [ours[j] for j in shots[i]], toy.encoder(), 200) for i in range(len(ours))]
    model = tiny_model(vocab=len(toy.pieces), looped=False)
    export_model(tmp_path, model.config, model.state_dict(), 200, None)
    other = transformers.AutoModelForCausalLM.from_pretrained(tmp_path).eval()
    answers = score(model, cases, pad=0)
    place = 0
    for i in range(len(theirs)):
        for ids, start in original.sequences(
            task.kind, theirs, i, shots[i], task.delimiter, toy.encode, toy.bos, 200, True
        ):
            with torch.no_grad():
                logits = other(torch.tensor([ids])).logits[0].tolist()
            losses, greedy = original.losses(ids, start, logits)
            assert answers.nll[place] == pytest.approx(sum(losses), abs=1e-4)
            assert answers.greedy[place] == greedy
            place += 1
    assert place == len(answers.nll)


def accuracy(task, cases, items, answers):
    rows = [
        (i, option, option == item.get("gold", 0))
        for i, (case, item) in enumerate(zip(cases, items, strict=True))
        for option in range(len(case))
    ]
    item, option, gold = (np.array(column) for column in zip(*rows, strict=True))
    size = len(rows)
    columns = {"run": ["r"] * size, "horizon": [1] * size, "task": [task.name] * size, "shots": [3] * size}
    columns |= {"seed": [1234] * size, "item": item, "option": option, "gold": gold, "part": [""] * size}
    columns |= {"nll": answers.nll, "tokens": answers.tokens, "greedy": answers.greedy}
    rows = task_scores({k: np.asarray(v) for k, v in columns.items()}, {task.name: task})
    return next(row["value"] for row in rows if row["metric"] == "accuracy")


def reference():
    path = SAMPLES / "core_reference.json"
    if not path.is_file():
        pytest.skip(f"no sample file {path}")
    return json.loads(path.read_text())


@pytest.mark.parametrize("version", ["v1", "v2"])
def test_core_of_published_results(version):
    raw = reference()
    tasks = dclm_tasks(version)
    baselines = {name: round(100 * task.chance, 6) for name, task in tasks.items() if task.core}
    assert baselines == raw[f"random_baseline_percent_{version}"]
    for published in raw["models"].values():
        assert core(published["accuracy"], tasks) == pytest.approx(published[f"core_{version}"], abs=1e-6)


def test_core_needs_every_task_and_mmlu_stays_apart():
    accuracy = {name: 0.5 for name in TASKS if name != MMLU}
    assert core(accuracy, TASKS) is not None
    del accuracy["copa"]
    assert core(accuracy, TASKS) is None
    rows = [
        {"task": name, "shots": task.shots, "metric": metric, "value": 0.5, "n": 10}
        for name, task in TASKS.items()
        for metric in ("accuracy", "loss")
    ]
    scores = suite_scores(rows, TASKS, MMLU, complete=True)
    assert scores["mmlu"] == 0.5 and scores["completion"] == pytest.approx(0.5)
    assert suite_scores(rows, TASKS, MMLU, complete=False)["core"] is None


def test_completion_weighs_tasks_by_their_tokens():
    rows = [
        {"task": "squad", "shots": 10, "metric": "loss", "value": value, "n": 30} for value in (1.0, 2.0)
    ] + [{"task": "coqa", "shots": 0, "metric": "loss", "value": 4.0, "n": 10}]
    tasks = {name: TASKS[name] for name in ("squad", "coqa")}
    assert suite_scores(rows, tasks, None, True)["completion"] == pytest.approx((1.5 * 30 + 4 * 10) / 40)


def test_registry_has_the_counts_of_the_paper():
    in_core = [task for task in TASKS.values() if task.core]
    assert len(in_core) == 22 and len(TASKS) == 23
    kinds = [task.kind for task in in_core]
    assert [kinds.count(k) for k in ("multiple_choice", "schema", "language_modeling")] == [11, 2, 9]
    # "the seven zero-shot tasks" and sixteen few-shot ones with MMLU (figure 11b)
    assert sum(task.shots == 0 for task in TASKS.values()) == 7
