"""The lock, pyproject.toml and environment.yml name the same versions."""

import re
import tomllib

import yaml

from smelt.files import ROOT


def pins(lines):
    found = {}
    for line in lines:
        match = re.fullmatch(r"([A-Za-z0-9._-]+)==([^\s;]+)(?:\s*;.*)?", line.strip())
        assert match, f"not an exact pin: {line!r}"
        found[re.sub(r"[-_.]+", "-", match.group(1)).lower()] = match.group(2)
    return found


def lock():
    text = (ROOT / "requirements.lock").read_text()
    return pins(line for line in text.splitlines() if line and not line.startswith("#"))


def test_pyproject_pins_equal_the_lock():
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    direct = pins([*project["dependencies"], *project["optional-dependencies"]["dev"]])
    assert direct.items() <= lock().items()


def test_environment_installs_the_lock():
    environment = yaml.safe_load((ROOT / "environment.yml").read_text())
    nested = [entry for entry in environment["dependencies"] if isinstance(entry, dict)]
    assert pins(nested[0]["pip"]) == lock()


def test_no_local_build_is_locked():
    assert not [name for name, version in lock().items() if "+" in version]


def test_python_versions_agree():
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    environment = yaml.safe_load((ROOT / "environment.yml").read_text())
    python = next(entry for entry in environment["dependencies"] if str(entry).startswith("python="))
    minimum = re.fullmatch(r">=3\.(\d+)", project["requires-python"]).group(1)
    assert int(python.split("=3.")[1]) >= int(minimum)
