"""Wrong input of all kinds for everything that reads files of others: it is read or refused in one sentence.

    python -m bench.fuzz --examples 20000 --seed 1

prints for each reader how many inputs it got, read, refused, and how many made it fail otherwise.
"""

from __future__ import annotations

import argparse
import functools
import io
import json
import sys
import tempfile
import traceback
import warnings
import zipfile
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import yaml
from hypothesis import HealthCheck, Phase, given, seed, settings
from hypothesis import strategies as st

from smelt.corpus.archives import read_members
from smelt.errors import SmeltError
from smelt.evaluate.items import read_items
from smelt.evaluate.registry import CHOICE, COMPLETION, SCHEMA, Task
from smelt.files import ROOT, read_json, write_json
from smelt.results.parquet import arrow_schema, read_rows
from smelt.results.schemas import TABLES
from smelt.study import load_study, run_points

TASKS = [
    Task("fuzz", kind, 0, " ", "c", 0.0, "fuzz.jsonl", split)
    for kind in (CHOICE, SCHEMA, COMPLETION)
    for split in (False, True)
]
SMOKE = (ROOT / "config/studies/smoke.yaml").read_bytes()
_JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=8),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=8), inner, max_size=3),
    max_leaves=6,
)


@dataclass
class Outcome:
    """How many inputs a reader got, read, refused and failed on; `failures` has the tracebacks."""

    counts: Counter = field(default_factory=Counter)
    failures: list[str] = field(default_factory=list)

    def fail(self, text: str) -> None:
        """Count a failure."""
        self.counts["failures"] += 1
        self.failures.append(text)

    def __str__(self) -> str:
        names = ("inputs", "read", "refused", "failures")
        return ", ".join(f"{self.counts[name]} {name}" for name in names)


@st.composite
def damaged(draw: st.DrawFn, whole: bytes) -> bytes:
    """`whole` with a few places overwritten, cut out or doubled."""
    data = bytearray(whole)
    for _ in range(draw(st.integers(1, 4))):
        begin = draw(st.integers(0, max(0, len(data) - 1)))
        end = begin + draw(st.integers(0, 8))
        data[begin:end] = draw(st.binary(max_size=8) | st.just(bytes(data[begin:end]) * 2))
    return bytes(data[: draw(st.just(len(data)) | st.integers(0, len(data)))])


def studies() -> st.SearchStrategy[bytes]:
    """Study files: a good one damaged, with any value in any field, and any text."""
    return (
        st.binary(max_size=200) | st.text(max_size=200).map(str.encode) | damaged(SMOKE) | _edited_studies()
    )


@st.composite
def _edited_studies(draw: st.DrawFn) -> bytes:
    study = yaml.safe_load(SMOKE)
    for _ in range(draw(st.integers(1, 3))):
        part: Any = study
        while True:
            key = draw(st.sampled_from(sorted(part, key=str)))
            if not isinstance(part[key], dict) or not part[key] or draw(st.integers(0, 3)) == 0:
                break
            part = part[key]
        part[key] = draw(_JSON)
    return yaml.safe_dump(study, allow_unicode=True).encode("utf-8", "surrogatepass")


@st.composite
def items(draw: st.DrawFn) -> bytes:
    """JSON lines: objects with the fields of items and any values, some damaged, and any bytes."""
    text = st.text(max_size=12)
    good = {
        "query": text,
        "choices": st.lists(text, max_size=3),
        "gold": st.integers(-1, 3),
        "context_options": st.lists(text, max_size=3),
        "continuation": text,
        "context": text,
        "category": text,
    }
    fields = st.fixed_dictionaries({}, optional={name: value | _JSON for name, value in good.items()})
    word = st.sampled_from(["two", "three", "a cat"])
    sound = st.fixed_dictionaries({"query": word, "choices": st.just(["x", "y"]), "gold": st.integers(0, 1)})
    line = (sound | fields | _JSON).map(lambda value: json.dumps(value).encode())
    lines = draw(st.lists(line, max_size=4) | st.lists(sound.map(json.dumps).map(str.encode), max_size=3))
    whole = b"\n".join(lines)
    return draw(st.just(whole) | damaged(whole) | st.binary(max_size=100))


