"""Peak memory of the stages while their inputs grow, and Snakemake's own cost with the number of runs.

    python -m bench.memory --sizes 1 10 100 --runs 1000 5000

A size of 1 is a corpus of 2 million tokens, an archive of 1 MB of text, or 13 runs (one seed) with 200 rows
of training log and 2,000 answered items each. Every stage runs in a process of its own, with inputs made by
another one. `anonymous` is what the process itself holds, sampled every 10 ms; `resident` adds the mapped
pages of files, which the kernel takes back at need.
"""

from __future__ import annotations

import argparse
import json
import resource
import subprocess
import sys
import tempfile
import threading
import time
from pathlib import Path

from bench import grown
from smelt.files import ROOT

# How the inputs of a stage are made, and what the stage does.
STAGES = {
    "building a corpus of a grown archive": (grown.make_archive, grown.build_archive),
    "training batches of a grown corpus": (grown.make_corpus, grown.read_batches),
    "evaluation on a grown corpus": (grown.make_run, grown.evaluate),
    "laws of more seeds": (grown.make_seeds, grown.fit_laws),
    "database of grown tables": (grown.make_tables, grown.build),
    "figures of grown tables": (grown.make_database, grown.draw),
}


def anonymous() -> int:
    """Return the anonymous memory of this process in bytes."""
    with open("/proc/self/status", encoding="ascii") as stream:
        return next(int(line.split()[1]) << 10 for line in stream if line.startswith("RssAnon"))


class Peak(threading.Thread):
    """Samples the anonymous memory and keeps the highest."""

    def __init__(self) -> None:
        super().__init__(daemon=True)
        self.value = 0

    def run(self) -> None:
        """Sample until the process ends."""
        while True:
            self.value = max(self.value, anonymous())
            time.sleep(0.01)


def child(stage: str, step: str, size: int, folder: Path) -> None:
    """Make a stage's inputs, or run the stage and print its peaks in bytes as JSON."""
    make, run = STAGES[stage]
    if step == "make":
        make(folder, size)
        return
    peak = Peak()
    peak.start()
    run(folder)
    resident = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss << 10
    print(json.dumps({"anonymous": max(peak.value, anonymous()), "resident": resident}))


def measure(stage: str, size: int, folder: Path) -> dict[str, int]:
    """Return the peaks of a stage at one size, in bytes."""
    for step in ("make", "run"):
        command = [sys.executable, "-m", "bench.memory", "--child", stage, step, str(size), str(folder)]
        ended = subprocess.run(command, cwd=ROOT, capture_output=True, text=True)
        if ended.returncode:
            raise RuntimeError(f"{stage}, size {size}, {step} failed:\n{ended.stderr[-3000:]}")
    return json.loads(ended.stdout.splitlines()[-1])


def dry_run(runs: int, folder: Path) -> dict[str, float]:
    """Return wall time and processor time in seconds, and the peak in bytes, of a dry run of so many runs."""
    study = grown.big_study(folder, runs)
    command = [sys.executable, "-m", "snakemake", "--dry-run", "--quiet", "all", "--config"]
    before, begin = resource.getrusage(resource.RUSAGE_CHILDREN), time.monotonic()
    ended = subprocess.run(
        [*command, f"study={study}", f"results={folder / 'results'}"],
        cwd=ROOT,
        capture_output=True,
        text=True,
    )
    wall, after = time.monotonic() - begin, resource.getrusage(resource.RUSAGE_CHILDREN)
    if ended.returncode:
        raise RuntimeError(
            f"the dry run of {runs} runs failed:\n{ended.stdout[-2000:]}{ended.stderr[-2000:]}"
        )
    used = after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime
    return {"wall": wall, "processor": used, "resident": after.ru_maxrss << 10}


def main() -> None:
    """Parse the arguments, measure, print Markdown tables."""
    parser = argparse.ArgumentParser(prog="python -m bench.memory", description=__doc__.partition("\n")[0])
    parser.add_argument("--sizes", type=int, nargs="*", default=[1, 10, 100])
    parser.add_argument("--runs", type=int, nargs="*", default=[1000, 5000], help="multiples of 40")
    parser.add_argument("--folder", type=Path, help="for the inputs (default: a temporary one)")
    parser.add_argument("--child", nargs=4, help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    if arguments.child:
        stage, step, size, folder = arguments.child
        child(stage, step, int(size), Path(folder))
        return
    with tempfile.TemporaryDirectory(dir=arguments.folder) as name:
        folder = Path(name).resolve()
        for runs in arguments.runs:
            cost = dry_run(runs, folder / f"{runs}")
            print(
                f"dry run of {runs} runs: {cost['wall']:.1f} s, {cost['processor']:.1f} s of processor time, "
                f"{cost['resident'] / 2**20:.0f} MiB",
                flush=True,
            )
        print("| stage | size | anonymous MiB | resident MiB |\n|---|--:|--:|--:|", flush=True)
        for number, stage in enumerate(STAGES):
            for size in arguments.sizes:
                peak = measure(stage, size, folder / f"{number}-{size}")
                values = [f"{peak[kind] / 2**20:.0f}" for kind in ("anonymous", "resident")]
                print(f"| {stage} | {size} | {' | '.join(values)} |", flush=True)


if __name__ == "__main__":
    main()
