"""Command line: look inside one trained run at the endpoint of its last horizon."""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import Any

import torch

from smelt import cli, devices
from smelt.corpus import Corpus
from smelt.errors import SmeltError
from smelt.mechanism.capture import Capture, Rows, category_index, merge, sample
from smelt.mechanism.dyck import dyck_tables
from smelt.mechanism.prompts import build_prompts
from smelt.model import LoopedLM, load_model
from smelt.results.parquet import write_table
from smelt.study import RunSpec, Study, load_study
from smelt.study.records import MANIFEST, check_weights, make_anew, read_run_of

# Prompts that choose the Dyck head, and those that show it.
CHOOSE, SHOW = 1, 2


def parse(arguments: list[str] | None = None) -> argparse.Namespace:
    """Read the command line."""
    parser = argparse.ArgumentParser(prog="python -m smelt.mechanism", description=__doc__)
    parser.add_argument("--study", required=True, help="name of a shipped study, or a YAML file")
    parser.add_argument("--run", required=True, type=Path, help="folder of the trained run")
    parser.add_argument("--corpus", required=True, type=Path, help="folder of the built corpus")
    parser.add_argument("--out", required=True, type=Path, help="folder of the tables")
    return parser.parse_args(arguments)


def last_endpoint(study: Study, folder: Path) -> tuple[RunSpec, dict[str, Any]]:
    """Return a run's specification and the manifest entry of its last horizon's endpoint, checked.

    Raises:
        SmeltError: a file is missing or damaged, or the weights are not those of the manifest.
    """
    spec, manifest = read_run_of(study, folder)
    endpoint = manifest["endpoints"][-1]
    check_weights(folder, endpoint)
    return spec, {**endpoint, "corpus": manifest["corpus"]}


def analyse(study: Study, spec: RunSpec, model: LoopedLM, corpus: Corpus) -> tuple[Rows, Capture]:
    """Return the rows of all tables of one run, and the capture that made them."""
    settings, device = study.mechanism, model.embed.weight.device
    categories, _ = category_index(corpus.documents)
    mixed = _mixed(spec, device)
    capture = Capture(model, categories, settings.draws, mixed)
    for batch in sample(corpus, spec.corpus.context, settings.tokens, device):
        capture.add(batch)
    parts = [capture.tables(spec.point.run)]
    if model.config.geometry.looped:
        parts.append(_dyck(study, spec, model, corpus, mixed))
    return merge(parts), capture


def _dyck(study: Study, spec: RunSpec, model: LoopedLM, corpus: Corpus, mixed: bool) -> Rows:
    """Return the Dyck tables; none, with a printed reason, where the prompts do not fit the context."""
    settings, context = study.mechanism, spec.corpus.context
    try:
        prompts = [
            build_prompts(corpus.tokenizer, corpus.bos, context, settings.dyck_prompts, seed)
            for seed in (CHOOSE, SHOW)
        ]
    except SmeltError as error:
        print(f"{spec.point.run}: no Dyck head, because {error}")
        return {}
    return dyck_tables(spec.point.run, model, *prompts, settings.draws, mixed)


def _mixed(spec: RunSpec, device: torch.device) -> bool:
    """Return whether the run trains in mixed precision on such a device."""
    return spec.training.precision == "bf16" or (spec.training.precision == "auto" and device.type == "cuda")


def main() -> None:
    """Analyse one run and write its tables."""
    arguments = parse()
    study = load_study(arguments.study)
    spec, endpoint = last_endpoint(study, arguments.run)
    corpus = Corpus.open(arguments.corpus)
    if endpoint["corpus"] != corpus.sha256:
        raise SmeltError(
            f"{arguments.run} was trained on another corpus than {arguments.corpus}; "
            f"{make_anew(arguments.run / MANIFEST)}"
        )
    with devices.lease():
        device = torch.device("cuda" if torch.cuda.is_available() else "cpu")
        model = load_model(arguments.run / endpoint["weights"], spec).to(device)
        tables, capture = analyse(study, spec, model, corpus)
    for name, rows in tables.items():
        write_table(arguments.out, name, rows)
    print(f"{spec.point.run}, horizon {endpoint['horizon']}: {capture.cost}")


if __name__ == "__main__":
    cli.run(main)
