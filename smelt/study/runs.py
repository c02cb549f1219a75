"""The runs of a study: which there are, what they are called, and what fully specifies one."""

from __future__ import annotations

import re
from dataclasses import asdict, dataclass, replace
from typing import Any

from smelt.errors import SmeltError
from smelt.files import sha256_json
from smelt.study.geometry import Geometry
from smelt.study.study import CorpusSpec, ModelSpec, Study, TrainingSpec

# Part of every run's specification: raise it when a change of the trainer or the model changes results.
TRAINING_CODE = 1


@dataclass(frozen=True)
class RunPoint:
    """One run before its sizes are matched.

    Attributes:
        run: identifier, unique in the study.
        group: `grid`, `span`, `depth`, `loops` or `control`.
        arch: `baseline` (unlooped), `smelt` (the study's recipe), `looped` (another recipe) or
            `control` (unlooped, with the expert geometry of the cell's SMELT run).
        layers: physical depth.
        loop_length, loop_count: span in layers and visits; 0 and 1 when unlooped.
        baseline: identifier of the run whose budgets it must equal; None for a grid Baseline.
    """

    run: str
    group: str
    scale: str
    sparsity: int
    arch: str
    seed: int
    layers: int
    loop_length: int
    loop_count: int
    baseline: str | None

    @property
    def cell(self) -> str:
        """The cell (scale x sparsity) the run belongs to."""
        return f"{self.scale}-s{self.sparsity}"


@dataclass(frozen=True)
class AblationPoint:
    """A row of tables 3-5: `ablation` is `span`, `depth` or `loops`; the run may be a grid run."""

    ablation: str
    sparsity: int
    arch: str
    value: int
    run: str


@dataclass(frozen=True)
class RunSpec:
    """Everything that determines a trained run, and nothing else."""

    point: RunPoint
    geometry: Geometry
    corpus: CorpusSpec
    model: ModelSpec
    training: TrainingSpec
    lr: float

    def to_dict(self) -> dict[str, Any]:
        """Return plain values for `spec.json`."""
        return {**asdict(self), "spec_hash": self.spec_hash, "code": TRAINING_CODE}

    @classmethod
    def from_dict(cls, raw: dict[str, Any]) -> RunSpec:
        """Rebuild a specification from the content of `spec.json`."""
        training = dict(raw["training"], horizons=tuple(raw["training"]["horizons"]))
        return cls(
            point=RunPoint(**raw["point"]),
            geometry=Geometry(**raw["geometry"]),
            corpus=CorpusSpec(**raw["corpus"]),
            model=ModelSpec(**raw["model"]),
            training=TrainingSpec(**training),
            lr=raw["lr"],
        )

    @property
    def spec_hash(self) -> str:
        """SHA-256 of what changes the trained weights; labels of the run are not part of it."""
        corpus = asdict(self.corpus)
        training = asdict(self.training)
        del training["logger"]
        return sha256_json(
            {
                "code": TRAINING_CODE,
                "seed": self.point.seed,
                "geometry": asdict(self.geometry),
                "corpus": corpus,
                "model": asdict(self.model),
                "training": training,
                "lr": self.lr,
            }
        )


def learning_rate(study: Study, scale: str) -> float:
    """Return the peak learning rate of a scale; the width is the Baseline's for both members of a pair."""
    training = study.training
    return training.lr * (training.lr_hidden / study.scales[scale].hidden) ** training.lr_exponent


def run_points(study: Study, seeds: int | None = None) -> dict[str, RunPoint]:
    """Return the study's runs by identifier, grid first, for `seeds` (default: the study's own) seeds.

    Ablations and controls have no more seeds than `ablations.seeds` where the study sets it.
    """
    points: dict[str, RunPoint] = {}
    seeds = seeds or study.seeds
    for seed in range(seeds):
        ablated = seed < study.ablations.get("seeds", seeds)
        for point in [*_grid(study), *(_ablation_runs(study) if ablated else ())]:
            suffix = f"-seed{seed}" if seed else ""
            baseline = point.baseline and point.baseline + suffix
            point = replace(point, run=point.run + suffix, seed=seed, baseline=baseline)
            points[point.run] = point
    return points


