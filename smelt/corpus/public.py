"""Public data sets by streaming: the only module that uses the `datasets` package, which is optional."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from smelt.corpus.sources import Source, SourceSet
from smelt.errors import SmeltError
from smelt.files import read_json
from smelt.study.records import make_anew


def open_dataset(source: Source, revision: str) -> Any:
    """Return the data set of a source as an iterable of rows with its text column.

    Raises:
        SmeltError: `datasets` is not installed, or the data set cannot be opened or has no such column.
    """
    datasets = _datasets()
    folder = Path(source.dataset)
    options = {"path": str(folder)} if folder.is_dir() else {"path": source.dataset, "revision": revision}
    try:
        stream = datasets.load_dataset(name=source.subset, split=source.split, streaming=True, **options)
        columns = stream.column_names or [source.column]
    except Exception as error:  # the library and the network below it raise all kinds
        raise SmeltError(
            f"source {source.name}: data set {source.dataset} cannot be opened: {_first_line(error)}"
        ) from None
    if source.column not in columns:
        raise SmeltError(
            f"source {source.name}: data set {source.dataset} has no column {source.column!r}; it has "
            f"{', '.join(columns)}"
        )
    return stream.select_columns([source.column])


def part_of(stream: Any, part: int, parts: int) -> Any:
    """Return one part: some of the files, or every n-th row where there are fewer files than parts."""
    if stream.num_shards >= parts:
        return stream.shard(num_shards=parts, index=part)
    from datasets.distributed import split_dataset_by_node

    return split_dataset_by_node(stream, rank=part, world_size=parts)


def pin_revisions(sources: SourceSet) -> dict[str, str]:
    """Return the commit that each data set stands at now; `local` for a folder.

    Raises:
        SmeltError: a data set is unknown or cannot be reached.
    """
    _datasets()
    from huggingface_hub import HfApi

    revisions = {}
    for source in sources.sources:
        if Path(source.dataset).is_dir():
            revisions[source.name] = "local"
            continue
        try:
            revisions[source.name] = HfApi().dataset_info(source.dataset, revision=source.revision).sha
        except Exception as error:  # the library and the network below it raise all kinds
            raise SmeltError(
                f"source {source.name}: data set {source.dataset} cannot be reached: {_first_line(error)}"
            ) from None
    return revisions


def read_revisions(sources: SourceSet, cache: Path) -> dict[str, str]:
    """Return the revisions that `fetch` wrote to `<cache>/<set>.json`."""
    path = cache / f"{sources.name}.json"
    if not path.is_file():
        raise SmeltError(f"{path} does not exist; run `python -m smelt.corpus fetch` first")
    try:
        revisions = dict(read_json(path)["revisions"])
    except (SmeltError, KeyError, TypeError, ValueError) as error:
        raise SmeltError(f"{path} names no revisions ({error}); {make_anew(path)}") from None
    missing = [source.name for source in sources.sources if source.name not in revisions]
    if missing:
        raise SmeltError(
            f"{path} does not know source {missing[0]}; run `python -m smelt.corpus fetch` again"
        )
    return revisions


def _datasets() -> Any:
    try:
        import datasets
    except ImportError:
        raise SmeltError(
            "this source set streams public data sets, which needs the package `datasets`; "
            "install smelt[stream]"
        ) from None
    datasets.disable_progress_bars()
    return datasets


def _first_line(error: Exception) -> str:
    return next(iter(str(error).splitlines()), type(error).__name__)
