"""The examples of CONTRIBUTING.md, followed to the letter in a copy of the project."""

import os
import re
import subprocess
import sys
import zipfile

import numpy as np
import pytest

from smelt.evaluate.items import check_item, read_items
from smelt.evaluate.registry import COMPLETION, Task
from smelt.files import ROOT, read_json
from smelt.results.build import build_database
from smelt.results.parquet import read_rows
from smelt.study import load_study
from tests.laws.conftest import FLOPS, SPARSITY, TOKENS, Lab
from tests.pages import steps
from tests.report.synthetic import Synthetic
from tests.workflow.conftest import Project, copy_project

PAGE = (ROOT / "CONTRIBUTING.md").read_text()
STEPS = steps(PAGE)


class Copy:
    """A copy of the project with all examples in it."""

    def __init__(self, folder):
        self.folder = copy_project(folder).folder
        for step in STEPS:
            step.apply(self.folder)

    def python(self, *arguments):
        environment = {**os.environ, "PYTHONPATH": str(self.folder), "OMP_NUM_THREADS": "1"}
        done = subprocess.run(
            [sys.executable, *arguments], cwd=self.folder, env=environment, capture_output=True, text=True
        )
        assert done.returncode == 0, done.stdout + done.stderr
        return done.stdout


@pytest.fixture(scope="module")
def copy(tmp_path_factory):
    return Copy(tmp_path_factory.mktemp("contributing") / "project")


def test_each_example_takes_at_most_two_files():
    sections = re.findall(r"^## (An? \w+)\n(.*?)(?=^## |\Z)", PAGE, re.M | re.S)
    assert [title for title, _ in sections] == ["A figure", "A task", "A source", "A law"]
    for title, text in sections:
        assert len({step.path for step in steps(text)}) == 2, title


def test_the_code_is_in_the_style_of_the_project(copy):
    files = sorted({step.path for step in STEPS if step.path.endswith(".py")})
    copy.python("-m", "ruff", "check", *files)
    copy.python("-m", "ruff", "format", "--check", *files)


def test_the_figure_is_in_the_report(copy, tmp_path):
    study = load_study("smoke")
    folder = Synthetic(study, tmp_path / "smoke", sources=6).write()
    database = folder / "results.duckdb"
    build_database(study, folder, database)
    page = copy.python(
        "-c",
        "import nbformat\n"
        "from smelt.report.book import open_report\n"
        "from smelt.report.contents import SECTIONS\n"
        "from smelt.report.notebook import _add_cells\n"
        "notebook = nbformat.read('notebooks/03_training_curves.ipynb', as_version=4)\n"
        "_add_cells(notebook, '03_training_curves')\n"
        "print(notebook.cells[-1].source)\n"
        f"report = open_report('smoke', {str(database)!r}, {str(folder)!r})\n"
        "print(report.figure('figP9').html)",
    )
    assert page.startswith('report.figure("figP9")\n')
    assert "Figure P9 (ours). Speed of training." in page and "8 runs, trunk and branches alike." in page
    drawn = (folder / "figures" / "figP9.csv").read_text().splitlines()
    assert drawn[0] == "run,arch,tokens_per_s" and len(drawn) == 9
    assert (folder / "figures" / "figP9.png").read_bytes().startswith(b"\x89PNG")
    copy.python("-m", "pytest", "-q", "-p", "no:cacheprovider", "tests/report/test_contents.py")


@pytest.mark.workflow
def test_the_workflow_knows_the_figure(copy):
    assert "results/smoke/report/files/figP9.png" in Project(copy.folder).listed_outputs()


