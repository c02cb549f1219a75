"""A copy of the project in a temporary folder, and the real snakemake in it."""

import os
import shutil
import subprocess
import sys
from dataclasses import dataclass, field
from pathlib import Path

import pytest

from smelt.files import ROOT

# Below the project's root; what is not listed here may hold the same names.
LEFT_OUT = {".git", ".venv", ".snakemake", "results", "data/cache"}


def left_out(folder: str, names: list[str]) -> set[str]:
    below = Path(folder).relative_to(ROOT)
    return {name for name in names if (below / name).as_posix() in LEFT_OUT or name == "__pycache__"}


@dataclass
class Project:
    """A working copy; `snakemake` runs there and shares this checkout's download cache."""

    folder: Path
    environment: dict = field(default_factory=dict)

    def command(self, *arguments: str) -> list[str]:
        return [sys.executable, "-m", "snakemake", *arguments]

    def environ(self) -> dict[str, str]:
        return {**os.environ, "OMP_NUM_THREADS": "1", **self.environment}

    def snakemake(self, *arguments: str, study: str = "smoke", **config: str) -> subprocess.CompletedProcess:
        settings = [f"{key}={value}" for key, value in {"study": study, **config}.items()]
        return subprocess.run(
            self.command("--cores", "2", *arguments, "--config", *settings),
            cwd=self.folder,
            env=self.environ(),
            capture_output=True,
            text=True,
            timeout=1500,
        )

    def summary(self, study: str = "smoke") -> list[dict[str, str]]:
        """Return Snakemake's own summary, one row an output file."""
        result = subprocess.run(
            self.command("--summary", "--config", f"study={study}"),
            cwd=self.folder,
            env=self.environ(),
            capture_output=True,
            text=True,
        )
        assert result.returncode == 0, result.stdout + result.stderr
        header, *lines = (line.split("\t") for line in result.stdout.splitlines() if "\t" in line)
        return [dict(zip(header, line, strict=False)) for line in lines]

    def planned(self, study: str = "smoke") -> set[str]:
        """Return the jobs that are due, as `rule` or `rule:wildcard`."""
        due = [row for row in self.summary(study) if row["plan"] == "update pending"]
        return {_job(row["rule"], row["output_file"]) for row in due}

    def listed_outputs(self) -> set[str]:
        """Return every file that a rule lists as an output."""
        return {row["output_file"] for row in self.summary()}


def _job(rule: str, file: str) -> str:
    path = Path(file)
    if rule == "notebook":
        return f"{rule}:{path.stem}"
    return f"{rule}:{path.parent.name}" if rule.endswith("_run") else rule


def copy_project(folder: Path) -> Project:
    shutil.copytree(ROOT, folder, ignore=left_out, symlinks=True)
    cache = ROOT / "data" / "cache"
    cache.mkdir(parents=True, exist_ok=True)
    (folder / "data" / "cache").symlink_to(cache)
    return Project(folder)


@pytest.fixture(scope="session")
def smoke(tmp_path_factory) -> Project:
    """The smoke study, run to the end by the real snakemake; read-only for the tests."""
    project = copy_project(tmp_path_factory.mktemp("smoke") / "project")
    result = project.snakemake()
    assert result.returncode == 0, result.stdout[-4000:] + result.stderr[-8000:]
    return project


@pytest.fixture
def edited(smoke, tmp_path) -> Project:
    """A private copy of the finished smoke study, to edit and to dry-run in."""
    folder = tmp_path / "project"
    # Times of change are what Snakemake compares, so they are kept.
    subprocess.run(["cp", "-a", str(smoke.folder), str(folder)], check=True)
    return Project(folder)
