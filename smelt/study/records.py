"""What the trainer leaves in a run's folder: `spec.json` and `manifest.json`, read and checked."""

from __future__ import annotations

from dataclasses import MISSING, asdict, fields
from pathlib import Path
from typing import Any

from smelt.errors import SmeltError
from smelt.files import ROOT, read_json, sha256_file
from smelt.schema import check_schema
from smelt.study.geometry import Geometry
from smelt.study.runs import RunPoint, RunSpec, find_point
from smelt.study.study import CorpusSpec, ModelSpec, Study, TrainingSpec

MANIFEST, SPEC = "manifest.json", "spec.json"
SCHEMA = ROOT / "workflow" / "schemas" / "manifest.schema.yaml"
_SECTIONS = {
    "point": RunPoint,
    "geometry": Geometry,
    "corpus": CorpusSpec,
    "model": ModelSpec,
    "training": TrainingSpec,
}


def make_anew(path: Path) -> str:
    """Return what to do about a damaged file that is made anew once the output `path` is gone."""
    return f"delete {path} and run the same snakemake command again"


def read_record(path: Path, schema: Path) -> dict[str, Any]:
    """Return a JSON record that a stage left, checked against its schema.

    Raises:
        SmeltError: the file is missing, damaged or not what the stage writes; the message says what mends it.
    """
    if not path.is_file():
        raise SmeltError(f"{path} does not exist; run the same snakemake command again")
    try:
        record = read_json(path)
        check_schema(str(path), record, schema)
    except SmeltError as error:
        raise SmeltError(f"{error}; {make_anew(path)}") from None
    return record


def read_run(folder: Path) -> tuple[RunSpec, dict[str, Any]]:
    """Return the specification of a complete run and its manifest, with the endpoints by horizon.

    Raises:
        SmeltError: a file is missing or not what the trainer writes, or the two are not of one run.
    """
    path = folder / MANIFEST
    manifest = read_record(path, SCHEMA)
    try:
        spec = _read_spec(folder / SPEC)
        _check_match(path, manifest, spec)
    except SmeltError as error:
        raise SmeltError(f"{error}; {make_anew(path)}") from None
    endpoints = sorted(manifest["endpoints"], key=lambda entry: entry["horizon"])
    return spec, {**manifest, "endpoints": endpoints}


def read_run_of(study: Study, folder: Path) -> tuple[RunSpec, dict[str, Any]]:
    """Return what `read_run` does, of a run that the study has as it is there.

    Raises:
        SmeltError: see `read_run`; or the study has another run of that name, or none.
    """
    spec, manifest = read_run(folder)
    wanted = asdict(find_point(study, spec.point.run))
    for name, value in asdict(spec.point).items():
        if value != wanted[name]:
            raise SmeltError(
                f"{folder / SPEC}: point.{name} is {value!r}; in study {study.name} it is "
                f"{wanted[name]!r}; {make_anew(folder / MANIFEST)}"
            )
    return spec, manifest


def endpoint_weights(folder: Path, manifest: dict[str, Any], horizon: int | None) -> Path:
    """Return the weights file of a run's endpoint at `horizon`, by default the last.

    Raises:
        SmeltError: the manifest has no such endpoint, or its weights are missing or damaged.
    """
    endpoints = {entry["horizon"]: entry for entry in manifest["endpoints"]}
    horizon = max(endpoints) if horizon is None else horizon
    if horizon not in endpoints:
        raise SmeltError(f"{folder} has no endpoint at horizon {horizon}; it has {sorted(endpoints)}")
    return check_weights(folder, endpoints[horizon])


def check_weights(folder: Path, entry: dict[str, Any]) -> Path:
    """Return the weights file of a manifest's endpoint.

    Raises:
        SmeltError: it is missing, or its content is not what the manifest says.
    """
    path = folder / entry["weights"]
    if not path.is_file():
        raise SmeltError(f"{path} does not exist; {make_anew(folder / MANIFEST)}")
    if sha256_file(path) != entry["sha256"]:
        raise SmeltError(
            f"{path} is damaged: its SHA-256 is not the manifest's; {make_anew(folder / MANIFEST)}"
        )
    return path


def _read_spec(path: Path) -> RunSpec:
    raw = read_json(path)
    if not isinstance(raw, dict):
        raise SmeltError(f"{path} holds a {type(raw).__name__}; it must be an object")
    for name, kind in _SECTIONS.items():
        _check_section(f"{path}: {name}", raw.get(name), kind)
    if lacking := {"lr", "spec_hash"} - raw.keys():
        raise SmeltError(f"{path} lacks {', '.join(sorted(lacking))}")
    try:
        spec = RunSpec.from_dict(raw)
        found = spec.spec_hash
    except (SmeltError, TypeError, ValueError) as error:
        raise SmeltError(f"{path} is not what training writes ({error})") from None
    if found != raw["spec_hash"]:
        raise SmeltError(f"{path}: spec_hash is {raw['spec_hash']!r}; its content has {found}")
    return spec


def _check_section(where: str, section: Any, kind: type) -> None:
    if not isinstance(section, dict):
        raise SmeltError(f"{where} is {section!r}; it must be an object")
    known = {item.name for item in fields(kind)}
    needed = {i.name for i in fields(kind) if i.default is MISSING and i.default_factory is MISSING}
    if lacking := needed - section.keys():
        raise SmeltError(f"{where} lacks {', '.join(sorted(lacking))}")
    if unknown := section.keys() - known:
        raise SmeltError(f"{where} has the unknown {', '.join(sorted(unknown))}")


def _check_match(path: Path, manifest: dict[str, Any], spec: RunSpec) -> None:
    horizons = sorted(entry["horizon"] for entry in manifest["endpoints"])
    values = (
        ("run", manifest["run"], spec.point.run),
        ("spec_hash", manifest["spec_hash"], spec.spec_hash),
        ("horizons of the endpoints", horizons, sorted(spec.training.horizons)),
    )
    for name, found, wanted in values:
        if found != wanted:
            raise SmeltError(f"{path}: {name} is {found!r}; {SPEC} beside it has {wanted!r}")
