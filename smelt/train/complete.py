"""What a complete run leaves, in two copies: its manifest and its tables.

Snakemake deletes the outputs of a job before it starts it again, and it starts training again when the corpus
was made again, even one of equal content. The copy in `complete/` tells then that nothing is left to train.
"""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import Any

from smelt.errors import SmeltError
from smelt.files import atomic_path, read_json, sha256_file, write_json
from smelt.results.parquet import read_arrow
from smelt.results.stages import OF_RUN
from smelt.study import RunSpec
from smelt.study.records import MANIFEST

COPY = "complete"
TABLES = OF_RUN["runs"]
_FILES = (*(f"{name}.parquet" for name in TABLES), MANIFEST)  # the manifest last: with it a folder is whole


def write_manifest(out: Path, spec: RunSpec, corpus: Any, endpoints: list[dict[str, Any]]) -> None:
    """Write `manifest.json` to a run's folder, where the tables are, and keep a copy of it and of them."""
    write_json(out / MANIFEST, _manifest(spec, corpus, endpoints), sealed=True)
    _copy(out, out / COPY)


def is_complete(out: Path, spec: RunSpec, corpus: Any) -> bool:
    """Whether the run in `out` is this one, trained on this corpus, to its end.

    Manifest and tables are brought back from their copy where they are missing or damaged; a manifest that
    does not fit is removed.
    """
    if _is_whole(out, out, spec, corpus):
        return True
    (out / MANIFEST).unlink(missing_ok=True)
    if not _is_whole(out, out / COPY, spec, corpus):
        return False
    _copy(out / COPY, out)
    return True


def _copy(source: Path, target: Path) -> None:
    (target / MANIFEST).unlink(missing_ok=True)
    for name in _FILES:
        with atomic_path(target / name) as temporary:
            shutil.copyfile(source / name, temporary)


def _is_whole(out: Path, folder: Path, spec: RunSpec, corpus: Any) -> bool:
    """Whether `folder` has a fitting manifest and both tables, and `out` the endpoints."""
    try:
        manifest = read_json(folder / MANIFEST)
        endpoints = {entry["weights"]: entry["sha256"] for entry in manifest["endpoints"]}
        if manifest != _manifest(spec, corpus, manifest["endpoints"]):
            return False
        for name in TABLES:
            read_arrow(folder / f"{name}.parquet")
        return all(sha256_file(out / name) == digest for name, digest in endpoints.items())
    except (SmeltError, FileNotFoundError, KeyError, TypeError):
        return False


def _manifest(spec: RunSpec, corpus: Any, endpoints: list[dict[str, Any]]) -> dict[str, Any]:
    return {
        "run": spec.point.run,
        "spec_hash": spec.spec_hash,
        "corpus": corpus.sha256,
        "endpoints": endpoints,
    }
