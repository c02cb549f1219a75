"""Which stage writes which table, and where: the files that a finished study has."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator
from pathlib import Path

from smelt.errors import SmeltError

# Tables with one file a study, by the stage's folder.
OF_STUDY = {
    "budget": ("runs", "pairs", "ablation_points", "power", "published_configs"),
    "corpus": ("corpus_sources",),
    "laws": (
        "ablation_results",
        "calibration",
        "ce_gain",
        "crossovers",
        "gap_curves",
        "law_contrasts",
        "law_coverage",
        "law_draws",
        "law_fits",
        "law_notes",
        "law_profiles",
        "law_signs",
        "length_profile",
        "residuals",
        "shot_curves",
        "shot_tests",
        "tpp",
    ),
    "claims": ("claims",),
}
# Tables with one file a run.
OF_RUN = {
    "runs": ("train_log", "throughput"),
    "evaluate": ("endpoints", "validation", "task_scores", "items"),
}
# Tables with one file a run of the grid.
OF_GRID_RUN = {
    "mechanism": (
        "diagnostics",
        "routing_overlap",
        "residual_flow",
        "norm_ratios",
        "update_cosine",
        "visit_cosine",
        "token_overlap",
        "sink",
        "dyck_heads",
        "dyck_map",
        "dyck_mass",
        "interventions",
    ),
}
# Tables that the database is given from other files: the corpus's index, Snakemake's records.
DERIVED = ("corpus_lengths", "stage_costs", "provenance")
STAGES = (*OF_STUDY, *OF_RUN, *OF_GRID_RUN)


def stage_files(
    results: Path, runs: Collection[str], grid: Collection[str], stages: Iterable[str] = STAGES
) -> Iterator[Path]:
    """Yield the files of the named stages in a fixed order; the stem is the table's name.

    Args:
        runs: all runs of the study.
        grid: those of its grid.
    """
    for stage in stages:
        folder = results / stage
        for name in OF_STUDY.get(stage, ()):
            yield folder / f"{name}.parquet"
        for tables, chosen in ((OF_RUN, runs), (OF_GRID_RUN, grid)):
            for name in tables.get(stage, ()):
                yield from (folder / run / f"{name}.parquet" for run in sorted(chosen))


def require(files: Iterable[Path]) -> None:
    """Raise a SmeltError that names the first of `files` that is missing."""
    for path in files:
        if not path.is_file():
            raise SmeltError(
                f"{path} does not exist; run the same snakemake command again, which makes it anew"
            )
