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
from smelt.evaluate.plan import VALIDATION, Case, cases, count_cases, extents, settings
from smelt.evaluate.scores import suite_scores, task_scores
from smelt.evaluate.scoring import BATCH_TOKENS, Progress, computes_in_half, score
from smelt.evaluate.sequences import Encoder
from smelt.evaluate.suite import Suite, open_suite
from smelt.evaluate.validation import document_losses, validation_loss, validation_rows
from smelt.model import LoopedLM, load_model
from smelt.results.parquet import read_rows, write_columns, write_table
from smelt.study import RunSpec, Study
from smelt.study.records import MANIFEST, check_weights, make_anew, read_run_of

# Cases that are built and scored together; similar lengths are batched within them.
_CHUNK = 8192


class Evaluation:
    """What the endpoints of a run share: corpus, suite and prompts."""

    def __init__(self, study: Study, spec: RunSpec, corpus: Corpus, suite: Suite) -> None:
        self.spec, self.corpus, self.suite, self.options = spec, corpus, suite, study.evaluation
        self.max_length = study.evaluation.max_length or spec.corpus.context
        self._held: dict[str, list[list[Case]]] = {}

    def _half(self, model: LoopedLM) -> bool:
        return computes_in_half(self.spec, model.embed.weight.device.type)

    def encoder(self) -> Encoder:
        """Return a fresh encoder; its cache lives as long as one pass over the cases."""
        return Encoder.of_corpus(self.corpus.tokenizer, self.corpus.bos)

    def prompts(self, extent: str) -> int:
        """Return how many cases an endpoint has."""
        return count_cases(self.suite, self.options, settings(self.suite, self.options, extent))

    def chunks(self, extent: str) -> Iterator[list[Case]]:
        """Yield the cases of an endpoint in chunks; a single chunk is kept for the next endpoint."""
        if extent in self._held:
            yield from self._held[extent]
            return
        plan = settings(self.suite, self.options, extent)
        stream = cases(self.suite, self.options, plan, self.encoder(), self.max_length)
        if self.prompts(extent) <= _CHUNK:
            self._held[extent] = [list(stream)]
            yield from self._held[extent]
            return
        while chunk := list(islice(stream, _CHUNK)):
            yield chunk

    def validation(self, model: LoopedLM, run: str, horizon: int, progress: Progress) -> list[dict[str, Any]]:
        """Return the rows of table `validation` of one endpoint."""
        context = self.spec.corpus.context
        rows = max(1, BATCH_TOKENS[model.embed.weight.device.type] // context)
        batches = self.corpus.validation(context, self.options.validation_tokens, rows)
        documents = self.corpus.held_out
        losses = document_losses(model, batches, len(documents["source"]), self._half(model), progress)
        return validation_rows(run, horizon, losses, documents)

    def items(
        self, model: LoopedLM, run: str, horizon: int, extent: str, progress: Progress
    ) -> dict[str, np.ndarray]:
        """Return the columns of table `items` of one endpoint."""
        tables = []
        for chunk in self.chunks(extent):
            answers = score(
                model,
                [case.sequences for case in chunk],
                self.corpus.pad,
                half=self._half(model),
                progress=progress,
            )
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
    # Texts as objects: arrays of fixed-width text would hold every name in full in every row.
    kinds = {"task": object, "shots": np.int64, "seed": np.int64, "item": np.int64, "option": np.int64}
    kinds |= {"part": object, "gold": bool, "bytes": np.int64, "truncated": bool}
    columns = {
        name: np.array(values, kind)
        for (name, kind), values in zip(kinds.items(), zip(*rows, strict=True), strict=True)
    }
    size = len(rows)
    return {"run": np.full(size, run, object), "horizon": np.full(size, horizon), **columns}


def check_run(folder: Path, study: Study, corpus: Corpus, suite: Suite) -> tuple[RunSpec, dict[str, Any]]:
    """Return a run's specification and manifest.

    Raises:
        SmeltError: run, corpus and tasks do not belong together.
    """
    spec, manifest = read_run_of(study, folder)
    if manifest["corpus"] != corpus.sha256:
        raise SmeltError(
            f"{folder}: the run was trained on another corpus than {corpus.folder}; "
            f"{make_anew(folder / MANIFEST)}"
        )
    if suite.corpus != corpus.sha256:
        raise SmeltError(
            f"{suite.file}: the tasks were checked against another corpus than {corpus.folder}; "
            f"{make_anew(suite.file)}"
        )
    if suite.name != study.evaluation.suite:
        raise SmeltError(
            f"{suite.file}: the tasks are of suite {suite.name!r}; study {study.name} has "
            f"evaluation.suite = {study.evaluation.suite!r}; {make_anew(suite.file)}"
        )
    return spec, manifest


class _Progress:
    """Counts tokens and moves a progress bar of prompts, which a terminal shows."""

    def __init__(self, prompts: int, label: str) -> None:
        self.tokens = 0
        self.bar = tqdm(total=prompts, unit="prompt", disable=None, desc=label)

    def __call__(self, prompts: int, tokens: int) -> None:
        self.tokens += tokens
        self.bar.update(prompts)


def evaluate_run(study: Study, folder: Path, corpus_folder: Path, tasks_folder: Path, out: Path) -> None:
    """Write `endpoints`, `validation`, `task_scores` and `items` of a run's endpoints to `out`."""
    corpus, suite = Corpus.open(corpus_folder), open_suite(tasks_folder)
    spec, manifest = check_run(folder, study, corpus, suite)
    evaluation = Evaluation(study, spec, corpus, suite)
    run, endpoints = manifest["run"], manifest["endpoints"]
    device = "cuda" if torch.cuda.is_available() else "cpu"
    tables: dict[str, list[dict[str, Any]]] = {"endpoints": [], "validation": [], "task_scores": []}
    items = []
    planned = extents(spec.point.group == "grid", len(endpoints), study.evaluation)
    progress = _Progress(sum(evaluation.prompts(extent) for extent in planned), run)
    for entry, extent in zip(endpoints, planned, strict=True):
        model = load_model(check_weights(folder, entry), spec).to(device)
        started = time.perf_counter()
        validation = evaluation.validation(model, run, entry["horizon"], progress)
        middle, tokens = time.perf_counter(), progress.tokens
        scores: list[dict[str, Any]] = []
        if extent != VALIDATION:
            items.append(evaluation.items(model, run, entry["horizon"], extent, progress))
            scores = task_scores(items[-1], suite.tasks)
        row = _endpoint(run, entry, validation, scores, suite)
        tables["endpoints"].append(row)
        tables["validation"] += validation
        tables["task_scores"] += scores
        prompts, seconds = evaluation.prompts(extent), time.perf_counter() - middle
        print(_summary(row, middle - started, prompts, progress.tokens - tokens, seconds), file=sys.stderr)
    for name, rows in tables.items():
        write_table(out, name, rows)
    write_columns(out, "items", {name: np.concatenate([c[name] for c in items]) for name in items[0]})
    print(_cost(folder, run), file=sys.stderr)


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


def _summary(row: dict[str, Any], validating: float, prompts: int, tokens: int, seconds: float) -> str:
    text = f"{row['run']} horizon {row['horizon']}: val_loss {row['val_loss']:.4f} in {validating:.1f} s"
    if not prompts:
        return text
    scores = ", ".join(
        f"{name} {row[name]:.4f}" if row[name] is not None else f"{name} not measured"
        for name in ("core", "completion", "mmlu")
    )
    return (
        f"{text}; suite {row['suite']} with random baselines {row['baseline_version']}: {scores}; {prompts} "
        f"prompts in {seconds:.1f} s, {prompts / seconds:.0f} prompts/s, {tokens / seconds:.0f} tokens/s"
    )


def _cost(folder: Path, run: str) -> str:
    """Return what the evaluation took in processor time, as a share of the run's training."""
    used = time.process_time()
    training = sum(row["seconds"] for row in read_rows(folder / "throughput.parquet"))
    return (
        f"{run}: evaluation took {used:.1f} s of processor time, {used / training:.0%} of its training's time"
    )
