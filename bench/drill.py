"""The fault drill: a study again and again, each time with one random fault.

After at most one repetition of the command the tables must equal those of an undisturbed run, or the error
names the damaged file and what to delete; then that is done, and the tables must be equal after it.

    python -m bench.drill --number 20 --study smoke
"""

from __future__ import annotations

import argparse
import contextlib
import os
import random
import re
import shutil
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

import duckdb
import psutil
import yaml

from bench.faults import FAULTS, Ended, Struck, family, kill, limit_files
from smelt.files import ROOT
from smelt.results.schemas import TABLES
from smelt.study import load_study

# Columns that measure the clock; everything else is promised to be equal.
CLOCK = {"tokens_per_s", "seconds", "mfu"}
# Below the project's root; not copied.
LEFT_OUT = {".git", ".venv", ".snakemake", "results", "data/cache"}
MARK = "SMELT_DRILL"
SMALL = "drill"
GENERATED = {
    "Code": "gen-brackets",
    "Math/STEM": "gen-algebra",
    "Knowledge": "gen-records",
    "Finance": "gen-ledgers",
    "Web": "gen-copying",
}
_DELETE = re.compile(r"delete (?!it )(\S+) and run|(\S+) is damaged [^;]*; delete it and run", re.DOTALL)


class Drill:
    """A copy of the project in which one study is run; see `bench.faults.Bench`."""

    def __init__(self, folder: Path, study: str, cores: str, targets: list[str]) -> None:
        self.folder, self.study, self.cores, self.targets = folder, study, cores, targets
        self.seconds, self.size = 0.0, 0
        self.expected: dict[str, list[tuple]] = {}
        self.count = 0
        self._logs: dict[int, Path] = {}

    def prepare(self) -> None:
        """Copy the project and run the study without a fault."""
        shutil.copytree(ROOT, self.folder, ignore=_left_out, symlinks=True, dirs_exist_ok=True)
        (self.folder / "data" / "cache").symlink_to(ROOT / "data" / "cache")
        if self.study == SMALL:
            _write_small(self.folder / "config")
        begin = time.monotonic()
        ended = self.end(self.start(self.folder / "reference"))
        if ended.returncode != 0:
            raise RuntimeError(f"the undisturbed run failed:\n{ended.text[-5000:]}")
        self.seconds = time.monotonic() - begin
        reference = self.folder / "reference"
        self.size = sum(path.stat().st_size for path in reference.rglob("*") if path.is_file())
        self.expected = self.tables(reference)

    def start(self, results: Path, *targets: str, limit: int | None = None) -> subprocess.Popen:
        """Start snakemake on the folder `results`."""
        self.count += 1
        log = self.folder / "drill" / f"{self.count:03d}-{results.name}.log"
        log.parent.mkdir(exist_ok=True)
        command = [sys.executable, "-m", "snakemake", "--cores", self.cores, *(targets or self.targets)]
        command += ["--config", f"study={self.study}", f"results={results.name}"]
        with open(log, "wb") as stream:
            process = subprocess.Popen(
                command,
                cwd=self.folder,
                env={**os.environ, MARK: results.name, "SMELT_CHECKPOINT_SECONDS": "1"},
                stdin=subprocess.DEVNULL,
                stdout=stream,
                stderr=subprocess.STDOUT,
                preexec_fn=None if limit is None else lambda: limit_files(limit),
            )
        self._logs[process.pid] = log
        return process

    def end(self, process: subprocess.Popen) -> Ended:
        """Wait for a snakemake, and end it where it takes far longer than the undisturbed one."""
        code: int | None = None
        try:
            code = process.wait(timeout=900 + 20 * self.seconds if self.seconds else None)
        except subprocess.TimeoutExpired:
            kill(family(process))
        return Ended(code, self._logs[process.pid].read_text(encoding="utf-8", errors="replace"))

    def say(self, text: str) -> None:
        """Print a line, which `drill.log` keeps too."""
        print(text, flush=True)
        with open(self.folder / "drill.log", "a", encoding="utf-8") as stream:
            stream.write(text + "\n")

    def tables(self, results: Path) -> dict[str, list[tuple]]:
        """Return the rows of every table, without what measures the clock."""
        path = results / load_study(str(self.folder / f"config/studies/{self.study}.yaml")).name
        return read_tables(path / "results.duckdb")

    def differing(self, results: Path) -> str:
        """Return what of the tables differs from the undisturbed run's; nothing if they are equal."""
        try:
            found = self.tables(results)
        except duckdb.Error as error:
            return f"no database: {error}"
        return ", ".join(name for name in TABLES if found[name] != self.expected[name])


