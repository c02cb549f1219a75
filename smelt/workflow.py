"""What the workflow needs beside its rules: fingerprints, the lock of a study, the progress line."""

from __future__ import annotations

import ast
import contextlib
import fcntl
import functools
import hashlib
import os
import sys
import threading
import time
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

from smelt.budget import flops_per_token, resolve_point
from smelt.cli import JOB_VARIABLE
from smelt.errors import SmeltError
from smelt.files import ROOT, read_json, sha256_json
from smelt.schema import check_schema
from smelt.study import RunPoint, Study

_SKEW = 60.0  # seconds that clocks of machines may differ by


def check_config(config: Mapping[str, Any]) -> None:
    """Raise a SmeltError where the workflow's configuration has a wrong field."""
    check_schema("the workflow's configuration", dict(config), ROOT / "workflow/schemas/config.schema.yaml")


def check_folder(folder: Path | str) -> None:
    """Raise a SmeltError where a file is in the place of a results folder or of one above it."""
    folder = Path(folder)
    for place in (folder, *folder.parents):
        if place.exists() and not place.is_dir():
            raise SmeltError(f"{place} is a file; results need a folder there")


def check_sources(study: Study) -> None:
    """Raise a SmeltError where the study names a source set that is not there."""
    folder = ROOT / "config" / "sources"
    if not (folder / f"{study.corpus.sources}.yaml").is_file():
        sets = ", ".join(sorted(path.stem for path in folder.glob("*.yaml")))
        raise SmeltError(f"corpus.sources is {study.corpus.sources!r}; it must be one of {sets}")


def redate(*places: Path | str) -> None:
    """Set times of change that lie in the future to now, of the files in `places` and below, with a warning.

    A wrong clock has left them. Until that time has come Snakemake would refuse whatever is made of such a
    file, as older than its input.
    """
    now, count, first = time.time(), 0, ""
    for path in _files(places):
        with contextlib.suppress(OSError):
            if os.stat(path).st_mtime > now + _SKEW:
                os.utime(path, (now, now))
                first, count = first or path, count + 1
    if count:
        print(
            f"warning: {count} files were dated in the future (the first is {first}); they are dated now",
            file=sys.stderr,
        )


def _files(places: Iterable[Path | str]) -> Iterator[str]:
    for place in places:
        if os.path.isfile(place):
            yield str(place)
        for folder, folders, names in os.walk(place):
            folders.sort()
            yield from (os.path.join(folder, name) for name in sorted(names))


def use_own_interpreter() -> None:
    """Let jobs run the interpreter and the code of this workflow, whatever is activated or installed."""
    os.environ["PATH"] = os.path.dirname(sys.executable) + os.pathsep + os.environ["PATH"]
    os.environ["PYTHONPATH"] = str(ROOT)
    os.environ[JOB_VARIABLE] = "1"


def settings_hash(study: Study, section: str) -> str:
    """Return a short hash of one section of the study, or of `all` of it."""
    values = study.to_dict() if section == "all" else asdict(getattr(study, section))
    return sha256_json(values)[:16]


@functools.cache
def code_fingerprint(*patterns: str) -> str:
    """Return a short hash of the code below `smelt/` that `patterns` name, blind to comments and docstrings.

    A pattern is a folder (all its modules) or a glob of modules.
    """
    files = set()
    for pattern in patterns:
        folder = ROOT / "smelt" / pattern
        files.update(folder.rglob("*.py") if folder.is_dir() else (ROOT / "smelt").glob(f"{pattern}.py"))
    digest = hashlib.sha256()
    for path in sorted(files):
        digest.update(path.relative_to(ROOT).as_posix().encode())
        digest.update(_meaning(path).encode())
    return digest.hexdigest()[:16]


def _meaning(path: Path) -> str:
    tree = ast.parse(path.read_text(encoding="utf-8"))
    for node in ast.walk(tree):
        if isinstance(node, ast.Module | ast.ClassDef | ast.FunctionDef) and ast.get_docstring(
            node, clean=False
        ):
            node.body = node.body[1:]
    return ast.dump(tree)


class StudyLock:
    """At most one workflow at a time writes a study's results; a killed one leaves no lock behind."""

    def __init__(self, results: Path | str) -> None:
        self.path = Path(results) / ".lock"
        self._descriptor: int | None = None

    def acquire(self) -> None:
        """Take the lock until the process ends.

        Raises:
            SmeltError: another process holds it, or the results folder cannot be written.
        """
        try:
            self.path.parent.mkdir(parents=True, exist_ok=True)
            self._descriptor = os.open(self.path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o644)
        except OSError as error:
            raise SmeltError(f"{self.path.parent} cannot be written: {error.strerror}") from None
        try:
            fcntl.flock(self._descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            raise SmeltError(
                f"another snakemake is working on {self.path.parent}; wait for it or name another folder"
            ) from None


class ProgressLine(threading.Thread):
    """Prints the share of planned training compute that is done and the time that is left."""

    def __init__(
        self, study: Study, points: Sequence[RunPoint], results: Path | str, seconds: float = 20
    ) -> None:
        super().__init__(daemon=True)
        self.folder = Path(results) / "runs"
        self.seconds = seconds
        self.work = {point.run: _work(study, point) for point in points}

    def share(self) -> tuple[float, int]:
        """Return the share of training FLOPs done, in [0, 1], and the number of finished runs."""
        done, finished = 0.0, 0
        for run, work in self.work.items():
            if (self.folder / run / "manifest.json").exists():
                done, finished = done + work, finished + 1
            else:
                done += work * self._fraction(run)
        return done / sum(self.work.values()), finished

    def _fraction(self, run: str) -> float:
        path = self.folder / run / "progress.json"
        if not path.exists():
            return 0.0
        try:
            return min(1.0, float(read_json(path)["fraction"]))
        except (SmeltError, KeyError, TypeError, ValueError):
            return 0.0  # being written just now

    def run(self) -> None:
        """Print a line every `seconds` while training goes on."""
        begin, (first, _) = time.monotonic(), self.share()
        last = first
        while last < 1:
            time.sleep(self.seconds)
            share, finished = self.share()
            if share > last:
                left = (time.monotonic() - begin) / (share - first) * (1 - share)
                print(
                    f"training: {share:.0%} done, {finished} of {len(self.work)} runs finished, "
                    f"about {_duration(left)} left",
                    file=sys.stderr,
                    flush=True,
                )
            last = share


def _work(study: Study, point: RunPoint) -> float:
    spec = resolve_point(study, point)
    training = spec.training
    steps = training.horizons[-1] + len(training.horizons) * training.decay_steps
    return steps * flops_per_token(spec.geometry, spec.corpus.attended_context)


def _duration(seconds: float) -> str:
    minutes = round(seconds / 60)
    if minutes < 1:
        return f"{round(seconds)} s"
    return f"{minutes} min" if minutes < 120 else f"{minutes / 60:.1f} h"
