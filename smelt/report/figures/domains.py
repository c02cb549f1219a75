"""Domains, document length and demonstrations: figures 10, 11 and 24."""

from __future__ import annotations

import pandas as pd
from matplotlib.axes import Axes
from matplotlib.lines import Line2D

from smelt.report.data import Data, NotMeasured
from smelt.report.output import Drawing
from smelt.report.style import (
    GREY,
    LOOKS,
    PAIR,
    PAPER,
    RED,
    WIDTH,
    legend_above,
    outer_labels,
    pair_handles,
    panels,
    plt,
)

# Printed in section 7 of the paper, percent.
_PAPER_CATEGORIES = {"Code": 20.4, "Finance": 16.8, "Math/STEM": 16.6, "Knowledge": 14.9, "Web": 14.8}
_PAPER_QUARTILES = {"1": 18.0, "2": 16.3, "3": 13.8, "4": 15.9}


def gain_by_category(data: Data) -> Drawing:
    """Figure 10a: CE gain by category of the held-out text."""
    return _gains(data, "category:", _PAPER_CATEGORIES, "Category")


def gain_by_quartile(data: Data) -> Drawing:
    """Figure 10b: CE gain by quartile of the Baseline's loss on a source."""
    return _gains(data, "quartile:", _PAPER_QUARTILES, "Quartile of Baseline loss (1: easiest)")


def _gains(data: Data, prefix: str, paper: dict[str, float], label: str) -> Drawing:
    data.need("ce_gain")
    frame = data.rows(
        f"CE gain by {prefix.rstrip(':')}",
        "SELECT subset, budget, sparsity, 100 * gain AS gain, 100 * low AS low, 100 * high AS high FROM ce_gain "
        "WHERE starts_with(subset, ?) ORDER BY subset, budget, sparsity",
        prefix,
    )
    frame["name"] = frame["subset"].str.removeprefix(prefix)
    frame["paper"] = frame["name"].map(paper)
    if prefix == "category:":
        frame = frame.sort_values("gain", ascending=False, kind="stable")
    names = list(dict.fromkeys(frame["name"]))
    figure, axis = plt.subplots(figsize=(WIDTH, 2.9))
    places = frame["name"].map({name: i for i, name in enumerate(names)})
    axis.bar(places, frame["gain"], width=0.55, color=RED, alpha=0.85)
    _whiskers(axis, places, frame)
    axis.plot(places, frame["paper"], **PAPER)
    axis.axhline(0, color=GREY, linewidth=0.8)
    axis.set_xticks(range(len(names)), names)
    axis.set(xlabel=label, ylabel="CE gain (%)")
    handles = [Line2D([], [], color=RED, linewidth=6, label="this study, 95% interval")]
    legend_above(figure, [*handles, Line2D([], [], label="paper (1e21 FLOPs)", **PAPER)])
    budget, sparsity = frame["budget"].iloc[0], frame["sparsity"].iloc[0]
    return Drawing(figure, frame, f"At {budget:.1e} FLOPs and S = {sparsity}%.")


def _whiskers(axis: Axes, places: pd.Series, frame: pd.DataFrame) -> None:
    for place, low, high in zip(places, frame["low"], frame["high"], strict=True):
        if low == low and high == high:
            axis.plot([place, place], [low, high], color="black", linewidth=1.2)


def length_profile(data: Data) -> Drawing:
    """Figure 11a: normalised loss improvement by document length for three families of contrasts."""
    raise NotMeasured("Not measured: the laws stage writes no length profile.")


def shots(data: Data) -> Drawing:
    """Figure 11b: mean accuracy of the few-shot tasks against the number of demonstrations."""
    frame = _shots(data)
    common = frame.groupby("task")["shots"].agg(set)
    counts = set.intersection(*common) if len(common) else set()
    frame = frame[frame["shots"].isin(counts)]
    mean = frame.groupby(["arch", "shots"], as_index=False)["accuracy"].mean()
    figure, axis = plt.subplots(figsize=(WIDTH, 3.0))
    _shot_lines(axis, mean)
    axis.set(xlabel="Demonstrations k", ylabel="Mean accuracy (%)")
    legend_above(figure, pair_handles(line=True))
    return Drawing(figure, mean, f"{frame['task'].nunique()} tasks. {_gap_note(mean)}")


