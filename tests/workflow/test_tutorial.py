"""docs/tutorial.md, followed to the letter: a recipe of one's own from the copied study to its report."""

import re
import shlex
import subprocess
import sys

import duckdb
import pytest
import yaml

from smelt.files import ROOT
from smelt.study import load_study, run_points
from tests.pages import commands, steps
from tests.workflow.conftest import Project, copy_project
from tests.workflow.test_reruns import AFTER_LAWS, notebooks
from tests.workflow.test_smoke import Links

pytestmark = pytest.mark.workflow

PAGE = (ROOT / "docs/tutorial.md").read_text()
RECIPE, NUMBER = steps(PAGE)
COPY, PLAN, LOOK, RUN, QUERY, AGAIN = commands(PAGE)
STUDY = "config/studies/mine.yaml"
LOOPED = {f"xs-s{sparsity}-smelt{seed}" for sparsity in (75, 85) for seed in ("", "-seed1")}


def shell(project, command):
    """Run a command of the page, `snakemake` and `python` being those of the tests; return what it prints."""
    words = shlex.split(command)
    if words[0] == "snakemake":
        words = project.command(*words[1:])
    elif words[0] == "python":
        words[0] = sys.executable
    done = subprocess.run(
        words, cwd=project.folder, env=project.environ(), capture_output=True, text=True, timeout=1500
    )
    assert done.returncode == 0, done.stdout[-4000:] + done.stderr[-8000:]
    return done.stdout


def edit(project, change):
    path = project.folder / STUDY
    study = yaml.safe_load(path.read_text())
    change(study)
    path.write_text(yaml.safe_dump(study, sort_keys=False))


@pytest.fixture(scope="module")
def begun(tmp_path_factory):
    """The page's first two sections."""
    project = copy_project(tmp_path_factory.mktemp("tutorial") / "project")
    shell(project, COPY)
    RECIPE.apply(project.folder)
    return project


def test_the_page_changes_the_copy_in_name_and_loop_alone(begun):
    before, after = (yaml.safe_load((begun.folder / name).read_text()) for name in shlex.split(COPY)[1:])
    assert after["name"] == "mine"
    assert {key for key in before if before[key] != after[key]} == {"name", "loop"}
    assert (after["loop"]["visits"], after["loop"]["order"]) == (3, "layer")


def test_the_plan_holds_every_budget(begun):
    text = shell(begun, PLAN)
    for run in run_points(load_study(begun.folder / STUDY)):
        (row,) = re.findall(rf"^{run} +\d+ +6 +(\d+) ", text, re.M)
        assert row == ("12" if "smelt" in run else "6")
    assert re.search(r"^grid .* 0 of 4$", text, re.M)


def test_a_dry_run_lists_every_run(begun):
    found = re.findall(r"^(\w+) +(\d+)$", shell(begun, LOOK), re.M)
    jobs = {rule: int(count) for rule, count in found}
    assert jobs["train_run"] == jobs["evaluate_run"] == jobs["mechanism_run"] == 8
    assert jobs["notebook"] == 9 and jobs["site"] == 1


@pytest.fixture(scope="module")
def finished(begun):
    """The page's study run to its end, with so few steps and items that nothing can be learnt."""

    def shorten(study):
        study["training"] |= {"batch": 2, "horizons": [2, 4], "decay_steps": 2, "warmup_steps": 1}
        study["evaluation"] |= {"validation_tokens": 1024, "items": 2, "seeds": 1, "shots": [0]}
        study["mechanism"] |= {"tokens": 512, "dyck_prompts": 2, "draws": 8}
        study["laws"] |= {"draws": 8}

    edit(begun, shorten)
    shell(begun, RUN)
    return begun


def test_the_report_is_whole(finished):
    report = finished.folder / "results/mine/report"
    pages = {path: Links() for path in report.rglob("*.html")}
    assert len(pages) == 10
    for path, page in pages.items():
        page.feed(path.read_text(encoding="utf-8"))
        inside = [target for target in page.targets if not target.startswith(("data:", "https:", "#"))]
        targets = [target.partition("#")[0] for target in inside]
        assert all((path.parent / target).is_file() for target in targets), path
    index = (report / "index.html").read_text()
    assert "50% of the layers, visited 3 times, layer order" in index


def test_the_ledger_says_what_such_a_study_cannot(finished):
    with duckdb.connect(str(finished.folder / "results/mine/results.duckdb"), read_only=True) as database:
        claims = dict(database.execute("SELECT claim, verdict FROM claims").fetchall())
        low, freedom = database.execute(
            "SELECT min(low), max(freedom) FROM law_contrasts WHERE starts_with(contrast, 'loss_gap:')"
        ).fetchone()
        visits = database.execute("SELECT DISTINCT visit FROM norm_ratios ORDER BY visit").fetchall()
    assert len(claims) == 22
    for number in (2, 3, 4, 5, 6, 7, 12):
        assert claims[f"C{number}"] == "not measured", number
    for number in (1, 16, 17, 18, 20):
        assert claims[f"C{number}"] != "not measured", number
    # Two cells of two seeds: a seed that moves both alike leaves one degree of freedom of the two.
    assert low is not None and freedom in (1, 2)
    assert visits == [(1,), (2,)]


def test_the_numbers_are_where_the_page_says(finished):
    assert shell(finished, QUERY).count("baseline") == 4


def changed(finished, tmp_path, change):
    folder = tmp_path / "project"
    subprocess.run(["cp", "-a", str(finished.folder), str(folder)], check=True)
    project = Project(folder)
    change(project)
    return project, project.planned("mine")


def runs_of(jobs, rule):
    return {job.split(":")[1] for job in jobs if job.startswith(f"{rule}:")}


def test_another_number_of_visits_trains_the_looped_runs_alone(finished, tmp_path):
    project, jobs = changed(finished, tmp_path, lambda project: NUMBER.apply(project.folder))
    stages = {f"{rule}:{run}" for rule in ("train_run", "evaluate_run", "mechanism_run") for run in LOOPED}
    assert jobs == stages | {"budget_tables"} | AFTER_LAWS | notebooks(project)
    assert re.search(r"^train_run +4$", shell(project, AGAIN), re.M)


@pytest.mark.parametrize(
    ("change", "trained", "evaluated"),
    [
        (
            lambda study: study["sparsities"].update({90: 96}),
            {f"xs-s90-{arch}{seed}" for arch in ("baseline", "smelt") for seed in ("", "-seed1")},
            None,
        ),
        (
            lambda study: study.update(seeds=3),
            {f"xs-s{s}-{arch}-seed2" for s in (75, 85) for arch in ("baseline", "smelt")},
            None,
        ),
        (lambda study: study["evaluation"].update(items=3), set(), 8),
        (lambda study: study["laws"].update(draws=9), set(), 0),
    ],
    ids=["sparsity", "seed", "items", "draws"],
)
def test_the_table_of_changes_holds(finished, tmp_path, change, trained, evaluated):
    _, jobs = changed(finished, tmp_path, lambda project: edit(project, change))
    assert runs_of(jobs, "train_run") == runs_of(jobs, "mechanism_run") == trained
    assert len(runs_of(jobs, "evaluate_run")) == (len(trained) if evaluated is None else evaluated)
    assert jobs >= AFTER_LAWS and "corpus_build" not in jobs