@st.composite
def archives(draw: st.DrawFn) -> bytes:
    """Zip files with any names and contents, most of them damaged, and any bytes."""
    stream = io.BytesIO()
    with warnings.catch_warnings(), zipfile.ZipFile(stream, "w") as archive:
        warnings.simplefilter("ignore")  # equal names
        for _ in range(draw(st.integers(0, 3))):
            info = zipfile.ZipInfo("x")
            info.filename = draw(
                st.text(max_size=10) | st.sampled_from(["../a", "/a", "a/../../b", "a\\b", "."])
            )
            info.compress_type = draw(st.sampled_from([zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED]))
            info.external_attr = draw(st.integers(0, 2**32 - 1))
            archive.writestr(info, draw(st.binary(max_size=64) | st.just(b"0" * 5000)))
    whole = stream.getvalue()
    return draw(st.just(whole) | damaged(whole) | damaged(whole) | st.binary(max_size=100))


@functools.cache
def _table() -> bytes:
    rows = [{"analysis": f"a{i}", "ok": bool(i % 2), "reason": "because"} for i in range(4)]
    sink = pa.BufferOutputStream()
    # Without the checksum, behind which no damaged byte reaches the Parquet reader.
    pq.write_table(pa.Table.from_pylist(rows, schema=arrow_schema(TABLES["law_notes"])), sink)
    return sink.getvalue().to_pybytes()


@functools.cache
def _sealed() -> bytes:
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "manifest.json"
        write_json(path, {"run": "a", "endpoints": [{"tokens": 3, "flops": 1.5e20}]}, sealed=True)
        return path.read_bytes()


def _read_study(path: Path) -> None:
    run_points(load_study(path))


def _read_items(path: Path) -> None:
    refused = []
    for task in TASKS:
        try:
            read_items(path, task)
        except SmeltError as error:
            refused.append(error)
    if len(refused) == len(TASKS):
        raise refused[0]


def _read_archive(path: Path) -> None:
    for name, content in read_members(path):
        assert isinstance(content, bytes) and ".." not in name.split("/") and not name.startswith("/")


READERS: dict[str, tuple[str, Callable[[], st.SearchStrategy[bytes]], Callable[[Path], Any]]] = {
    "study": ("smoke.yaml", studies, _read_study),
    "jsonl": ("fuzz.jsonl", items, _read_items),
    "archive": ("fuzz.whl", archives, _read_archive),
    "table": ("law_notes.parquet", lambda: damaged(_table()), read_rows),
    "json": ("manifest.json", lambda: damaged(_sealed()), read_json),
}


def fuzz(reader: str, examples: int, number: int = 0) -> Outcome:
    """Give a reader so many inputs; the same ones for the same `number`."""
    name, strategy, read = READERS[reader]
    outcome = Outcome()

    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / name

        @seed(number)
        @settings(
            max_examples=examples,
            deadline=None,
            database=None,
            phases=[Phase.generate],
            suppress_health_check=list(HealthCheck),
        )
        @given(strategy())
        def one(data: bytes) -> None:
            path.write_bytes(data)
            outcome.counts["inputs"] += 1
            try:
                read(path)
            except SmeltError as error:
                if path.name in str(error) and "\n" not in str(error):
                    outcome.counts["refused"] += 1
                else:
                    outcome.fail(f"not one sentence that names the file: {str(error)!r}")
            except Exception:
                outcome.fail(f"{traceback.format_exc()}input: {data[:2000]!r}")
            else:
                outcome.counts["read"] += 1

        one()
    return outcome


def main() -> None:
    """Parse the arguments, fuzz every reader, print what became of the inputs."""
    parser = argparse.ArgumentParser(prog="python -m bench.fuzz", description=__doc__.partition("\n")[0])
    parser.add_argument("--examples", type=int, default=20_000, help="inputs for each reader")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--reader", choices=sorted(READERS), nargs="*", help="only these (default: all)")
    arguments = parser.parse_args()
    failed = 0
    for reader in arguments.reader or READERS:
        outcome = fuzz(reader, arguments.examples, arguments.seed)
        failed += len(outcome.failures)
        print(f"{reader}: {outcome}", flush=True)
        for text in outcome.failures[:3]:
            print(text, file=sys.stderr)
    sys.exit(failed > 0)


if __name__ == "__main__":
    main()