def read_tables(database: Path) -> dict[str, list[tuple]]:
    """Return the rows of every table, without what measures the clock."""
    with duckdb.connect(str(database), read_only=True) as connection:
        return {name: _rows(connection, name) for name in TABLES}


def _rows(connection: duckdb.DuckDBPyConnection, name: str) -> list[tuple]:
    columns = ", ".join(f'"{column.name}"' for column in TABLES[name].columns if column.name not in CLOCK)
    return connection.execute(f'SELECT {columns} FROM "{name}"').fetchall()


def _left_out(folder: str, names: list[str]) -> set[str]:
    below = Path(folder).relative_to(ROOT)
    return {name for name in names if (below / name).as_posix() in LEFT_OUT or name == "__pycache__"}


def _write_small(folder: Path) -> None:
    """Write a study of three runs that takes seconds: the smallest cell of smoke and one ablation of it.

    Its text is generated.
    """
    study: dict[str, Any] = yaml.safe_load((folder / "studies" / "smoke.yaml").read_text(encoding="utf-8"))
    study |= {"name": SMALL, "sparsities": {85: study["sparsities"][85]}}
    study["scales"] = {"xs": study["scales"]["xs"]}
    study["ablations"] = {"scale": "xs", "loops": {"sparsity": 85, "visits": [1, 2, 3]}}
    study["corpus"] |= {"sources": SMALL, "vocab": 384}
    study["training"] |= {"batch": 2, "horizons": [20, 40], "decay_steps": 10}
    study["evaluation"] |= {"validation_tokens": 2048, "items": 2, "seeds": 1, "shots": [0]}
    study["mechanism"] |= {"tokens": 1024, "dyck_prompts": 2, "draws": 10}
    study["laws"] = {"draws": 10, "tpp_draws": 10, "starts": 4}
    sources = {
        "name": SMALL,
        "description": "Generated text of every category.",
        "tokenizer_bytes": 200_000,
        "validation_fraction": 0.1,
        "decay_fraction": 0.3,
        "sources": [
            {
                "name": kind,
                "category": category,
                "licence": "own",
                "kind": kind,
                "cap_mb": 0.06,
                "min_bytes": 3,
            }
            for category, kind in GENERATED.items()
        ],
    }
    for name, content in (("studies", study), ("sources", sources)):
        text = yaml.safe_dump(content, sort_keys=False)
        (folder / name / f"{SMALL}.yaml").write_text(text, encoding="utf-8")


def advice(text: str) -> str:
    """Return the file that an error says to delete, or nothing."""
    found = _DELETE.search(text)
    return (found.group(1) or found.group(2)) if found else ""


def settle(drill: Drill, results: Path, struck: Struck) -> tuple[bool, str]:
    """Do what a user would; return whether the tables are right in the end, and how that came about."""
    ended, story = struck.ended, []
    for step in ("first", "repeated", "mended"):
        if ended.returncode == 0:
            differing = drill.differing(results)
            return not differing, "; ".join([*story, f"differs: {differing}" if differing else "equal"])
        if ended.returncode is None:
            return False, "; ".join([*story, "it hung"])
        victim = advice(ended.text)
        if step == "mended" or (step == "repeated" and not victim):
            break
        struck.heal()
        if victim:
            if struck.harmed and str(struck.harmed.relative_to(drill.folder)) not in ended.text:
                return False, "; ".join([*story, f"the error does not name {struck.harmed}"])
            story.append(f"told to delete {victim}")
            (drill.folder / victim).unlink(missing_ok=True)
        else:
            story.append("failed, repeated")
        ended = drill.end(drill.start(results))
    return False, "; ".join([*story, f"failed again: {_reason(ended.text)}"])


