"""What the first page says of a study beside its figures: sizes."""

from __future__ import annotations

from smelt.report.data import Data
from smelt.report.tables.formats import counted, short


def facts(data: Data) -> list[tuple[str, str]]:
    """Return label and text of what the study consists of."""
    study = data.study
    runs = data.frame(
        """
        SELECT count(*) AS runs, count_if(grouping = 'grid') AS grid, count(DISTINCT seed) AS seeds,
          min(params_active) AS low, max(params_active) AS high, min(params_total) AS total_low,
          max(params_total) AS total_high FROM runs
        """
    ).iloc[0]
    ends = data.frame("SELECT count(*) AS n, min(tokens) AS low, max(tokens) AS high FROM endpoints").iloc[0]
    loop = study.loop
    runs = runs.astype(int)
    tokens = f", at {short(ends['low'])} to {short(ends['high'])} tokens" if ends["n"] else ""
    return [
        ("Scales", ", ".join(data.scales)),
        ("Sparsities", ", ".join(f"{sparsity}%" for sparsity in data.sparsities)),
        (
            "Runs",
            f"{runs['runs']}, of them {runs['grid']} in the grid; {counted(runs['seeds'], 'training seed')}",
        ),
        ("Active parameters", f"{short(runs['low'])} to {short(runs['high'])}"),
        ("Total parameters", f"{short(runs['total_low'])} to {short(runs['total_high'])}"),
        ("Endpoints", f"{int(ends['n'])}{tokens}"),
        (
            "Loop",
            f"{loop.span:.0%} of the layers, visited {counted(loop.visits, 'time')}, {loop.order} order",
        ),
        ("Narrowed first", f"{loop.narrow}, to pay for the visits at equal budgets"),
        ("Vocabulary and context", f"{study.corpus.vocab} and {study.corpus.context} tokens"),
        ("Task suite", _suite(study.evaluation.suite)),
    ]


def _suite(name: str) -> str:
    if name == "local":
        return "local: tasks made by this project, not DCLM; scores cannot be compared with the paper's"
    return name
