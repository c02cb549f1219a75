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


def cores() -> int:
    """Return how many cores this process may use."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def run_tasks(
    function: Callable[..., Any], tasks: Sequence[tuple], sizes: Sequence[int], jobs: int, label: str
) -> list[Any]:
    """Return `[function(*task) for task in tasks]`, computed by `jobs` processes.

    Args:
        sizes: bytes of work of each task; large tasks start first, and the bar and the rate count them.
        label: name of the stage in the progress bar and in the closing line on standard error.
    """
    start, results = time.perf_counter(), [None] * len(tasks)
    with tqdm(total=sum(sizes), desc=label, unit="B", unit_scale=True, leave=False, disable=None) as bar:
        for index, result in _completed(function, tasks, sizes, jobs):
            results[index] = result
            bar.update(sizes[index])
    seconds = time.perf_counter() - start
    rate = sum(sizes) / 1e6 / max(seconds, 1e-9)
    tqdm.write(
        f"{label}: {sum(sizes) / 1e6:.1f} MB in {seconds:.1f} s, {rate:.2f} MB/s, {rate / jobs:.2f} MB/s a core",
        file=sys.stderr,
    )
    return results


def _completed(
    function: Callable[..., Any], tasks: Sequence[tuple], sizes: Sequence[int], jobs: int
) -> Iterator[tuple[int, Any]]:
    order = sorted(range(len(tasks)), key=lambda index: (-sizes[index], index))
    if jobs == 1 or len(tasks) == 1:
        yield from ((index, function(*tasks[index])) for index in order)
        return
    # Spawned, not forked: the parent may hold threads of the tokenizer library.
    context = multiprocessing.get_context("spawn")
    with ProcessPoolExecutor(min(jobs, len(tasks)), mp_context=context, initializer=_quiet) as pool:
        futures = {pool.submit(function, *tasks[index]): index for index in order}
        try:
            for future in as_completed(futures):
                yield futures[future], future.result()
        except BaseException:
            pool.shutdown(cancel_futures=True)
            raise


def _quiet() -> None:
    # One process a core tokenises; threads inside each would compete.
    os.environ["TOKENIZERS_PARALLELISM"] = "false"
