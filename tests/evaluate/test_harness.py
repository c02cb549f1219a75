"""The adapter to lm-evaluation-harness: same log probabilities and, where it means the same, same scores."""

import os

import pytest
import torch

# Nothing of these tests needs a hub.
os.environ |= {"HF_HUB_OFFLINE": "1", "HF_DATASETS_OFFLINE": "1", "HF_EVALUATE_OFFLINE": "1"}
lm_eval = pytest.importorskip("lm_eval")

from smelt.errors import SmeltError  # noqa: E402
from smelt.evaluate.harness import SmeltModel, task_config  # noqa: E402
from smelt.evaluate.scoring import score  # noqa: E402
from smelt.evaluate.sequences import Encoder, build  # noqa: E402
from smelt.evaluate.suite import open_suite  # noqa: E402

COMPLETION, CHOICE, ITEMS = "local_where_is", "local_continuation", 20


@pytest.fixture(scope="module")
def model(run, corpus):
    return SmeltModel.from_run(run, corpus.folder)


@pytest.fixture(scope="module")
def results(model, tasks, tmp_path_factory):
    os.environ["HF_DATASETS_CACHE"] = str(tmp_path_factory.mktemp("cache"))
    suite = open_suite(tasks)
    configs = [task_config(suite.tasks[name], tasks) for name in (COMPLETION, CHOICE)]
    found = lm_eval.simple_evaluate(model=model, tasks=configs, limit=ITEMS, bootstrap_iters=0)
    return found["results"], found["samples"]


def ours(model, tasks, name):
    suite = open_suite(tasks)
    task, items = suite.tasks[name], suite.items[name][:ITEMS]
    encoder = Encoder.of_corpus(model.tokenizer, model.bos)
    cases = [build(task, item, [], encoder, model.max_length) for item in items]
    return cases, score(model.model, cases, model.pad)


def test_completions_have_equal_scores(model, tasks, results):
    _, answers = ours(model, tasks, COMPLETION)
    assert results[0][COMPLETION]["acc,none"] == pytest.approx(answers.greedy.mean())
    samples = sorted(results[1][COMPLETION], key=lambda sample: sample["doc_id"])
    found = [
        (float(sample["filtered_resps"][0][0]), bool(sample["filtered_resps"][0][1])) for sample in samples
    ]
    assert [hit for _, hit in found] == answers.greedy.tolist()
    assert [p for p, _ in found] == pytest.approx((-answers.nll).tolist(), abs=1e-4)


def test_options_have_equal_log_probabilities_and_sums_decide_there(model, tasks, results):
    cases, answers = ours(model, tasks, CHOICE)
    samples = sorted(results[1][CHOICE], key=lambda sample: sample["doc_id"])
    found = [float(p) for sample in samples for p, _ in sample["filtered_resps"]]
    assert found == pytest.approx((-answers.nll).tolist(), abs=1e-4)
    items, place, right = open_suite(tasks).items[CHOICE], 0, 0
    for case, item in zip(cases, items, strict=False):
        sums = answers.nll[place : place + len(case)].tolist()
        right += sums.index(min(sums)) == item["gold"]
        place += len(case)
    assert results[0][CHOICE]["acc,none"] == pytest.approx(right / len(cases))


def request(*args):
    return lm_eval.api.instance.Instance("loglikelihood", {}, args, 0)


def test_rolling_log_probability_of_a_long_text(model, corpus):
    text = "three words and " * 40
    ids = [model.bos, *model.tokenizer.encode(text).ids]
    assert len(ids) > model.max_length
    (found,) = model.loglikelihood_rolling([request(text)])
    # Windows of `width` inputs side by side; the last one ends with the text and scores what is left.
    total, width, done = 0.0, model.max_length - 1, 0
    while done < len(ids) - 1:
        stop = min(done + width, len(ids) - 1)
        start = max(0, stop - width)
        with torch.no_grad():
            log_p_tv = model.model(torch.tensor([ids[start:stop]]))[0].log_softmax(-1)
        total += sum(log_p_tv[t - start, ids[t + 1]].item() for t in range(done, stop))
        done = stop
    assert found == pytest.approx(total, rel=1e-4)


def test_generation_stops_at_stop_strings(model):
    (whole,) = model.generate_until([request("a", {"max_gen_toks": 12, "until": []})])
    assert len(whole) > 3
    (cut,) = model.generate_until([request("a", {"max_gen_toks": 12, "until": [whole[2]]})])
    assert cut == whole[: whole.index(whole[2])]


def test_what_cannot_be_served_is_refused(run, corpus, tasks, model):
    with pytest.raises(SmeltError, match="no endpoint at horizon 5; it has"):
        SmeltModel.from_run(run, corpus.folder, 5)
    with pytest.raises(SmeltError, match="local_reference is of type schema"):
        task_config(open_suite(tasks).tasks["local_reference"], tasks)
    with pytest.raises(SmeltError, match="does not fit into"):
        model.loglikelihood([request("a", "b" * 500)], disable_tqdm=True)
