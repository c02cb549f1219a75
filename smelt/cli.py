"""What every stage's command line shares: a clean refusal instead of a traceback."""

from __future__ import annotations

import sys
from collections.abc import Callable

from smelt.errors import SmeltError


def run(main: Callable[[], int | None]) -> None:
    """Call `main` and exit with its status; turn expected failures into one line and exit code 2."""
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
