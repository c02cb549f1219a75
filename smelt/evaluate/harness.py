"""Serve a run's checkpoints to lm-evaluation-harness (optional extra `harness`: lm-eval).

    from lm_eval import simple_evaluate
    from smelt.evaluate.harness import SmeltModel
    simple_evaluate(SmeltModel.from_run("results/nano/runs/A-s85-smelt", "results/nano/corpus"), tasks=[...])

The harness decides multiple choice by sums of log probabilities (`acc`) or sums per byte (`acc_norm`), the
DCLM evaluation by means per token: log probabilities and greedy matches agree, `acc` need not.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import groupby
from pathlib import Path
from typing import Any

import torch
from lm_eval.api.instance import Instance
from lm_eval.api.model import TemplateLM
from lm_eval.utils import get_rolling_token_windows, make_disjoint_window
from tokenizers import Tokenizer

from smelt.corpus import Corpus
from smelt.errors import SmeltError
from smelt.evaluate.registry import SCHEMA, Task
from smelt.evaluate.scoring import computes_in_half, score
from smelt.evaluate.sequences import Scored, truncate
from smelt.model import LoopedLM, load_model
from smelt.model.generate import generate
from smelt.study.records import endpoint_weights, read_run

_NEW_TOKENS = 64

TokenRequest = tuple[tuple[str, str], list[int], list[int]]


class SmeltModel(TemplateLM):
    """A looped language model behind the harness's interface.

    Args:
        model: in evaluation mode.
        tokenizer: the corpus's; every context starts with `bos`, which also ends generation.
        pad: id to fill rows with.
        max_length: longest sequence in tokens; longer contexts lose tokens on the left, after BOS.
        half: run the layers in bfloat16.
    """

    def __init__(
        self, model: LoopedLM, tokenizer: Tokenizer, bos: int, pad: int, max_length: int, half: bool = False
    ) -> None:
        super().__init__()
        self.half = half
        self.model, self.tokenizer, self.bos, self.pad = model, tokenizer, bos, pad
        self.max_length = max_length

    @classmethod
    def from_run(cls, run: Path | str, corpus: Path | str, horizon: int | None = None) -> SmeltModel:
        """Load the endpoint of a run at `horizon`, by default the last.

        Raises:
            SmeltError: the run has no such endpoint or was trained on another corpus.
        """
        run, text = Path(run), Corpus.open(corpus)
        spec, manifest = read_run(run)
        if manifest["corpus"] != text.sha256:
            raise SmeltError(f"{run}: the run was trained on another corpus than {corpus}")
        model = load_model(endpoint_weights(run, manifest, horizon), spec)
        device = "cuda" if torch.cuda.is_available() else "cpu"
        return cls(
            model.to(device),
            text.tokenizer,
            text.bos,
            text.pad,
            spec.corpus.context,
            computes_in_half(spec, device),
        )

    @property
    def eot_token_id(self) -> int:
        """The id that separates documents: the start token of the next."""
        return self.bos

    def tok_encode(self, string: str, add_special_tokens: bool | None = None, **kwargs: Any) -> list[int]:
        """Return the ids of a text, behind BOS unless `add_special_tokens` is False."""
        ids = self.tokenizer.encode(string, add_special_tokens=False).ids
        return ids if add_special_tokens is False else [self.bos, *ids]

    def _loglikelihood_tokens(
        self, requests: Sequence[TokenRequest], disable_tqdm: bool = False, **kwargs: Any
    ) -> list[tuple[float, bool]]:
        # Options of one question follow each other with the same context: one tree.
        cases = [
            [self._scored(context, answer) for _, context, answer in group]
            for _, group in groupby(requests, key=lambda request: request[1])
        ]
        answers = score(self.model, cases, self.pad, half=self.half)
        return [(-float(nll), bool(hit)) for nll, hit in zip(answers.nll, answers.greedy, strict=True)]

    def _scored(self, context: list[int], answer: list[int]) -> Scored:
        kept = truncate(context, len(answer), self.max_length, self.bos)
        if not kept:
            raise SmeltError(
                f"an answer of {len(answer)} tokens does not fit into {self.max_length} with its context"
            )
        return Scored(kept + answer, len(kept), 0, len(kept) < len(context))

    def loglikelihood_rolling(self, requests: list[Instance], disable_tqdm: bool = False) -> list[float]:
        """Return the log probability of whole texts; windows of `max_length` where they are longer."""
        windows, owners = [], []
        for index, request in enumerate(requests):
            ids = self.tok_encode(request.args[0], add_special_tokens=False)
            for pair in get_rolling_token_windows(ids, self.bos, self.max_length - 1, 1):
                context, answer = make_disjoint_window(pair)
                windows.append([Scored(context + answer, len(context), 0, False)])
                owners.append(index)
        totals = [0.0] * len(requests)
        for owner, nll in zip(owners, score(self.model, windows, self.pad, half=self.half).nll, strict=True):
            totals[owner] -= float(nll)
        return totals

    def generate_until(self, requests: list[Instance], disable_tqdm: bool = False) -> list[str]:
        """Return greedy continuations, each cut before its first stop string."""
        results = []
        for request in requests:
            context, options = request.args
            tokens = options.get("max_gen_toks", _NEW_TOKENS)
            prompt = truncate(self.tok_encode(context), tokens, self.max_length, self.bos)
            if not prompt:
                raise SmeltError(f"max_gen_toks is {tokens}; it must be below {self.max_length}")
            (ids,) = generate(self.model, [prompt], tokens, stop=self.bos)
            results.append(_cut(self.tokenizer.decode(ids), options.get("until", ())))
        return results


def _cut(text: str, stops: str | Sequence[str]) -> str:
    for stop in [stops] if isinstance(stops, str) else stops:
        text = text.split(stop)[0]
    return text


def task_config(task: Task, folder: Path) -> dict[str, Any]:
    """Return the harness's configuration of a task of ours without demonstrations.

    Raises:
        SmeltError: a schema task, for which the harness's prompts differ from ours.
    """
    if task.kind == SCHEMA:
        raise SmeltError(f"task {task.name} is of type {SCHEMA}; use multiple_choice or language_modeling")
    # As in our prompts the delimiter's text belongs to the question and its last blank to the answer.
    question = "{{" + ("context" if task.completion else "query") + " | trim}}" + task.delimiter.rstrip()
    common = {
        "task": task.name,
        "dataset_path": "json",
        "dataset_kwargs": {"data_files": {"test": str(folder / task.file)}},
        "test_split": "test",
        "doc_to_text": question,
        "num_fewshot": 0,
    }
    if task.completion:
        metrics = [{"metric": name} for name in ("acc", "perplexity")]
        fields = {"doc_to_target": " {{continuation | trim}}", "metric_list": metrics}
        return {**common, **fields, "output_type": "loglikelihood"}
    metrics = [{"metric": name} for name in ("acc", "acc_norm")]
    fields = {"doc_to_choice": "choices", "doc_to_target": "gold", "target_delimiter": " "}
    return {**common, **fields, "metric_list": metrics, "output_type": "multiple_choice"}
