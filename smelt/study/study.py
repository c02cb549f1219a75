"""Load and validate a study file."""

from __future__ import annotations

from dataclasses import asdict, dataclass, field, fields
from pathlib import Path
from typing import Any

import yaml

from smelt.errors import SmeltError
from smelt.files import ROOT
from smelt.schema import check_schema
from smelt.study.checks import check_finite, check_relations

SCHEMA = ROOT / "workflow" / "schemas" / "study.schema.yaml"


@dataclass(frozen=True)
class CorpusSpec:
    """Text: source set, vocabulary size, context in tokens, mean attended context in tokens."""

    sources: str
    vocab: int
    context: int
    attended_context: float
    max_epochs: float = 1.0


@dataclass(frozen=True)
class ModelSpec:
    """What both architectures share beside their sizes."""

    top_k: int
    qk_norm: bool = True
    rope_base: float = 10000.0


@dataclass(frozen=True)
class Scale:
    """The Baseline's sizes at one scale; every sparsity shares them."""

    hidden: int
    layers: int
    heads: int
    kv_heads: int
    head_dim: int
    expert_dim: int


@dataclass(frozen=True)
class LoopRecipe:
    """The looped architecture: span as a fraction of the stack, visits, order, what is narrowed.

    `configs` maps a cell to explicit sizes; cells without an entry, or all with `solve`, are matched by the
    solver.
    `align` is the multiple that the solver keeps sizes to.
    """

    span: float
    visits: int
    order: str = "block"
    narrow: str = "experts"
    align: int = 4
    solve: bool = False
    configs: dict[str, dict[str, int]] = field(default_factory=dict)


@dataclass(frozen=True)
class TrainingSpec:
    """The training protocol (section 2): steps, learning rate, optimiser, auxiliary losses.

    `batch` is sequences a step; `horizons` are the trunk steps at which a branch forks; each branch
    decays over `decay_steps`. The learning rate is `lr * (lr_hidden / H) ** lr_exponent` with `H`
    the hidden size of the scale's Baseline, so that both members of a pair use the same.
    """

    batch: int
    horizons: tuple[int, ...]
    decay_steps: int
    warmup_steps: int
    lr: float
    lr_hidden: int = 64
    lr_exponent: float = 0.0
    final_lr_fraction: float = 0.0
    beta1: float = 0.9
    beta2: float = 0.95
    weight_decay: float = 0.1
    clip_norm: float = 1.0
    balance_loss: float = 0.01
    z_loss: float = 0.0
    init_std: float = 0.02
    precision: str = "auto"
    logger: str = "none"


@dataclass(frozen=True)
class EvaluationSpec:
    """Validation tokens and in-context tasks scored at every endpoint.

    `items` is the most items of a task, `seeds` how many choices of demonstrations. The numbers of
    demonstrations in `shots` (and `long_shots`, for the tasks of figure 11c) are added to each task's own
    at the last horizon or, with `shot_horizons: all`, at every one.
    """

    suite: str
    validation_tokens: int
    items: int
    seeds: int
    folder: str | None = None
    shots: tuple[int, ...] = ()
    long_shots: tuple[int, ...] = ()
    shot_horizons: str = "last"
    tasks: tuple[str, ...] = ()
    max_length: int | None = None


@dataclass(frozen=True)
class MechanismSpec:
    """Sample sizes of the mechanism stage."""

    tokens: int
    dyck_prompts: int = 16
    draws: int = 200


@dataclass(frozen=True)
class LawsSpec:
    """Bootstrap draws and optimiser starts of the law fits."""

    draws: int
    tpp_draws: int = 200
    starts: int = 64