def find_point(study: Study, run: str) -> RunPoint:
    """Return the run called `run`, of any seed; raise SmeltError where the study has none of that name."""
    match = re.search(r"-seed(\d{1,4})$", run)
    points = run_points(study, seeds=int(match.group(1)) + 1 if match else 1)
    if run not in points:
        raise SmeltError(f"study {study.name} has no run {run!r}; it has {', '.join(points)}")
    return points[run]


def span_layers(study: Study, layers: int) -> int:
    """Return the recipe's span in layers for a stack of `layers`."""
    return round(study.loop.span * layers)


def _grid(study: Study) -> list[RunPoint]:
    points = []
    for scale, sizes in study.scales.items():
        for sparsity in study.sparsities:
            base = f"{scale}-s{sparsity}-baseline"
            common = {
                "group": "grid",
                "scale": scale,
                "sparsity": sparsity,
                "seed": 0,
                "layers": sizes.layers,
            }
            points.append(
                RunPoint(base, arch="baseline", loop_length=0, loop_count=1, baseline=None, **common)
            )
            points.append(
                RunPoint(
                    f"{scale}-s{sparsity}-smelt",
                    arch="smelt",
                    loop_length=span_layers(study, sizes.layers),
                    loop_count=study.loop.visits,
                    baseline=base,
                    **common,
                )
            )
    return points


def _ablation_runs(study: Study) -> list[RunPoint]:
    """Return the ablation runs that are not grid runs (tables 3-5 and the two referee controls)."""
    runs = {}
    for row in ablation_points(study):
        if row.run not in runs and not row.run.endswith(("-baseline", "-smelt")):
            runs[row.run] = _ablation_run(study, row)
    for sparsity in study.ablations.get("control", {}).get("sparsities", []):
        row = AblationPoint(
            "control", sparsity, "control", 0, f"{study.ablations['scale']}-s{sparsity}-control"
        )
        runs[row.run] = _ablation_run(study, row)
    return list(runs.values())


def _ablation_run(study: Study, row: AblationPoint) -> RunPoint:
    scale = study.ablations["scale"]
    layers, length, count = study.scales[scale].layers, 0, 1
    if row.ablation == "span":
        length, count = row.value, study.loop.visits
    elif row.ablation == "loops":
        length, count = span_layers(study, layers), row.value
    elif row.ablation == "depth":
        layers = row.value
        if row.arch == "looped":
            # The paper's looped depths all keep the span at half the physical stack (table 4).
            length, count = span_layers(study, layers), study.loop.visits
    return RunPoint(
        run=row.run,
        group=row.ablation,
        scale=scale,
        sparsity=row.sparsity,
        arch=row.arch,
        seed=0,
        layers=layers,
        loop_length=length,
        loop_count=count,
        baseline=f"{scale}-s{row.sparsity}-baseline",
    )


def ablation_points(study: Study) -> list[AblationPoint]:
    """Return the rows of tables 3-5 for the first seed; a row that the grid has too names the grid run."""
    ablations = study.ablations
    if not ablations:
        return []
    scale = ablations["scale"]
    depth = study.scales[scale].layers
    half = span_layers(study, depth)
    rows = []

    def add(ablation: str, sparsity: int, arch: str, value: int, suffix: str) -> None:
        rows.append(AblationPoint(ablation, sparsity, arch, value, f"{scale}-s{sparsity}-{suffix}"))

    for sparsity in ablations.get("span", {}).get("sparsities", []):
        for length in ablations["span"]["layers"]:
            suffix = {0: "baseline", half: "smelt"}.get(length, f"span{length}")
            add("span", sparsity, "looped" if length else "baseline", length, suffix)
    if "depth" in ablations:
        sparsity = ablations["depth"]["sparsity"]
        for layers in ablations["depth"]["baseline"]:
            add("depth", sparsity, "baseline", layers, "baseline" if layers == depth else f"flat{layers}")
        for layers in ablations["depth"]["looped"]:
            add("depth", sparsity, "looped", layers, "smelt" if layers == depth else f"depth{layers}")
    if "loops" in ablations:
        sparsity = ablations["loops"]["sparsity"]
        for count in ablations["loops"]["visits"]:
            suffix = {1: "baseline", study.loop.visits: "smelt"}.get(count, f"loops{count}")
            add("loops", sparsity, "looped" if count > 1 else "baseline", count, suffix)
    return rows
