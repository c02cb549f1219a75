"""A change reruns what depends on it and nothing else (dry runs over a finished smoke study)."""

import pytest
import yaml

from smelt.budget import resolve_run
from smelt.study import load_study

pytestmark = pytest.mark.workflow

SITE = {"site"}
AFTER_LAWS = {"laws_fit", "claims", "database"} | SITE


def notebooks(project):
    return {f"notebook:{path.stem}" for path in (project.folder / "notebooks").glob("*.ipynb")}


def append(project, name, text):
    path = project.folder / name
    path.write_text(path.read_text() + text)


def edit_study(project, edit):
    path = project.folder / "config/studies/smoke.yaml"
    study = yaml.safe_load(path.read_text())
    edit(study)
    path.write_text(yaml.safe_dump(study, sort_keys=False))


def test_nothing_changed_nothing_runs(smoke):
    assert smoke.planned() == set()


def test_notebook_edit_renders_that_notebook(edited):
    path = sorted((edited.folder / "notebooks").glob("*.ipynb"))[0]
    path.write_text(path.read_text() + "\n")
    assert edited.planned() == {f"notebook:{path.stem}"} | SITE


def test_figure_code_renders_the_report_only(edited):
    append(edited, "smelt/report/figures/__init__.py", "\nANOTHER = 1\n")
    assert edited.planned() == notebooks(edited) | SITE


@pytest.mark.parametrize(
    "name", ["smelt/train/__main__.py", "smelt/model/__init__.py", "smelt/evaluate/__main__.py"]
)
def test_comment_runs_nothing(edited, name):
    append(edited, name, "\n# A remark.\n")
    assert edited.planned() == set()


def test_touched_code_runs_nothing(edited):
    (edited.folder / "smelt/evaluate/__main__.py").touch()
    (edited.folder / "config/studies/smoke.yaml").touch()
    assert edited.planned() == set()


def test_evaluation_setting_evaluates_again_without_training(edited):
    edit_study(edited, lambda study: study["evaluation"].update(items=8))
    jobs = edited.planned()
    assert not any(job.startswith(("train_run", "mechanism_run", "corpus")) for job in jobs)
    assert sum(job.startswith("evaluate_run") for job in jobs) == 13


def test_other_sizes_of_one_run_train_that_run_alone(edited):
    run = "xs-s95-smelt"
    matched = resolve_run(load_study("smoke"), run).geometry
    names = ("hidden", "heads", "kv_heads", "head_dim", "experts", "expert_dim")
    sizes = {name: getattr(matched, name) for name in names} | {"experts": matched.experts + 1}
    edit_study(edited, lambda study: study["loop"].update(configs={"xs-s95": sizes}))
    expected = {f"{rule}:{run}" for rule in ("train_run", "evaluate_run", "mechanism_run")}
    assert edited.planned() == expected | {"budget_tables"} | AFTER_LAWS | notebooks(edited)


def test_another_study_of_the_same_sources_reruns_nothing(edited):
    text = (edited.folder / "config/studies/smoke.yaml").read_text()
    (edited.folder / "config/studies/other.yaml").write_text(text.replace("name: smoke", "name: other"))
    result = edited.snakemake("data/cache/small.json", "--forcerun", "corpus_fetch", study="other")
    assert result.returncode == 0, result.stdout + result.stderr
    assert edited.planned() == set()


def test_added_cell_trains_that_cell_alone(edited):
    edit_study(edited, lambda study: study["sparsities"].update({97: 336}))
    trained = {job for job in edited.planned() if job.startswith("train_run")}
    assert trained == {
        f"train_run:{scale}-s97-{arch}" for scale in ("xs", "s") for arch in ("baseline", "smelt")
    }


def test_deleted_output_is_rebuilt_with_what_follows(edited):
    (edited.folder / "results/smoke/evaluate/s-s85-smelt/validation.parquet").unlink()
    assert edited.planned() == {"evaluate_run:s-s85-smelt"} | AFTER_LAWS | notebooks(edited)


def test_deleted_manifest_trains_again_and_nothing_else_trains(edited):
    (edited.folder / "results/smoke/runs/s-s85-smelt/manifest.json").unlink()
    assert {job for job in edited.planned() if "train_run" in job} == {"train_run:s-s85-smelt"}
