"""Run independent tasks on several processes with a progress bar in bytes."""

from __future__ import annotations

import multiprocessing
import os
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor, as_completed
from typing import Any

from tqdm import tqdm

from smelt.cli import end_with


def cores() -> int:
    """Return how many cores this process may use."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


class Pool:
    """Processes that live as long as the `with` block; with one job everything runs in this process.

    Args:
        jobs: number of processes.
    """

    def __init__(self, jobs: int) -> None:
        self.jobs = jobs
        self._executor = None

    def __enter__(self) -> Pool:
        if self.jobs > 1:
            # Spawned, not forked: the parent may hold threads of the tokenizer library.
            context = multiprocessing.get_context("spawn")
            self._executor = ProcessPoolExecutor(self.jobs, mp_context=context, initializer=_quiet)
        return self

    def __exit__(self, *error: object) -> None:
        if self._executor is not None:
            self._executor.shutdown(cancel_futures=True)

    def run(
        self, function: Callable[..., Any], tasks: Sequence[tuple], sizes: Sequence[int], label: str
    ) -> list[Any]:
        """Return `[function(*task) for task in tasks]`.

        Args:
            sizes: bytes of work of each task; large tasks start first, and the bar and the rate count them.
            label: name of the stage in the progress bar and in the closing line on standard error.
        """
        start, results = time.perf_counter(), [None] * len(tasks)
        with tqdm(total=sum(sizes), desc=label, unit="B", unit_scale=True, leave=False, disable=None) as bar:
            for index, result in self._completed(function, tasks, sizes):
                results[index] = result
                bar.update(sizes[index])
        megabytes, seconds = sum(sizes) / 1e6, max(time.perf_counter() - start, 1e-9)
        rate = megabytes / seconds
        print(
            f"{label}: {megabytes:.1f} MB in {seconds:.1f} s, {rate:.2f} MB/s, "
            f"{rate / self.jobs:.2f} MB/s a core",
            file=sys.stderr,
        )
        return results

    def _completed(
        self, function: Callable[..., Any], tasks: Sequence[tuple], sizes: Sequence[int]
    ) -> Iterator[tuple[int, Any]]:
        order = sorted(range(len(tasks)), key=lambda index: (-sizes[index], index))
        if self._executor is None:
            yield from ((index, function(*tasks[index])) for index in order)
            return
        futures = {self._executor.submit(function, *tasks[index]): index for index in order}
        for future in as_completed(futures):
            yield futures[future], future.result()


def _quiet() -> None:
    # Workers would wait for a killed parent for ever.
    end_with(os.getppid())
    # One process a core tokenises; threads inside each would compete.
    os.environ["TOKENIZERS_PARALLELISM"] = "false"
