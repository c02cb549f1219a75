"""Source sets: which texts a corpus is made of (`config/sources/<set>.yaml`)."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

import jsonschema
import yaml

from smelt.errors import SmeltError
from smelt.files import ROOT

CATEGORIES = ("Code", "Math/STEM", "Knowledge", "Finance", "Web")
STREAM = "stream"
FOLDER = ROOT / "config" / "sources"
SCHEMA = ROOT / "workflow" / "schemas" / "sources.schema.yaml"


@dataclass(frozen=True)
class Source:
    """One named source.

    Attributes:
        kind: how documents are made: a key of `smelt.corpus.extract.EXTRACTORS` for members of
            archives, of `smelt.corpus.generators.GENERATORS` for own generators, or `stream` for a
            public data set.
        packages: locked packages whose archives are read; empty for a generator.
        include, exclude: shell patterns of member names (`*` matches `/` too).
        cap_mb: the source stops at so many megabytes (10^6 bytes) of UTF-8.
        min_bytes, max_bytes: shorter and longer documents are dropped.
        dataset, subset, split, column: of a public data set: its name on the hub or a folder, the
            configuration, the split and the column with the text.
        revision: branch, tag or commit of the data set.
        share: weight of a public data set among the tokens of the corpus.
    """

    name: str
    category: str
    licence: str
    kind: str
    packages: tuple[str, ...] = ()
    include: tuple[str, ...] = ("*",)
    exclude: tuple[str, ...] = ()
    cap_mb: float = 4.0
    min_bytes: int = 200
    max_bytes: int = 400_000
    dataset: str = ""
    subset: str | None = None
    split: str = "train"
    column: str = "text"
    revision: str = "main"
    share: float = 0.0

    @property
    def cap(self) -> int:
        """The cap in bytes."""
        return round(self.cap_mb * 1e6)


@dataclass(frozen=True)
class SourceSet:
    """A validated source set.

    Attributes:
        parts: into how many parts the work on a streamed set is cut.
        tokenizer_bytes: how much training text the tokenizer is trained on.
        validation_fraction: share of the documents that is held out.
        decay_fraction: share of the training text that only the decay branches see.
    """

    name: str
    description: str
    tokenizer_bytes: int
    validation_fraction: float
    decay_fraction: float
    sources: tuple[Source, ...]
    parts: int = 1

    @property
    def streamed(self) -> bool:
        """Whether the set consists of public data sets that are streamed."""
        return self.sources[0].kind == STREAM

    @property
    def packages(self) -> tuple[str, ...]:
        """Names of all locked packages that are read, sorted."""
        return tuple(sorted({package for source in self.sources for package in source.packages}))


def load_sources(name: str, folder: Path = FOLDER) -> SourceSet:
    """Load the source set `name`.

    Raises:
        SmeltError: the file is missing, not valid, or names a source twice.
    """
    path = folder / f"{name}.yaml"
    if not path.is_file():
        known = ", ".join(sorted(p.stem for p in folder.glob("*.yaml")))
        raise SmeltError(f"there is no source set {name!r} (corpus.sources); there are: {known}")
    try:
        raw = yaml.safe_load(path.read_text(encoding="utf-8"))
    except (yaml.YAMLError, UnicodeDecodeError) as error:
        raise SmeltError(f"{path}: not valid YAML: {' '.join(str(error).split())}") from None
    schema = yaml.safe_load(SCHEMA.read_text(encoding="utf-8"))
    error = jsonschema.exceptions.best_match(jsonschema.Draft202012Validator(schema).iter_errors(raw))
    if error is not None:
        where = ".".join(str(part) for part in error.absolute_path) or "the source set"
        raise SmeltError(f"{path}: {where}: {error.message}")
    return _build(path, raw)


def _build(path: Path, raw: dict[str, Any]) -> SourceSet:
    sources: list[Source] = []
    for entry in raw["sources"]:
        source = Source(**{k: tuple(v) if isinstance(v, list) else v for k, v in entry.items()})
        mistake = _mistake(source)
        if any(source.name == other.name for other in sources):
            mistake = "the name occurs twice"
        if mistake:
            raise SmeltError(f"{path}: source {source.name}: {mistake}")
        sources.append(source)
    if len({source.kind == STREAM for source in sources}) > 1:
        raise SmeltError(f"{path}: a set is either streamed as a whole or not at all")
    for category in CATEGORIES:
        if category not in {source.category for source in sources}:
            raise SmeltError(f"{path}: there is no source of category {category}")
    return SourceSet(**{**raw, "sources": tuple(sources)})


def _mistake(source: Source) -> str:
    """Return what is wrong with a source, or nothing."""
    from smelt.corpus.extract import EXTRACTORS
    from smelt.corpus.generators import GENERATORS

    if source.kind == STREAM:
        return "" if source.dataset and source.share > 0 else "a streamed source needs dataset and share"
    if source.dataset:
        return f"kind is {source.kind!r}; a source with a dataset has kind 'stream'"
    if source.kind in EXTRACTORS:
        return "" if source.packages else "an extracted source names its packages"
    if source.kind in GENERATORS:
        return "a generator reads no packages" if source.packages else ""
    return f"kind is {source.kind!r}; allowed: {', '.join(sorted({STREAM, *EXTRACTORS, *GENERATORS}))}"
