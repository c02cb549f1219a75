"""Fetch the pinned archives of a source set: the only code of the project that uses the network."""

from __future__ import annotations

import re
import subprocess
import sys
import tempfile
from dataclasses import dataclass
from pathlib import Path

from smelt.corpus.public import pin_revisions
from smelt.corpus.sources import SourceSet
from smelt.errors import SmeltError
from smelt.files import ROOT, sha256_file, write_json

LOCK = ROOT / "data" / "corpus.lock"
# One platform for every host, so that the same files are read everywhere.
_TARGET = (
    *("--no-deps", "--require-hashes", "--only-binary", ":all:"),
    *("--platform", "manylinux_2_28_x86_64", "--python-version", "3.11"),
    *("--implementation", "cp", "--abi", "cp311", "--abi", "abi3", "--abi", "none"),
)
_LINE = re.compile(
    r"(?P<name>[a-z0-9][a-z0-9-]*)==(?P<version>\S+) --hash=sha256:(?P<sha>[0-9a-f]{64})"
    r"  # (?P<file>\S+\.whl)"
)


@dataclass(frozen=True)
class Locked:
    """One pinned archive: package, version, file name and SHA-256 of the file."""

    name: str
    version: str
    file: str
    sha256: str


def load_lock(path: Path = LOCK) -> dict[str, Locked]:
    """Read the lock: lines `name==version --hash=sha256:...  # file name`; `#` starts a comment line."""
    locked: dict[str, Locked] = {}
    for number, line in enumerate(path.read_text(encoding="utf-8").splitlines(), 1):
        if not line.strip() or line.startswith("#"):
            continue
        match = _LINE.fullmatch(line.rstrip())
        if match is None:
            raise SmeltError(
                f"{path}, line {number}: {line!r} is not 'name==version --hash=sha256:...  # file'"
            )
        if match["name"] in locked:
            raise SmeltError(f"{path}, line {number}: {match['name']} is locked twice")
        locked[match["name"]] = Locked(match["name"], match["version"], match["file"], match["sha"])
    return locked


def locked_packages(sources: SourceSet, lock: Path = LOCK) -> list[Locked]:
    """Return the locked archives of a set by package name; a package without a lock is an error."""
    locked = load_lock(lock)
    missing = [name for name in sources.packages if name not in locked]
    if missing:
        raise SmeltError(f"source set {sources.name} reads {missing[0]}, which {lock} does not lock")
    return [locked[name] for name in sources.packages]


def check_archive(cache: Path, package: Locked) -> Path:
    """Return the cached archive of `package`; raise SmeltError if it is absent or has another hash."""
    path = cache / package.file
    if not path.is_file():
        raise SmeltError(f"{path} does not exist; run `python -m smelt.corpus fetch` first")
    found = sha256_file(path)
    if found != package.sha256:
        raise SmeltError(
            f"{path} has SHA-256 {found[:12]}..., the lock says {package.sha256[:12]}...; "
            "delete the file and fetch it again"
        )
    return path


def fetch(sources: SourceSet, cache: Path, lock: Path = LOCK) -> Path:
    """Bring every archive of `sources` into `cache` and write the stamp `<cache>/<set>.json`.

    Of a streamed set only the revisions of its data sets are written; the build streams their text.
    Nothing is asked from the network if the cache is complete. pip refuses a file whose hash is not
    the locked one, and every file is hashed again here.

    Raises:
        SmeltError: an archive cannot be fetched, or a cached one has another hash.
    """
    cache.mkdir(parents=True, exist_ok=True)
    path = cache / f"{sources.name}.json"
    if sources.streamed:
        write_json(path, {"set": sources.name, "revisions": pin_revisions(sources)})
        return path
    packages = locked_packages(sources, lock)
    missing = [package for package in packages if not (cache / package.file).exists()]
    if missing:
        print(f"fetching {len(missing)} of {len(packages)} archives", file=sys.stderr)
        _download(missing, cache)
    stamp = {"set": sources.name, "archives": {}}
    for package in packages:
        check_archive(cache, package)
        stamp["archives"][package.file] = package.sha256
    write_json(path, stamp)
    return path


def _download(packages: list[Locked], cache: Path) -> None:
    lines = [f"{p.name}=={p.version} --hash=sha256:{p.sha256}\n" for p in packages]
    with tempfile.TemporaryDirectory(dir=cache) as folder:
        requirements = Path(folder) / "requirements.txt"
        requirements.write_text("".join(lines), encoding="utf-8")
        command = [
            sys.executable,
            "-m",
            "pip",
            "download",
            *_TARGET,
            "--quiet",
            "--disable-pip-version-check",
        ]
        result = subprocess.run(
            [*command, "--dest", folder, "-r", str(requirements)],
            capture_output=True,
            text=True,
            errors="replace",
        )
        # What arrived is kept, so that a second attempt only asks for the rest.
        for package in packages:
            arrived = Path(folder) / package.file
            if arrived.is_file() and sha256_file(arrived) == package.sha256:
                arrived.replace(cache / package.file)
    absent = [p.file for p in packages if not (cache / p.file).exists()]
    if absent:
        errors = [line for line in result.stderr.splitlines() if line.startswith("ERROR")]
        reason = errors[-1].removeprefix("ERROR: ") if errors else "pip gave no reason"
        raise SmeltError(
            f"{len(absent)} of {len(packages)} archives could not be fetched into {cache} "
            f"(the first is {absent[0]}): {reason}"
        )
