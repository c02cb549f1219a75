"""What a score means: its suite, its random baselines, and prompts that did not fit the context."""

from __future__ import annotations

import pandas as pd

from smelt.report.data import Data

RAW = "accuracies are raw, no random baseline is taken off"


def suite_note(data: Data, use: str = "random baselines: {}") -> str:
    """Return a sentence that names the suite and `use`, in which `{}` is the version of its baselines.

    Only Core is centred; elsewhere the baselines are levels of chance, or are not used.
    """
    found = data.frame("SELECT DISTINCT suite, baseline_version FROM endpoints ORDER BY ALL")
    if found.empty:
        return ""
    suites = ", ".join(sorted(set(found["suite"])))
    version = ", ".join(sorted(set(found["baseline_version"].dropna()))) or "none"
    own = " (this project's own tasks local_*, not DCLM)" if suites == "local" else ""
    return f"Suite: {suites.replace('dclm', 'DCLM')}{own}; {use.format(version)}."


def cut_prompts(data: Data) -> pd.DataFrame:
    """Return, by task and demonstrations at the last endpoint, the answers and those behind a cut prompt."""
    return data.frame(
        """
        WITH last AS (SELECT run, max(horizon) AS horizon FROM items GROUP BY run)
        SELECT i.task, i.shots, count(*) AS answers, count_if(i.truncated) AS cut
        FROM items i JOIN last USING (run, horizon) JOIN runs r USING (run)
        WHERE r.grouping = 'grid' GROUP BY ALL ORDER BY ALL
        """
    )


def mostly_cut(prompts: pd.DataFrame) -> set[int]:
    """Return the numbers of demonstrations at which more than half of the prompts are cut."""
    sums = prompts.groupby("shots")[["answers", "cut"]].sum()
    return set(sums.index[sums["cut"] > sums["answers"] / 2])


def cut_share_note(data: Data, prompts: pd.DataFrame) -> str:
    """Return a sentence with the share of cut prompts by demonstrations, or an empty string without items."""
    if prompts.empty:
        return ""
    sums = prompts.groupby("shots")[["answers", "cut"]].sum()
    if not sums["cut"].any():
        return f"Every prompt fits the context of {data.study.corpus.context} tokens."
    parts = [f"{row.cut / row.answers:.0%} at k = {k}" for k, row in sums.iterrows()]
    return (
        f"Answers whose prompt was cut on the left to fit the context of {data.study.corpus.context} tokens: "
        f"{', '.join(parts)}."
    )
