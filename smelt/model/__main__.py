"""Use a trained run elsewhere: `python -m smelt.model {export,generate} --study S --run ID`."""

from __future__ import annotations

import argparse
from pathlib import Path

from smelt import cli
from smelt.corpus import Corpus
from smelt.files import ROOT
from smelt.model.config import ModelConfig
from smelt.model.export import export_model
from smelt.model.generate import generate
from smelt.model.weights import load_model, read_weights
from smelt.study import load_study
from smelt.study.records import endpoint_weights, read_run


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="python -m smelt.model", description=__doc__)
    commands = parser.add_subparsers(dest="command", required=True)
    export = commands.add_parser("export", help="write weights, configuration and tokenizer to a folder")
    text = commands.add_parser("generate", help="continue a text greedily")
    for command in (export, text):
        command.add_argument("--study", required=True, help="name of a shipped study or a YAML file")
        command.add_argument("--run", required=True, help="identifier of a trained run of the study")
        command.add_argument("--horizon", type=int, help="trunk step of the fork (default: the last)")
        command.add_argument("--results", type=Path, help="folder of results (default: results/STUDY)")
    export.add_argument("--out", type=Path, required=True, help="folder to write")
    text.add_argument("--prompt", required=True, help="text to continue")
    text.add_argument("--tokens", type=int, default=64, help="most tokens to add (default: 64)")
    return parser


def main() -> None:
    """Run the command."""
    args = _parser().parse_args()
    results = args.results or ROOT / "results" / load_study(args.study).name
    run = results / "runs" / args.run
    spec, manifest = read_run(run)
    weights = endpoint_weights(run, manifest, args.horizon)
    corpus = Corpus.open(results / "corpus")
    if args.command == "export":
        config = ModelConfig.from_spec(spec)
        tokenizer = corpus.folder / "tokenizer.json"
        export_model(args.out, config, read_weights(weights, config), spec.corpus.context, tokenizer)
        print(f"wrote {args.out} ({'looped' if config.geometry.looped else 'Qwen3-MoE'} layout)")
        return
    ids = [corpus.bos, *corpus.tokenizer.encode(args.prompt).ids]
    added = generate(load_model(weights, spec), [ids], args.tokens, stop=corpus.bos)[0]
    print(corpus.tokenizer.decode([*ids, *added]))


if __name__ == "__main__":
    cli.run(main)
