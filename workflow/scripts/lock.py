"""Renew requirements.lock and environment.yml from the exact pins of pyproject.toml (`make lock`)."""

from __future__ import annotations

import subprocess
import sys
import tempfile
import tomllib
import venv
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]

LOCK_HEAD = """\
# Every package of a fresh environment, made by `make lock` from the pins in pyproject.toml.
# torch pins its own CUDA packages; where a CPU build is at hand pip takes that one.
"""

ENVIRONMENT_HEAD = """\
# For conda users: the versions of requirements.lock, made by `make lock`.
name: smelt
channels:
  - conda-forge
  - nodefaults
dependencies:
  - python=3.11
  - pip
  - pip:
"""


def direct_pins() -> list[str]:
    """Return the project's own requirements, development included."""
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    return [*project["dependencies"], *project["optional-dependencies"]["dev"]]


def resolve(pins: list[str]) -> list[str]:
    """Install `pins` into an empty environment and return all that came along, as exact pins."""
    with tempfile.TemporaryDirectory() as folder:
        venv.create(folder, with_pip=True)
        python = str(Path(folder, "bin", "python"))
        subprocess.run([python, "-m", "pip", "install", "--quiet", *pins], check=True)
        frozen = subprocess.run(
            [python, "-m", "pip", "freeze"], check=True, capture_output=True, text=True
        ).stdout
    # CUDA packages belong to torch's own pins: a lock with them would burden machines without a GPU.
    lines = [line.split("+")[0] for line in frozen.splitlines()]
    return [line for line in lines if not line.startswith(("nvidia-", "cuda-", "triton=="))]


def main() -> None:
    """Write both files."""
    lock = resolve(direct_pins())
    (ROOT / "requirements.lock").write_text(LOCK_HEAD + "\n".join(lock) + "\n")
    entries = "".join(f"      - {line}\n" for line in lock)
    (ROOT / "environment.yml").write_text(ENVIRONMENT_HEAD + entries)


if __name__ == "__main__":
    sys.exit(main())
