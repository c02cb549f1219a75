"""Read members of wheels without installing, importing or unpacking anything."""

from __future__ import annotations

import fnmatch
import zipfile
from collections.abc import Iterator, Sequence
from pathlib import Path, PurePosixPath

from smelt.errors import SmeltError

# Limits against archives that unpack to far more than they say: bytes a member, bytes and members in all.
MAX_MEMBER = 64 << 20
MAX_TOTAL = 512 << 20
MAX_MEMBERS = 100_000


def read_members(
    path: Path, include: Sequence[str] = ("*",), exclude: Sequence[str] = ()
) -> Iterator[tuple[str, bytes]]:
    """Yield `(name, content)` of the matching members in the order of their names.

    Patterns are shell patterns in which `*` matches `/` too.

    Raises:
        SmeltError: not a readable zip file, a name that leaves the archive, or a limit exceeded.
    """
    try:
        with zipfile.ZipFile(path) as archive:
            yield from _members(path, archive, include, exclude)
    except FileNotFoundError:
        raise SmeltError(f"{path} does not exist; run the fetch command first") from None
    except SmeltError:
        raise
    except Exception as error:  # zipfile and the decoders below it raise all kinds
        reason = " ".join(str(error).split())
        raise SmeltError(
            f"{path} is not a readable archive ({reason}); delete it and fetch it again"
        ) from None


def _members(
    path: Path, archive: zipfile.ZipFile, include: Sequence[str], exclude: Sequence[str]
) -> Iterator[tuple[str, bytes]]:
    infos = archive.infolist()
    if len(infos) > MAX_MEMBERS:
        raise SmeltError(f"{path} has {len(infos)} members; at most {MAX_MEMBERS} are read")
    total = 0
    for info in sorted(infos, key=lambda info: info.filename):
        name = info.filename
        _check_name(path, name)
        if info.is_dir() or not _matches(name, include) or _matches(name, exclude):
            continue
        with archive.open(info) as stream:
            # The header's size may lie: the limit is on what comes out.
            data = stream.read(MAX_MEMBER + 1)
        total += len(data)
        if len(data) > MAX_MEMBER or total > MAX_TOTAL:
            raise SmeltError(
                f"{path}: {name!r} unpacks past the limit of {MAX_MEMBER >> 20} MiB a member "
                f"and {MAX_TOTAL >> 20} MiB in all"
            )
        yield name, data


def _check_name(path: Path, name: str) -> None:
    pure = PurePosixPath(name)
    first = pure.parts[0] if pure.parts else ":"  # an empty name and a dot have no parts
    if pure.is_absolute() or ".." in pure.parts or "\\" in name or ":" in first:
        raise SmeltError(f"{path}: the member name {name!r} leaves the archive; the archive is refused")


def _matches(name: str, patterns: Sequence[str]) -> bool:
    return any(fnmatch.fnmatchcase(name, pattern) for pattern in patterns)
