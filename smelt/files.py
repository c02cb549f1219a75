"""Files that are either whole or absent, and names for their content."""

from __future__ import annotations

import contextlib
import glob
import hashlib
import json
import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from smelt.errors import SmeltError

ROOT = Path(__file__).resolve().parents[1]
_SEAL = "seal"


@contextlib.contextmanager
def atomic_path(path: Path | str) -> Iterator[Path]:
    """Yield a temporary name beside `path`; rename it to `path` on success, remove it on failure."""
    path = Path(path)
    path.parent.mkdir(parents=True, exist_ok=True)
    _clear_abandoned(path)
    temporary = path.with_name(f".{path.name}.{os.getpid()}.tmp")
    try:
        yield temporary
        with open(temporary, "rb") as stream:
            os.fsync(stream.fileno())
        os.replace(temporary, path)
    except OSError as error:
        # Libraries name the temporary file, or none.
        raise OSError(error.errno, error.strerror or str(error), str(path)) from error
    finally:
        with contextlib.suppress(OSError):
            temporary.unlink(missing_ok=True)


def alive(pid: int) -> bool:
    """Whether a process of this number runs on this machine."""
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    except OSError:
        pass
    return True


def _clear_abandoned(path: Path) -> None:
    """Remove temporary files of `path` whose process was killed."""
    for left in path.parent.glob(f".{glob.escape(path.name)}.*.tmp"):
        pid = left.name.removesuffix(".tmp").rpartition(".")[2]
        if pid.isdecimal() and not alive(int(pid)):
            left.unlink(missing_ok=True)


def write_text(path: Path | str, text: str) -> None:
    """Write `text` as UTF-8 atomically."""
    with atomic_path(path) as temporary:
        temporary.write_text(text, encoding="utf-8")


def canonical_json(value: Any) -> str:
    """Return JSON that is equal for equal values: sorted keys, no blanks, no NaN."""
    return json.dumps(value, sort_keys=True, separators=(",", ":"), ensure_ascii=False, allow_nan=False)


def write_json(path: Path | str, value: Any, sealed: bool = False) -> None:
    """Write `value` as indented JSON with sorted keys, atomically.

    A sealed object holds the hash of its own content, against which `read_json` checks it.
    """
    if sealed:
        value = {**value, _SEAL: sha256_json(value)}
    write_text(path, json.dumps(value, sort_keys=True, indent=1, ensure_ascii=False) + "\n")


def read_json(path: Path | str) -> Any:
    """Read a JSON file, without its seal; a missing or damaged one is a `SmeltError` that names it."""
    try:
        value = json.loads(Path(path).read_text(encoding="utf-8"))
    except FileNotFoundError:
        raise SmeltError(f"{path} does not exist") from None
    except (ValueError, RecursionError) as error:  # bad text, bad JSON, an endless number, endless nesting
        raise SmeltError(f"{path} is not valid JSON: {error}") from None
    if isinstance(value, dict) and _SEAL in value:
        seal = value.pop(_SEAL)
        if seal != _hash_or_none(value):
            raise SmeltError(f"{path} is damaged: its content is not what its seal says")
    return value


def _hash_or_none(value: Any) -> str | None:
    try:
        return sha256_json(value)
    except ValueError:  # a surrogate, or no finite number
        return None


def sha256_file(path: Path | str) -> str:
    """Return the SHA-256 of a file's bytes in hexadecimal."""
    with open(path, "rb") as stream:
        return hashlib.file_digest(stream, "sha256").hexdigest()


def sha256_json(value: Any) -> str:
    """Return the SHA-256 of the canonical JSON of `value` in hexadecimal."""
    return hashlib.sha256(canonical_json(value).encode()).hexdigest()
