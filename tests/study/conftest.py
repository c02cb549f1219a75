"""Study files made from the smoke study with one change."""

from __future__ import annotations

import copy
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import yaml

from smelt.files import ROOT

SMOKE = yaml.safe_load((ROOT / "config/studies/smoke.yaml").read_text(encoding="utf-8"))


def changed(path: str, value: Any, base: dict[str, Any] = SMOKE) -> dict[str, Any]:
    """Return a copy of `base` whose field at the dotted `path` is `value`; a value of None deletes it."""
    raw = copy.deepcopy(base)
    *parents, last = [int(part) if part.isdigit() else part for part in path.split(".")]
    target = raw
    for part in parents:
        target = target.setdefault(part, {})
    if value is None:
        del target[last]
    else:
        target[last] = value
    return raw


@pytest.fixture
def write(tmp_path: Path) -> Callable[[Any], Path]:
    """Return a function that writes a study file and returns its path."""

    def write_study(raw: Any) -> Path:
        path = tmp_path / "smoke.yaml"
        path.write_text(raw if isinstance(raw, str) else yaml.safe_dump(raw), encoding="utf-8")
        return path

    return write_study