@dataclass(frozen=True)
class Study:
    """One validated study. `sparsities` maps S in percent to the Baseline's expert count."""

    name: str
    description: str
    seeds: int
    corpus: CorpusSpec
    model: ModelSpec
    scales: dict[str, Scale]
    sparsities: dict[int, int]
    loop: LoopRecipe
    ablations: dict[str, Any]
    training: TrainingSpec
    evaluation: EvaluationSpec
    mechanism: MechanismSpec
    laws: LawsSpec

    def to_dict(self) -> dict[str, Any]:
        """Return plain values for JSON."""
        return asdict(self)


def study_path(name: str) -> Path:
    """Return the file of the study `name`, which may also be a path to a YAML file."""
    given = name.endswith((".yaml", ".yml"))
    path = Path(name) if given else ROOT / f"config/studies/{name}.yaml"
    try:
        if path.is_file():
            return path
    except OSError as error:
        raise SmeltError(f"study {name[:80]!r} cannot be read: {error.strerror}") from None
    if given:
        raise SmeltError(f"{name} is no file; a study is a YAML file or the name of a shipped one")
    shipped = ", ".join(sorted(p.stem for p in (ROOT / "config/studies").glob("*.yaml")))
    raise SmeltError(f"there is no study {name!r}; shipped studies: {shipped}")


def load_study(name: str | Path) -> Study:
    """Load the study called `name`, or stored in the YAML file `name`.

    Raises:
        SmeltError: naming the file, the field, the value and what is allowed.
    """
    path = study_path(str(name))
    try:
        raw = yaml.load(path.read_text(encoding="utf-8"), Loader=_Loader)
    except (yaml.YAMLError, ValueError, RecursionError) as error:  # bad text, a bad date, endless nesting
        raise SmeltError(f"{path}: not valid YAML: {' '.join(str(error).split())}") from None
    check_schema(str(path), raw, SCHEMA)
    check_finite(str(path), raw)
    if raw["name"] != path.stem:
        raise SmeltError(f"{path}: name is {raw['name']!r}; it must equal the file's name, {path.stem!r}")
    try:
        study = _build(raw)
        check_relations(study)
    except SmeltError as error:
        raise SmeltError(f"{path}: {error}") from None
    return study


class _Loader(getattr(yaml, "CSafeLoader", yaml.SafeLoader)):
    """YAML whose mappings may not name a key twice: the second would silently win."""

    def construct_mapping(self, node: yaml.MappingNode, deep: bool = False) -> dict[Any, Any]:
        seen = set()
        for key, _ in node.value:
            if not isinstance(key, yaml.ScalarNode) or key.tag == "tag:yaml.org,2002:merge":
                continue
            value = self.construct_object(key)  # 5 and 05 are one key
            if value in seen:
                raise yaml.YAMLError(f"{key.value!r} is set twice, line {key.start_mark.line + 1}")
            seen.add(value)
        return super().construct_mapping(node, deep)


def _section(kind: type[Any], raw: dict[str, Any]) -> Any:
    """Build a section; lists become tuples and whole numbers floats where the field is one.

    So `1` and `1.0` are the same study and have the same specification hash.
    """
    floats = {item.name for item in fields(kind) if item.type == "float"}
    values = {key: tuple(value) if isinstance(value, list) else value for key, value in raw.items()}
    return kind(**{key: float(value) if key in floats else value for key, value in values.items()})


def _build(raw: dict[str, Any]) -> Study:
    return Study(
        name=raw["name"],
        description=raw.get("description", ""),
        seeds=raw.get("seeds", 1),
        corpus=_section(CorpusSpec, raw["corpus"]),
        model=_section(ModelSpec, raw["model"]),
        scales={str(name): _section(Scale, sizes) for name, sizes in raw["scales"].items()},
        sparsities={int(name): experts for name, experts in raw["sparsities"].items()},
        loop=_section(LoopRecipe, raw["loop"]),
        ablations=raw.get("ablations", {}),
        training=_section(TrainingSpec, raw["training"]),
        evaluation=_section(EvaluationSpec, raw["evaluation"]),
        mechanism=_section(MechanismSpec, raw["mechanism"]),
        laws=_section(LawsSpec, raw["laws"]),
    )
