"""Command line: `python -m smelt.corpus fetch|build|card`."""

from __future__ import annotations

import argparse
import sys
from pathlib import Path

from smelt.cli import run
from smelt.corpus.build import build
from smelt.corpus.card import card
from smelt.corpus.corpus import Corpus
from smelt.corpus.fetch import fetch
from smelt.corpus.pool import cores
from smelt.corpus.reference import commit_hashes, differing_sources
from smelt.corpus.sources import load_sources
from smelt.corpus.stream import build_stream
from smelt.errors import SmeltError
from smelt.study import load_study


def main() -> None:
    """Parse the arguments and run the command."""
    parser = argparse.ArgumentParser(prog="python -m smelt.corpus", description=__doc__)
    commands = parser.add_subparsers(dest="command", required=True)
    fetching = commands.add_parser("fetch", help="bring the pinned archives into the cache")
    building = commands.add_parser("build", help="make tokenizer, shards and index from the cache")
    describing = commands.add_parser("card", help="print the measured tables of the data card")
    describing.add_argument("--corpus", required=True, type=Path, help="folder of a built corpus")
    # By the name of the set: studies that share one share what is fetched.
    fetching.add_argument("--sources", required=True, help="name of a source set in config/sources")
    building.add_argument("--study", required=True, help="name of a study, or its YAML file")
    for command in (fetching, building):
        command.add_argument("--cache", required=True, type=Path, help="folder of the archives")
    building.add_argument("--out", required=True, type=Path, help="folder of the corpus")
    building.add_argument(
        "--accept",
        action="store_true",
        help="write the hashes of the texts to data/corpus.hashes.json, after a change of sources or code",
    )
    building.add_argument("--jobs", type=int, default=cores(), help="processes (default: all cores)")
    building.add_argument(
        "--share",
        type=_share,
        metavar="I/N",
        help="of a streamed set, only the I-th of N shares (from 0) and not the closing step",
    )
    args = parser.parse_args()
    if args.command == "card":
        print(card(Corpus.open(args.corpus)))
        return
    if args.command == "fetch":
        print(fetch(load_sources(args.sources), args.cache))
        return
    study = load_study(args.study)
    sources = load_sources(study.corpus.sources)
    jobs = max(1, args.jobs)
    if sources.streamed:
        corpus = build_stream(study, sources, args.cache, args.out, jobs, args.share)
        if corpus is None:
            return
    elif args.share:
        raise SmeltError(f"source set {sources.name} is not streamed; it is built without --share")
    else:
        corpus = build(study, sources, args.cache, args.out, jobs)
    manifest = corpus.manifest
    if args.accept:
        commit_hashes(sources.name, manifest["sources"])
    differing = differing_sources(sources.name, manifest["sources"])
    if differing:
        print(
            f"warning: texts of set {sources.name} differ from data/corpus.hashes.json: "
            f"{', '.join(differing)}; numbers cannot be compared with those of other corpora",
            file=sys.stderr,
        )
    tokens = ", ".join(f"{count} {split}" for split, count in manifest["splits"].items())
    print(
        f"{args.out}: tokens {tokens}; a token attends to {manifest['attended_context']:.1f} tokens "
        f"on average (the study counts with {study.corpus.attended_context:g})"
    )


def _share(text: str) -> tuple[int, int]:
    index, _, count = text.partition("/")
    if not (index.isdigit() and count.isdigit() and int(index) < int(count)):
        raise argparse.ArgumentTypeError(f"{text!r} is not I/N with 0 <= I < N")
    return int(index), int(count)


if __name__ == "__main__":
    run(main)
