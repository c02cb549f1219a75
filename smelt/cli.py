"""What every stage's command line shares: a clean refusal instead of a traceback, and no life of its own."""

from __future__ import annotations

import ctypes
import os
import signal
import sys
from collections.abc import Callable

from smelt.errors import SmeltError

# Set for the jobs of a workflow: a command started by hand may outlive its shell.
JOB_VARIABLE = "SMELT_JOB"
_PR_SET_PDEATHSIG = 1  # of prctl(2)


def end_with(parent: int) -> None:
    """Have the kernel send this process SIGTERM when its parent ends, however that ends (on Linux)."""
    if sys.platform == "linux":
        ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGTERM)
        if os.getppid() != parent:  # it ended before
            os.kill(os.getpid(), signal.SIGTERM)


def run(main: Callable[[], int | None]) -> None:
    """Call `main` and exit with its status; turn expected failures into one line and exit code 2.

    A job of a workflow ends when that is killed: it would go on writing while the workflow runs again.
    """
    if JOB_VARIABLE in os.environ:
        end_with(os.getppid())
    try:
        sys.exit(main() or 0)
    except SmeltError as error:
        message = str(error)
    except OSError as error:
        if error.errno is None:
            raise
        message = f"{error.strerror}: {error.filename or 'unnamed file'}"
    print(f"error: {message}", file=sys.stderr)
    sys.exit(2)
