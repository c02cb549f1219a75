"""Evaluation against lm-evaluation-harness on the same prompts: `python -m bench.evaluate`.

A Baseline of the study's largest cell with random weights answers few-shot prompts of the local suite three
ways: by `smelt.evaluate` (prompts built and scored, options as one tree), through our adapter to the harness,
and by the harness's own HF model on the exported weights. Repeats are interleaved, times are processor
seconds of one thread; the log probabilities are compared too. Needs lm-eval[hf].
"""

from __future__ import annotations

import argparse
import dataclasses
import logging
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

import numpy as np
import torch
from lm_eval.api.instance import Instance
from lm_eval.models.huggingface import HFLM
from transformers import AutoModelForCausalLM, PreTrainedTokenizerFast

from smelt.budget import resolve_run
from smelt.corpus import Corpus
from smelt.evaluate.harness import SmeltModel
from smelt.evaluate.plan import STANDARD, cases, settings
from smelt.evaluate.scoring import score
from smelt.evaluate.sequences import Encoder
from smelt.evaluate.suite import Suite, open_suite
from smelt.model import LoopedLM, ModelConfig
from smelt.model.export import export_model
from smelt.study import Study, load_study


def seconds(work: Callable[[], list[float]]) -> tuple[float, list[float]]:
    """Return processor seconds and the result of `work`."""
    begin = time.process_time()
    result = work()
    return time.process_time() - begin, result


def harness_requests(corpus: Corpus, prompts: list) -> list[Instance]:
    """Return the same prompts as the texts that the harness asks with."""
    decode = corpus.tokenizer.decode
    return [
        Instance("loglikelihood", {}, (decode(s.ids[: s.start]), decode(s.ids[s.start :])), 0)
        for case in prompts
        for s in case.sequences
    ]


def contenders(
    study: Study, corpus: Corpus, suite: Suite, folder: Path, batch: int
) -> dict[str, Callable[[], list[float]]]:
    """Return what is timed: each returns the log probability of every option of every prompt."""
    largest, sparsest = list(study.scales)[-1], max(study.sparsities)
    spec = resolve_run(study, f"{largest}-s{sparsest}-baseline")
    config = ModelConfig.from_spec(spec)
    model = LoopedLM(config, 0).eval()
    length = spec.corpus.context
    plan = settings(suite, study.evaluation, STANDARD)

    def prompts() -> list:
        return list(
            cases(suite, study.evaluation, plan, Encoder.of_corpus(corpus.tokenizer, corpus.bos), length)
        )

    # Truncated prompts start in the middle of a text, which the harness cannot be asked for.
    whole = [case for case in prompts() if not any(s.truncated for s in case.sequences)]
    kept = {(case.setting, case.item) for case in whole}
    requests = harness_requests(corpus, whole)
    adapter = SmeltModel(model, corpus.tokenizer, corpus.bos, corpus.pad, length)
    export_model(folder, config, model.state_dict(), length, corpus.folder / "tokenizer.json")
    # Saved text tokenizers do not keep the setting that makes special tokens in texts literal; none occur.
    tokenizer = PreTrainedTokenizerFast(tokenizer_object=corpus.tokenizer)
    tokenizer.pad_token_id, tokenizer.bos_token_id, tokenizer.eos_token_id = (
        corpus.pad,
        corpus.bos,
        corpus.bos,
    )
    hf = AutoModelForCausalLM.from_pretrained(folder).eval()
    other = HFLM(pretrained=hf, tokenizer=tokenizer, batch_size=batch, max_length=length, add_bos_token=False)
    with_bos = [_with_prefix(request, tokenizer.decode([corpus.bos])) for request in requests]

    def ours() -> list[float]:
        mine = [case.sequences for case in prompts() if (case.setting, case.item) in kept]
        return (-score(model, mine, corpus.pad).nll).tolist()

    print(
        f"{spec.point.run}: H{config.geometry.hidden} L{config.geometry.layers} E{config.geometry.experts}; "
        f"{len(whole)} prompts of {len(suite.tasks)} tasks with {len(requests)} options, "
        f"{sum(len(s.ids) for case in whole for s in case.sequences)} tokens without sharing"
    )
    return {
        "smelt.evaluate": ours,
        "adapter": lambda: [p for p, _ in adapter.loglikelihood(requests, disable_tqdm=True)],
        "harness, HF model": lambda: [p for p, _ in other.loglikelihood(with_bos, disable_tqdm=True)],
    }


def _with_prefix(request: Instance, prefix: str) -> Instance:
    context, answer = request.args
    return Instance("loglikelihood", {}, (prefix + context, answer), 0)


def main() -> None:
    """Time the contenders in turns and print medians, ratios and how far results are apart."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--study", default="nano")
    parser.add_argument("--corpus", type=Path, help="default: results/<study>/corpus")
    parser.add_argument("--tasks", type=Path, help="default: results/<study>/tasks")
    parser.add_argument("--items", type=int, default=4)
    parser.add_argument("--repeats", type=int, default=3)
    parser.add_argument("--batch", type=int, default=32, help="prompts a batch of the harness's HF model")
    args = parser.parse_args()
    torch.set_num_threads(1)
    logging.disable(logging.WARNING)
    study = load_study(args.study)
    study = dataclasses.replace(
        study, evaluation=dataclasses.replace(study.evaluation, items=args.items, seeds=1)
    )
    corpus = Corpus.open(args.corpus or Path("results", study.name, "corpus"))
    suite = open_suite(args.tasks or Path("results", study.name, "tasks"))
    with tempfile.TemporaryDirectory() as folder:
        works = contenders(study, corpus, suite, Path(folder), args.batch)
        results = {name: work() for name, work in works.items()}  # warm
        times = {name: [] for name in works}
        for _ in range(args.repeats):
            for name, work in works.items():
                times[name].append(seconds(work)[0])
    reference = np.array(results["smelt.evaluate"])
    slowest = float(np.median(times["harness, HF model"]))
    for name, values in times.items():
        median = float(np.median(values))
        apart = float(np.abs(np.array(results[name]) - reference).max())
        print(
            f"{name:18s} {median:7.2f} s ({min(values):.2f} to {max(values):.2f}), "
            f"{len(reference) / median:7.0f} options/s, {slowest / median:5.2f} x the harness, "
            f"largest difference {apart:.1e} nats"
        )


if __name__ == "__main__":
    main()
