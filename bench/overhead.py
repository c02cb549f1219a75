"""Where a study's wall time went: work, start-up of processes, waiting (`python -m bench.overhead LOG`).

LOG is a log of snakemake (default: the latest in `.snakemake/log`) of a run from nothing. The start-up of
a stage is the processor time of an interpreter that only imports it, measured now, times its jobs.
"""

from __future__ import annotations

import argparse
import re
import resource
import subprocess
import sys
from collections import defaultdict
from datetime import datetime
from pathlib import Path

from smelt.warm import HEAVY

ENTRY = {
    "corpus_fetch": "smelt.corpus.fetch",
    "corpus_build": "smelt.corpus.build",
    "budget_tables": "smelt.budget.tables",
    "tasks": "smelt.evaluate.make",
    # Forks of a process that imported everything once.
    "train_run": "smelt.warm",
    "evaluate_run": "smelt.warm",
    "mechanism_run": "smelt.warm",
    "laws_fit": "smelt.laws.__main__",
    "claims": "smelt.report.claims",
    "database": "smelt.results.build",
    "notebook": "smelt.report.notebook, ipykernel.kernelapp, smelt.report.book",
    "site": "smelt.report.site",
}


def jobs(log: str) -> tuple[dict[str, list[float]], float]:
    """Return the seconds of every job by rule, and the seconds from the first to the last time stamp."""
    seconds, started, times, now = defaultdict(list), {}, [], None
    for line in log.splitlines():
        if match := re.match(r"\[(\w{3} \w{3} [ \d]\d [\d:]{8} \d{4})\]", line):
            now = datetime.strptime(match.group(1), "%a %b %d %H:%M:%S %Y")
            times.append(now)
        elif match := re.match(r"Job (\d+): ", line):
            started[match.group(1)] = now
        elif (match := re.match(r"Finished jobid: (\d+) \(Rule: (\w+)\)", line)) and match.group(
            1
        ) in started:
            seconds[match.group(2)].append((now - started[match.group(1)]).total_seconds())
    return seconds, (times[-1] - times[0]).total_seconds() if times else 0.0


def start_up(modules: str) -> float:
    """Return the processor seconds of an interpreter that imports `modules`; the better of two."""
    best = float("inf")
    for _ in range(2):
        before = resource.getrusage(resource.RUSAGE_CHILDREN)
        subprocess.run([sys.executable, "-c", f"import {modules}"], check=True)
        after = resource.getrusage(resource.RUSAGE_CHILDREN)
        best = min(best, after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime)
    return best


def main() -> int:
    """Print one line a stage and the shares."""
    parser = argparse.ArgumentParser(prog="python -m bench.overhead", description=__doc__.partition("\n")[0])
    parser.add_argument("log", nargs="?", type=Path, help="of snakemake (default: the newest here)")
    logs = sorted(Path(".snakemake/log").glob("*.log"))
    path = parser.parse_args().log or (logs[-1] if logs else None)
    if path is None:
        print("error: no log of snakemake in .snakemake/log; name one", file=sys.stderr)
        return 2
    text = path.read_text(encoding="utf-8")
    cores = int(match.group(1)) if (match := re.search(r"Provided cores: (\d+)", text)) else 1
    seconds, wall = jobs(text)
    print(f"{'stage':14} {'jobs':>4} {'seconds':>8} {'start-up':>8}")
    worked = spent = 0.0
    for rule, durations in sorted(seconds.items(), key=lambda item: -sum(item[1])):
        if rule not in ENTRY:
            continue
        starts = len(durations) * start_up(ENTRY[rule])
        # The corpus is built on every core.
        taken = cores if rule == "corpus_build" else 1
        worked, spent = worked + taken * sum(durations), spent + starts
        print(f"{rule:14} {len(durations):4d} {sum(durations):8.0f} {starts:8.1f}")
    spent += start_up(", ".join(HEAVY))  # once, in the process that the jobs fork from
    total = cores * wall
    print(f"wall {wall:.0f} s on {cores} cores = {total:.0f} core-seconds")
    idle = total - worked
    print(f"start-up {spent:.0f} ({spent / total:.1%}), scheduling and idle {idle:.0f} ({idle / total:.1%})")
    return 0


if __name__ == "__main__":
    sys.exit(main())
