"""Run the tests that need a SLURM, installing Debian's where that is possible (`make test-slurm`)."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys

from tests.workflow.slurm_cluster import PACKAGES, PROGRAMS, obstacle

APT = (
    "apt-get",
    *("-o", "Acquire::Retries=1", "-o", "Acquire::http::Timeout=20", "-o", "DPkg::Lock::Timeout=60"),
)
SECONDS = 600


def install() -> str:
    """Install what is missing; return why that did not work, or an empty text."""
    if all(map(shutil.which, PROGRAMS)):
        return ""
    if os.geteuid():
        return "installing SLURM needs root"
    if shutil.which("apt-get") is None:
        return "SLURM is not installed, and there is no apt-get to install it with"
    apt(*APT, "update")  # an old list may still do
    return apt(*APT, "install", "--yes", "--no-install-recommends", *PACKAGES)


def apt(*command: str) -> str:
    """Run apt; return its last complaint, or an empty text."""
    print("+", " ".join(command), flush=True)
    try:
        answer = subprocess.run(
            command,
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            timeout=SECONDS,
            env=os.environ | {"DEBIAN_FRONTEND": "noninteractive"},
        )
    except subprocess.TimeoutExpired:
        return f"{' '.join(command[:1])} took longer than {SECONDS} s"
    complaints = [line for line in answer.stderr.splitlines() if line.startswith("E:")]
    return (complaints or [f"apt-get ended with status {answer.returncode}"])[-1] if answer.returncode else ""


def main() -> int:
    """Become pytest, or say why not."""
    reason = install() or obstacle()
    if reason:
        print(f"SLURM tests skipped: {reason}")
        return 0
    command = [sys.executable, "-m", "pytest", "-m", "slurm", "tests/workflow/test_slurm.py"]
    return os.execv(sys.executable, command)


if __name__ == "__main__":
    sys.exit(main())