def dyck_shots(data: Data) -> Drawing:
    """Figure 11c: accuracy on Dyck languages."""
    frame = _shots(data)
    frame = frame[frame["task"].str.contains("dyck", case=False)]
    if frame.empty:
        raise NotMeasured(f"Not measured: the tasks of study {data.study.name} have no Dyck languages.")
    figure, axis = plt.subplots(figsize=(WIDTH, 3.0))
    mean = frame.groupby(["arch", "shots"], as_index=False)["accuracy"].mean()
    _shot_lines(axis, mean)
    axis.set(xlabel="Demonstrations k", ylabel="Accuracy (%)")
    legend_above(figure, pair_handles(line=True))
    last = mean[mean["shots"] == mean["shots"].max()].set_index("arch")["accuracy"]
    note = f"At k = {mean['shots'].max()}: " + ", ".join(
        f"{LOOKS[a].label} {last[a]:.1f}" for a in PAIR if a in last
    )
    return Drawing(figure, mean, f"{note} (the paper at k = 32: Baseline 26.4, SMELT 29.8).")


def task_shots(data: Data) -> Drawing:
    """Figure 24: one panel a few-shot task."""
    frame = _shots(data)
    tasks = sorted(frame["task"].unique())
    figure, axes = panels(len(tasks), columns=4, height=1.75, share_y=False, share_x=False)
    for axis, task in zip(axes, tasks, strict=True):
        _shot_lines(axis, frame[frame["task"] == task])
        axis.set_title(_short(task), fontsize=8)
    outer_labels(axes, "k", "Accuracy (%)")
    legend_above(figure, pair_handles(line=True))
    return Drawing(figure, frame)


def _short(task: str) -> str:
    name = task.removeprefix("bigbench_").removeprefix("local_").replace("_", " ")
    return name if len(name) <= 20 else name[:19] + "…"


def _shots(data: Data) -> pd.DataFrame:
    """Return the accuracy in percent by task, architecture and k, averaged over cells and seeds."""
    data.need("task_scores")
    return data.rows(
        "task scored with several numbers of demonstrations",
        "WITH last AS (SELECT run, max(horizon) AS horizon FROM task_scores GROUP BY run), "
        "scores AS (SELECT r.arch, r.run, t.task, t.shots, avg(t.value) AS value FROM task_scores t "
        "JOIN last USING (run, horizon) JOIN runs r USING (run) WHERE t.metric = 'accuracy' "
        "AND r.grouping = 'grid' GROUP BY ALL), "
        "swept AS (SELECT task FROM scores GROUP BY task HAVING count(DISTINCT shots) > 1) "
        "SELECT arch, task, shots, 100 * avg(value) AS accuracy, count(*) AS runs FROM scores "
        "WHERE task IN (SELECT task FROM swept) GROUP BY ALL ORDER BY task, arch, shots",
    )


def _shot_lines(axis: Axes, frame: pd.DataFrame) -> None:
    counts = sorted(frame["shots"].unique())
    places = {count: i for i, count in enumerate(counts)}
    for arch in PAIR:
        part = frame[frame["arch"] == arch].sort_values("shots")
        axis.plot(part["shots"].map(places), part["accuracy"], **LOOKS[arch].points(), linewidth=1.2)
    axis.set_xticks(range(len(counts)), counts)


def _gap_note(mean: pd.DataFrame) -> str:
    table = mean.pivot(index="shots", columns="arch", values="accuracy")
    if not set(PAIR) <= set(table):
        return ""
    gap = table["smelt"] - table["baseline"]
    return (
        f"SMELT minus Baseline: {gap.iloc[0]:+.1f} pp at k = {gap.index[0]}, {gap.iloc[-1]:+.1f} pp at "
        f"k = {gap.index[-1]} (the paper: 0.9 at k = 0, 1.9 from k = 1)."
    )
