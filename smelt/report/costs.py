"""Where a study's core-seconds went, by stage, beside the goals that the default study is made for."""

from __future__ import annotations

from pathlib import Path

import pandas as pd

from smelt.report.contents import Item
from smelt.report.data import Data
from smelt.report.markup import missing_html
from smelt.report.output import Column, TableView, page_table
from smelt.report.tables.formats import counted, integer, joined, percent, short, text

_STEPS = "Training: steps"
# Rows of the table by the workflow's rule, in its order; training is told apart into steps and the rest.
_STAGES = {
    "corpus_build": "Corpus",
    "budget_tables": "Budgets",
    "train_run": "Training: start, checkpoints",
    "tasks": "Making the tasks",
    "evaluate_run": "Evaluation",
    "mechanism_run": "Looking inside (mechanism)",
    "laws_fit": "Laws",
    "claims": "Claims",
}
# Share of the whole that training should at least take, evaluation and mechanism at most.
_AT_LEAST = {_STEPS: 0.70}
_AT_MOST = {_STAGES["evaluate_run"]: 0.15, _STAGES["mechanism_run"]: 0.08}
_NAMES = dict(
    zip((*_AT_LEAST, *_AT_MOST), ("the steps of training", "evaluation", "looking inside"), strict=True)
)


def costs(data: Data) -> pd.DataFrame:
    """Return a row a stage: jobs, how many of them are recorded, core-seconds, share of all, goal.

    Where jobs held GPUs it is these that are counted instead of cores; `unit` says so. Shares are missing
    where a run's evaluation or capture is not recorded or a run not trained: they would be shares of a part.
    """
    counts = data.frame("SELECT count(*) AS runs, count_if(grouping = 'grid') AS grid FROM runs").iloc[0]
    steps = data.frame("SELECT run, sum(seconds) AS steps FROM throughput GROUP BY run").set_index("run")
    jobs = data.frame("SELECT * FROM stage_costs ORDER BY stage, job")
    unit = "device" if (jobs["devices"] > 0).any() else "core"
    jobs["units"] = jobs[f"{unit}s"]
    training = jobs["stage"] == "train_run"
    units = jobs[training].set_index("job")["units"].reindex(steps.index).fillna(1)
    # A training that was interrupted is recorded from its last start; its steps are all there.
    rest = jobs["seconds"] - jobs["job"].map(steps["steps"]).where(training, 0).fillna(0)
    jobs["spent"] = rest.clip(lower=0) * jobs["units"]
    expected = {"train_run": counts["runs"], "evaluate_run": counts["runs"], "mechanism_run": counts["grid"]}
    rows = []
    for stage, label in _STAGES.items():
        found = jobs[jobs["stage"] == stage]
        if stage == "train_run":
            spent = float((steps["steps"] * units).sum())
            rows.append((_STEPS, counts["runs"], len(steps), spent))
        rows.append((label, expected.get(stage, 1), len(found), float(found["spent"].sum())))
    frame = pd.DataFrame(rows, columns=["stage", "jobs", "recorded", "seconds"])
    whole = frame["stage"].isin({_STEPS, *_AT_MOST})
    complete = bool((frame["recorded"] == frame["jobs"])[whole].all()) and bool(counts["grid"])
    frame["share"] = frame["seconds"] / frame["seconds"].sum() if complete else float("nan")
    frame["goal"] = frame["stage"].map(
        {stage: f"at least {goal:.0%}" for stage, goal in _AT_LEAST.items()}
        | {stage: f"at most {goal:.0%}" for stage, goal in _AT_MOST.items()}
    )
    return frame.assign(unit=unit, restarted=int((rest < 0).sum()))


def cost_table(data: Data, folder: Path) -> str:
    """Return the stages' shares as a table, its CSV in `folder`, or a sentence where none is recorded."""
    title = "Where the time went"
    if not data.counts["stage_costs"]:
        reason = "Not recorded: the workflow left no times of this study's jobs."
        seconds = data.frame("SELECT coalesce(sum(seconds), 0) AS s FROM throughput")["s"].iloc[0]
        if seconds:
            reason += f" The steps of training took {short(seconds)} seconds; shares of stages are not known."
        return missing_html("cost-table", "Table W4", title, reason)
    frame = costs(data)
    unit = frame["unit"].iloc[0]
    columns = (
        Column("stage", "Stage", text, numeric=False),
        Column("jobs", "Jobs", integer),
        Column("recorded", "Recorded", integer),
        Column("seconds", f"{unit.capitalize()}-seconds", short),
        Column("share", "Share (%)", percent(1)),
        Column("goal", "Goal", text, numeric=False),
    )
    caption = (
        f"A job's seconds times the {unit}s that it had. The steps of training are those that the trainer "
        "timed, of every start of a run; of other jobs the last start counts, with loading of libraries. "
        "Fetching the text, this report, scheduling and idle time are not in it. The goals are those of the "
        "default study: most of the time should go into training."
    )
    recorded = frame["recorded"] > 0
    known = frame.assign(seconds=frame["seconds"].where(recorded), share=frame["share"].where(recorded))
    view = TableView(columns, known, joined(shares(frame), _uncovered(frame)))
    return page_table(Item("cost-table", "W4", title, "", caption=caption), view, folder)


def shares(frame: pd.DataFrame) -> str:
    """Return a sentence that holds the shares against their goals, or says why there are none."""
    share = frame.set_index("stage")["share"]
    if share.isna().all():
        return (
            "No shares: not all runs are trained, evaluated and looked into, or not all of that is recorded."
        )
    parts = []
    for stage, goal in (_AT_LEAST | _AT_MOST).items():
        least = stage in _AT_LEAST
        met = "met" if (share[stage] >= goal if least else share[stage] <= goal) else "missed"
        words = f"at {'least' if least else 'most'} {goal:.0%}, {met}"
        parts.append(f"{_NAMES[stage]} took {share[stage]:.1%} (goal: {words})")
    return f"Of the whole, {', '.join(parts)}."


def _uncovered(frame: pd.DataFrame) -> str:
    """Name the stages with jobs that left no record, and count those whose record is not of all they did."""
    gaps = frame[frame["recorded"] < frame["jobs"]]
    named = [f"{row.stage} ({counted(row.jobs - row.recorded, 'job')})" for row in gaps.itertuples()]
    missing = f"Without a record: {', '.join(named)}." if named else ""
    if count := frame["restarted"].iloc[0]:
        missing = joined(
            missing,
            f"Of {counted(count, 'training')} the last start was shorter than the steps of all: what the "
            "earlier ones took beside their steps is not in it.",
        )
    return missing
