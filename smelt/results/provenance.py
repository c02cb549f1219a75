"""Where a result comes from: software, hardware, seeds, and the hashes of what was run.

Two runs of one study on one machine give equal rows, so there is no time stamp among them.
"""

from __future__ import annotations

import os
import platform
import subprocess
from importlib import metadata
from pathlib import Path

from smelt.files import ROOT, sha256_file, sha256_json
from smelt.results.parquet import read_rows
from smelt.study import Study

PACKAGES = (
    "torch",
    "lightning",
    "numpy",
    "scipy",
    "tokenizers",
    "pyarrow",
    "duckdb",
    "matplotlib",
    "seaborn",
    "papermill",
    "nbconvert",
    "snakemake",
)


def provenance_rows(study: Study, results: Path, runs: dict[str, str]) -> list[dict[str, str]]:
    """Return the rows of the provenance table; `runs` maps a run to its specification hash."""
    facts = {
        "study": study.name,
        "study_sha256": sha256_json(study.to_dict()),
        "python": platform.python_version(),
        "platform": f"{platform.system()} {platform.machine()}",
        "processor": _processor(),
        "processor_count": str(os.cpu_count()),
        "memory_gib": _memory_gib(),
        "devices": ", ".join(_devices(results, runs)) or "nothing trained",
        "seeds": ", ".join(str(seed) for seed in _seeds(results)),
        "corpus_sha256": _corpus(results),
        "git_commit": _commit(),
    }
    facts |= {f"version_{package}": _version(package) for package in PACKAGES}
    facts |= {f"spec_{run}": spec_hash for run, spec_hash in runs.items()}
    return [{"key": key, "value": value} for key, value in facts.items()]


def _version(package: str) -> str:
    try:
        return metadata.version(package)
    except metadata.PackageNotFoundError:
        return "not installed"


def _processor() -> str:
    """Return the processor's name as the kernel knows it, or what Python knows."""
    try:
        for line in Path("/proc/cpuinfo").read_text(encoding="utf-8").splitlines():
            if line.startswith("model name"):
                return line.split(":", 1)[1].strip()
    except OSError:
        pass
    return platform.processor() or platform.machine()


def _memory_gib() -> str:
    try:
        size = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    except (ValueError, OSError):
        return "unknown"
    return f"{size / 2**30:.1f}"


def _seeds(results: Path) -> list[int]:
    return sorted({row["seed"] for row in read_rows(results / "budget" / "runs.parquet")})


def _devices(results: Path, runs: dict[str, str]) -> list[str]:
    """Return the devices that the runs were trained on."""
    devices: set[str] = set()
    for run in runs:
        path = results / "runs" / run / "throughput.parquet"
        if path.is_file():
            devices |= {row["device"] for row in read_rows(path)}
    return sorted(devices)


def _corpus(results: Path) -> str:
    manifest = results / "corpus" / "manifest.json"
    return sha256_file(manifest) if manifest.is_file() else "not built"


def _commit() -> str:
    """Return the commit of the source tree, `-dirty` with changes of its files, `unknown` outside Git."""
    command = ["git", "-C", str(ROOT), "describe", "--always", "--abbrev=40", "--exclude=*", "--dirty"]
    try:
        found = subprocess.run(command, capture_output=True, text=True, check=True, timeout=20)
    except (OSError, subprocess.SubprocessError):
        return "unknown"
    return found.stdout.strip()