def _reason(text: str) -> str:
    errors = [line for line in text.splitlines() if re.search(r"error|exception", line, re.IGNORECASE)]
    return errors[-1] if errors else text[-200:]


def left_over(results: Path, seconds: float = 30) -> list[int]:
    """Return the processes of a drill that are still there after `seconds`, and kill them."""
    end = time.monotonic() + seconds
    while (found := _marked(results)) and time.monotonic() < end:
        time.sleep(0.5)
    kill(found)
    return [process.pid for process in found]


def _marked(results: Path) -> list[psutil.Process]:
    found = []
    for process in psutil.process_iter():
        with contextlib.suppress(psutil.Error):
            if process.environ().get(MARK) == results.name and process.status() != psutil.STATUS_ZOMBIE:
                found.append(process)
    return found


def trial(drill: Drill, number: int, kind: str, seed: int) -> bool:
    """Run the study with one fault; print how it went."""
    results, begin = drill.folder / f"trial-{number:02d}", time.monotonic()
    with contextlib.ExitStack() as stack:
        struck = FAULTS[kind](drill, results, random.Random(f"{seed} {number} {kind}"), stack)
        right, story = settle(drill, results, struck)
    if pids := left_over(results):
        right, story = False, f"{story}; processes {pids} were left"
    seconds = time.monotonic() - begin
    drill.say(f"{number:3d} {'ok  ' if right else 'FAIL'} {seconds:4.0f} s  {struck.what}: {story}")
    if right:
        shutil.rmtree(results)
    return right


def kinds(number: int, seed: int) -> list[str]:
    """Return the kind of each fault: all kinds in a random order, again and again."""
    rng, chosen = random.Random(seed), []
    while len(chosen) < number:
        chosen += rng.sample(sorted(FAULTS), len(FAULTS))
    return chosen[:number]


def main() -> None:
    """Parse the arguments, run the drill, print how many faults ended well."""
    parser = argparse.ArgumentParser(prog="python -m bench.drill", description=__doc__.partition("\n")[0])
    parser.add_argument("--number", type=int, default=20, help="faults")
    parser.add_argument("--seed", type=int, default=0, help="of all random choices")
    parser.add_argument("--study", default="smoke", help=f"a shipped study, or {SMALL}: three tiny runs")
    parser.add_argument("--cores", default="all")
    parser.add_argument("--only", choices=sorted(FAULTS), nargs="*", help="kinds of faults (default: all)")
    parser.add_argument("--targets", nargs="*", default=[], help="targets of snakemake (default: everything)")
    parser.add_argument("--folder", type=Path, help="new folder for the copy (default: a temporary one)")
    arguments = parser.parse_args()
    folder = (arguments.folder or Path(tempfile.mkdtemp(prefix="smelt-drill-"))).resolve()
    drill = Drill(folder, arguments.study, arguments.cores, arguments.targets)
    drill.prepare()
    size = drill.size / 1e6
    drill.say(f"{folder}: undisturbed in {drill.seconds:.0f} s, {size:.1f} MB; output of every run in drill/")
    planned = kinds(arguments.number, arguments.seed)
    if arguments.only:
        planned = [arguments.only[i % len(arguments.only)] for i in range(arguments.number)]
    right = [trial(drill, number, kind, arguments.seed) for number, kind in enumerate(planned, 1)]
    drill.say(f"drill of {arguments.study}, seed {arguments.seed}: {sum(right)} of {len(right)}")
    sys.exit(not all(right))


if __name__ == "__main__":
    main()
