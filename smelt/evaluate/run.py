"""Evaluate all endpoints of one run."""

from __future__ import annotations

import sys
import time
from collections.abc import Iterator
from itertools import islice
from pathlib import Path
from typing import Any

import numpy as np
import torch
from tqdm import tqdm

from smelt.corpus import Corpus
from smelt.errors import SmeltError
from smelt.evaluate.plan import Case, cases, count_cases, settings
from smelt.evaluate.scores import suite_scores, task_scores
from smelt.evaluate.scoring import BATCH_TOKENS, score
from smelt.evaluate.sequences import Encoder
from smelt.evaluate.suite import Suite, open_suite
from smelt.evaluate.validation import document_losses, validation_loss, validation_rows
from smelt.files import read_json
from smelt.model import LoopedLM, load_model
from smelt.results.parquet import write_columns, write_table
from smelt.study import RunSpec, Study

# Cases that are built and scored together; similar lengths are batched within them.
_CHUNK = 8192


class Evaluation:
    """What the endpoints of a run share: corpus, suite and prompts."""

    def __init__(self, study: Study, spec: RunSpec, corpus: Corpus, suite: Suite) -> None:
        self.spec, self.corpus, self.suite, self.options = spec, corpus, suite, study.evaluation
        self.max_length = study.evaluation.max_length or spec.corpus.context
        self._held: dict[bool, list[list[Case]]] = {}

    def encoder(self) -> Encoder:
        """Return a fresh encoder; its cache lives as long as one pass over the cases."""
        tokenizer = self.corpus.tokenizer
        return Encoder(lambda text: tokenizer.encode(text, add_special_tokens=False).ids, self.corpus.bos)

    def chunks(self, sweep: bool) -> Iterator[list[Case]]:
        """Yield the cases of an endpoint in chunks; a single chunk is kept for the next endpoint."""
        if sweep in self._held:
            yield from self._held[sweep]
            return
        plan = settings(self.suite, self.options, sweep)
        stream = cases(self.suite, self.options, plan, self.encoder(), self.max_length)
        if count_cases(self.suite, self.options, plan) <= _CHUNK:
            self._held[sweep] = [list(stream)]
            yield from self._held[sweep]
            return
        while chunk := list(islice(stream, _CHUNK)):
            yield chunk

    def validation(self, model: LoopedLM, run: str, horizon: int, bar: tqdm) -> list[dict[str, Any]]:
        """Return the rows of table `validation` of one endpoint."""
        context = self.spec.corpus.context
        rows = max(1, BATCH_TOKENS[model.embed.weight.device.type] // context)
        batches = self.corpus.validation(context, self.options.validation_tokens, rows)
        documents = self.corpus.documents
        losses = document_losses(model, batches, len(documents["source"]), bar.update)
        return validation_rows(run, horizon, losses, documents)

    def items(self, model: LoopedLM, run: str, horizon: int, sweep: bool, bar: tqdm) -> dict[str, np.ndarray]:
        """Return the columns of table `items` of one endpoint."""
        tables = []
        for chunk in self.chunks(sweep):
            answers = score(model, [case.sequences for case in chunk], self.corpus.pad, progress=bar.update)
            table = _item_columns(run, horizon, chunk)
            tables.append({**table, "nll": answers.nll, "tokens": answers.tokens, "greedy": answers.greedy})
        return {name: np.concatenate([table[name] for table in tables]) for name in tables[0]}


def _item_columns(run: str, horizon: int, chunk: list[Case]) -> dict[str, np.ndarray]:
    rows = [
        (
            case.setting.task,
            case.setting.shots,
            case.setting.seed,
            case.item,
            option,
            case.part,
            # A completion has a single option, which is the gold one.
            option == case.gold,
            sequence.nbytes,
            sequence.truncated,
        )
        for case in chunk
        for option, sequence in enumerate(case.sequences)
    ]
    names = ("task", "shots", "seed", "item", "option", "part", "gold", "bytes", "truncated")
    columns = {name: np.array(values) for name, values in zip(names, zip(*rows, strict=True), strict=True)}
    size = len(rows)
    return {"run": np.full(size, run), "horizon": np.full(size, horizon), **columns}


def check_run(folder: Path, study: Study, corpus: Corpus, suite: Suite) -> tuple[RunSpec, dict[str, Any]]:
    """Return a run's specification and manifest.

    Raises:
        SmeltError: run, corpus and tasks do not belong together.
    """
    manifest = read_json(folder / "manifest.json")
    spec = RunSpec.from_dict(read_json(folder / "spec.json"))
    if manifest["corpus"] != corpus.sha256:
        raise SmeltError(f"{folder}: the run was trained on another corpus than the one given; train again")
    if suite.corpus != corpus.sha256:
        raise SmeltError("the tasks were checked against another corpus than the one given; make them again")
    if suite.name != study.evaluation.suite:
        raise SmeltError(
            f"the tasks are of suite {suite.name!r}; study {study.name} has evaluation.suite = "
            f"{study.evaluation.suite!r}: make the tasks again"
        )
    return spec, manifest


def evaluate_run(study: Study, folder: Path, corpus_folder: Path, tasks_folder: Path, out: Path) -> None:
    """Write `endpoints`, `validation`, `task_scores` and `items` of a run's endpoints to `out`."""
    corpus, suite = Corpus.open(corpus_folder), open_suite(tasks_folder)
    spec, manifest = check_run(folder, study, corpus, suite)
    evaluation = Evaluation(study, spec, corpus, suite)
    run, endpoints = manifest["run"], sorted(manifest["endpoints"], key=lambda entry: entry["horizon"])
    device = "cuda" if torch.cuda.is_available() else "cpu"
    tables: dict[str, list[dict[str, Any]]] = {"endpoints": [], "validation": [], "task_scores": []}
    items = []
    with tqdm(unit="tok", unit_scale=True, disable=None, desc=run) as bar:
        for entry in endpoints:
            model = load_model(folder / entry["weights"], spec).to(device)
            horizon = entry["horizon"]
            sweep = study.evaluation.shot_horizons == "all" or entry is endpoints[-1]
            started = time.perf_counter()
            validation = evaluation.validation(model, run, horizon, bar)
            halfway, tokens = time.perf_counter(), bar.n
            columns = evaluation.items(model, run, horizon, sweep, bar)
            scores = task_scores(columns, suite.tasks)
            row = _endpoint(run, entry, validation, scores, suite)
            tables["endpoints"].append(row)
            tables["validation"] += validation
            tables["task_scores"] += scores
            items.append(columns)
            seconds = time.perf_counter() - halfway
            _say(row, halfway - started, columns, bar.n - tokens, seconds)
    for name, rows in tables.items():
        write_table(out, name, rows)
    write_columns(out, "items", {name: np.concatenate([c[name] for c in items]) for name in items[0]})


def _endpoint(
    run: str, entry: dict[str, Any], validation: list[dict], scores: list[dict], suite: Suite
) -> dict[str, Any]:
    return {
        "run": run,
        "horizon": entry["horizon"],
        "tokens": entry["tokens"],
        "flops": entry["flops"],
        "val_loss": validation_loss(validation),
        "suite": suite.name,
        **suite_scores(scores, suite.tasks, suite.mmlu, suite.complete),
        "baseline_version": suite.baseline_version,
    }


def _say(
    row: dict[str, Any], validating: float, columns: dict[str, np.ndarray], tokens: int, seconds: float
) -> None:
    def show(name: str) -> str:
        return f"{name} {row[name]:.4f}" if row[name] is not None else f"{name} not measured"

    prompts = int((columns["option"] == 0).sum())
    print(
        f"{row['run']} horizon {row['horizon']}: {show('val_loss')} ({validating:.1f} s); "
        f"suite {row['suite']} (random baselines {row['baseline_version']}): {show('core')}, "
        f"{show('completion')}, {show('mmlu')}; {prompts} prompts in {seconds:.1f} s, "
        f"{prompts / seconds:.0f} prompts/s, {tokens / seconds:.0f} tokens/s",
        file=sys.stderr,
    )