@pytest.fixture(scope="module")
def corpus(tmp_path_factory):
    """A corpus of generated text, and a study of it that evaluates the new task alone."""
    from smelt.corpus.build import build
    from tests.evaluate.conftest import SOURCES

    folder = tmp_path_factory.mktemp("corpus")
    text = (ROOT / "config/studies/smoke.yaml").read_text().replace("name: smoke", "name: alone")
    (folder / "alone.yaml").write_text(
        text.replace("vocab: 1024", "vocab: 480")
        .replace("context: 128", "context: 96")
        .replace("max_epochs: 4", "max_epochs: 100")
        .replace("suite: local\n", "suite: local\n  tasks: [local_backwards]\n")
    )
    (folder / "lock").write_text("")
    study = load_study(folder / "alone.yaml")
    build(study, SOURCES, folder, folder / "corpus", 1, lock=folder / "lock")
    return folder


def test_the_task_is_generated_and_its_items_are_right(copy, corpus):
    copy.python(
        *("-m", "smelt.evaluate", "tasks", "--study", str(corpus / "alone.yaml")),
        *("--corpus", str(corpus / "corpus"), "--out", str(corpus / "tasks")),
    )
    manifest = read_json(corpus / "tasks" / "tasks.json")
    assert list(manifest["tasks"]) == ["local_backwards"]
    task = Task(**{name: manifest["tasks"]["local_backwards"][name] for name in Task.__dataclass_fields__})
    assert task.kind == COMPLETION and task.shots == 2
    items = read_items(corpus / "tasks" / task.file, task)
    assert len(items) >= 64
    for item in items:
        check_item(item, task, task.name)
        letters = item["context"].removesuffix(" backwards:").split()
        assert item["continuation"].split() == letters[::-1] and len(set(letters)) == 4


def test_the_source_is_extracted(copy, tmp_path):
    wheel = tmp_path / "fluids.whl"
    with zipfile.ZipFile(wheel, "w") as archive:
        for number in range(3):
            text = (
                f"# About pipe {number}.\nx = 1\n\ndef f():\n    # Long enough to be a document of its own.\n"
            )
            archive.writestr(f"fluids/part{number}.py", text)
        archive.writestr("fluids/notes.txt", "# Not a program.")
    printed = copy.python(
        "-c",
        "from pathlib import Path\n"
        "from smelt.corpus.documents import read_source\n"
        "from smelt.corpus.fetch import locked_packages\n"
        "from smelt.corpus.sources import load_sources\n"
        "sources = load_sources('small')\n"
        "locked_packages(sources)\n"
        "(source,) = [s for s in sources.sources if s.name == 'py-comments']\n"
        f"print(*sorted(read_source(source, [Path({str(wheel)!r})]).texts), sep='|')",
    )
    documents = printed.strip().split("|")
    assert documents == [f"About pipe {n}.\nLong enough to be a document of its own." for n in range(3)]


def test_the_law_is_fitted(copy, tmp_path):
    lab = Lab(tmp_path / "results", "tiny")
    lab.write()
    study = ROOT / "tests/laws/studies/tiny.yaml"
    copy.python(
        *("-m", "smelt.laws", "--study", str(study), "--results", str(lab.folder)),
        *("--out", str(tmp_path / "laws")),
    )
    rows = {row["contrast"]: row for row in read_rows(tmp_path / "laws" / "law_contrasts.parquet")}
    for arch in ("baseline", "smelt"):
        ends = [
            (FLOPS["AB"[scale]] * list(TOKENS.values())[i], lab.loss(f"{name}-s{s}-{arch}", horizon))
            for scale, name in enumerate(lab.study.scales)
            for s in SPARSITY
            if s in lab.study.sparsities
            for i, horizon in enumerate(lab.study.training.horizons)
        ]
        compute, loss = np.log(np.array(ends)).T
        row = rows[f"compute_slope:{arch}"]
        assert row["value"] == pytest.approx(np.polyfit(compute, loss, 1)[0])
        assert row["low"] < row["value"] < row["high"] < 0 and row["n"] == len(ends)
    notes = {row["analysis"]: row for row in read_rows(tmp_path / "laws" / "law_notes.parquet")}
    assert notes["compute_slope"]["ok"]
