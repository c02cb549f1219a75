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
FOLDER = ROOT / "config" / "sources"
SCHEMA = ROOT / "workflow" / "schemas" / "sources.schema.yaml"


@dataclass(frozen=True)
class Source:
    """One named source.

    Attributes:
        kind: how documents are made: a key of `smelt.corpus.extract.EXTRACTORS` for members of
            archives, or of `smelt.corpus.generators.GENERATORS` for own generators.
        packages: locked packages whose archives are read; empty for a generator.
        include, exclude: shell patterns of member names (`*` matches `/` too).
        cap_mb: the source stops at so many megabytes (10^6 bytes) of UTF-8.
        min_bytes, max_bytes: shorter and longer documents are dropped.
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
    note: str = ""

    @property
    def cap(self) -> int:
        """The cap in bytes."""
        return round(self.cap_mb * 1e6)


@dataclass(frozen=True)
class SourceSet:
    """A validated source set.

    Attributes:
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
    from smelt.corpus.extract import EXTRACTORS
    from smelt.corpus.generators import GENERATORS

    sources = []
    for entry in raw["sources"]:
        source = Source(**{k: tuple(v) if isinstance(v, list) else v for k, v in entry.items()})
        if source.kind not in EXTRACTORS and source.kind not in GENERATORS:
            known = ", ".join(sorted({*EXTRACTORS, *GENERATORS}))
            raise SmeltError(f"{path}: source {source.name}: kind is {source.kind!r}; allowed: {known}")
        if bool(source.packages) != (source.kind in EXTRACTORS):
            raise SmeltError(
                f"{path}: source {source.name}: an extracted source names its packages, a generator none"
            )
        if any(source.name == other.name for other in sources):
            raise SmeltError(f"{path}: source {source.name} occurs twice")
        sources.append(source)
    return SourceSet(**{**raw, "sources": tuple(sources)})
