"""Domains, document length and demonstrations: figures 10, 11 and 24."""

from __future__ import annotations

from collections.abc import Iterable

import pandas as pd
from matplotlib.axes import Axes
from matplotlib.lines import Line2D
from matplotlib.patches import Patch

from smelt.report.data import Data, NotMeasured
from smelt.report.output import Drawing
from smelt.report.style import (
    AMBER,
    GREY,
    GRID,
    INK,
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
from smelt.report.suite import RAW, cut_prompts, cut_share_note, mostly_cut, suite_note
from smelt.report.tables.formats import counted, interval, joined, scientific
from smelt.report.whiskers import cut_note, frame_axis, readable, whiskers

# Printed in section 7 of the paper, percent.
_PAPER_CATEGORIES = {"Code": 20.4, "Finance": 16.8, "Math/STEM": 16.6, "Knowledge": 14.9, "Web": 14.8}
_PAPER_QUARTILES = {"1": 18.0, "2": 16.3, "3": 13.8, "4": 15.9}
# Mean improvement of long over that of short documents.
_PAPER_RATIOS = {"smelt": 1.52, "experts": 0.88, "parameters": 0.98}
# Intervals of accuracies are drawn at least so many points beyond the lines.
_ROOM = 5.0
_FAMILIES = {
    "smelt": ("SMELT against Baseline", {"color": RED, "marker": "s"}),
    "experts": ("more experts", {"color": AMBER, "marker": "^", "linestyle": "--"}),
    "parameters": ("more parameters", {"color": INK, "marker": "D", "linestyle": ":", "markersize": 4.5}),
}


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
        """
        SELECT subset, budget, sparsity, 100 * gain AS gain, 100 * low AS low, 100 * high AS high
        FROM ce_gain WHERE starts_with(subset, ?) ORDER BY subset, budget, sparsity
        """,
        prefix,
    )
    frame["name"] = frame["subset"].str.removeprefix(prefix)
    frame["paper"] = frame["name"].map(paper)
    if prefix == "category:":
        frame = frame.sort_values("gain", ascending=False, kind="stable")
    names = list(dict.fromkeys(frame["name"]))
    figure, axis = plt.subplots(figsize=(WIDTH, 2.9))
    places = frame["name"].map({name: i for i, name in enumerate(names)})
    axis.bar(places, frame["gain"], width=0.55, color=RED, alpha=0.85, edgecolor="none")
    points = [0.0, *frame["gain"], *frame["paper"]]
    limits = readable(points)
    cut = whiskers(axis, places, frame["low"], frame["high"], limits, INK)
    frame_axis(axis, points, frame["low"], frame["high"], limits)
    axis.plot(places + 0.16, frame["paper"], **PAPER)
    axis.axhline(0, color=GREY, linewidth=0.8)
    axis.set_xticks(range(len(names)), names)
    axis.set(xlabel=label, ylabel="CE gain (%)")
    handles = [Line2D([], [], color=RED, linewidth=6, label="this study, 95% interval")]
    legend_above(figure, [*handles, Line2D([], [], label="paper (1e21 FLOPs)", **PAPER)])
    budget, sparsity = frame["budget"].iloc[0], frame["sparsity"].iloc[0]
    note = f"At {scientific(budget)} FLOPs and S = {sparsity}%."
    beyond = frame[(frame["low"] < limits[0]) | (frame["high"] > limits[1])]
    ends = [f"{row['name']} from {interval(row.low, row.high, 0)}%" for _, row in beyond.iterrows()]
    ends = f"Cut: {', '.join(ends)}." if ends else ""
    return Drawing(figure, frame, joined(note, cut_note(cut), ends, data.law_doubt()))


def length_profile(data: Data) -> Drawing:
    """Figure 11a: normalised loss improvement by document length for three families of contrasts."""
    data.need("length_profile")
    frame = data.frame("SELECT * FROM length_profile ORDER BY family, bucket")
    figure, axis = plt.subplots(figsize=(WIDTH, 3.0))
    buckets = sorted(frame["bucket"].unique())
    places = {bucket: i for i, bucket in enumerate(buckets)}
    drawn = frame.dropna(subset="normalised")
    limits = readable([1.0, *drawn["normalised"]])
    handles, cut = [], 0
    for beside, (family, (label, style)) in zip((-0.06, 0.0, 0.06), _FAMILIES.items(), strict=True):
        part = drawn[drawn["family"] == family]
        if part.empty:
            continue
        x = part["bucket"].map(places) + beside
        axis.plot(x, part["normalised"], **style)
        cut += whiskers(axis, x, part["low"], part["high"], limits, style["color"])
        handles.append(Line2D([], [], label=label, **style))
    axis.axhline(1, color=GREY, linewidth=0.8)
    frame_axis(axis, [1.0, *drawn["normalised"]], drawn["low"], drawn["high"], limits)
    axis.set_xticks(range(len(buckets)), buckets)
    axis.set(xlabel="Document length (tokens, upper bound)", ylabel="Improvement / its mean")
    legend_above(figure, handles)
    return Drawing(figure, frame, joined(_absent_note(frame), _length_note(data), cut_note(cut)))


def _absent_note(frame: pd.DataFrame) -> str:
    """Tell how many contrasts cannot be scaled to a mean of 1, because they do not improve on average."""
    counts = frame.groupby("family")[["contrasts", "excluded"]].max()
    absent = [
        f"{label} {own['excluded']} of {own.sum()}"
        for family, (label, _) in _FAMILIES.items()
        if family in counts.index and (own := counts.loc[family])["excluded"]
    ]
    return f"Contrasts left out, whose loss does not fall on average: {', '.join(absent)}." if absent else ""


def _length_note(data: Data) -> str:
    ratios = data.frame("SELECT * FROM law_contrasts WHERE starts_with(contrast, 'length_ratio:')")
    ratios = ratios.set_index("contrast")["value"].dropna()
    shown = [
        f"{label} {ratios[f'length_ratio:{family}']:.2f} (the paper: {_PAPER_RATIOS[family]})"
        for family, (label, _) in _FAMILIES.items()
        if f"length_ratio:{family}" in ratios
    ]
    return f"Long over short documents: {', '.join(shown)}." if shown else "No ratio is defined."


def shots(data: Data) -> Drawing:
    """Figure 11b: mean accuracy of the few-shot tasks against the number of demonstrations."""
    frame = _curves(data)
    mean = frame[frame["task"] == "mean"]
    if mean.empty:
        raise NotMeasured(
            f"Not measured: no number of demonstrations of study {data.study.name} has every task."
        )
    tasks = frame[frame["task"] != "mean"]["task"].unique()
    figure, axis = plt.subplots(figsize=(WIDTH, 3.0))
    prompts = _prompts(data, tasks)
    shaded = mostly_cut(prompts)
    cut = _shot_lines(axis, mean, shaded)
    axis.set(xlabel="Demonstrations k", ylabel="Mean accuracy (%)")
    legend_above(figure, _shot_handles(bool(shaded)))
    note = joined(f"{counted(len(tasks), 'task')}.", _gap_note(mean), _shot_note(data, prompts, cut))
    return Drawing(figure, mean, note)


def dyck_shots(data: Data) -> Drawing:
    """Figure 11c: accuracy on Dyck languages."""
    frame = _curves(data)
    frame = frame[frame["task"].str.contains("dyck", case=False)]
    if frame.empty:
        raise NotMeasured(f"Not measured: the tasks of study {data.study.name} have no Dyck languages.")
    figure, axis = plt.subplots(figsize=(WIDTH, 3.0))
    prompts = _prompts(data, frame["task"].unique())
    shaded = mostly_cut(prompts)
    cut = _shot_lines(axis, frame, shaded)
    axis.set(xlabel="Demonstrations k", ylabel="Accuracy (%)")
    legend_above(figure, _shot_handles(bool(shaded)))
    last = frame[frame["shots"] == frame["shots"].max()].set_index("arch")["accuracy"]
    values = ", ".join(f"{LOOKS[arch].label} {last[arch]:.1f}" for arch in PAIR if arch in last)
    note = f"At k = {frame['shots'].max()}: {values} (the paper at k = 32: Baseline 26.4, SMELT 29.8)."
    return Drawing(figure, frame, joined(note, _shot_note(data, prompts, cut)))


def task_shots(data: Data) -> Drawing:
    """Figure 24: one panel a few-shot task; a star marks a significant gain at the most demonstrations."""
    frame = _curves(data)
    frame = frame[frame["task"] != "mean"]
    tests = data.frame("SELECT task, significant FROM shot_tests").set_index("task")["significant"]
    tasks = sorted(frame["task"].unique())
    figure, axes = panels(len(tasks), columns=4, height=1.75, share_y=False, share_x=False)
    prompts, cut, shaded = _prompts(data, tasks), 0, False
    for axis, task in zip(axes, tasks, strict=True):
        mostly = mostly_cut(prompts[prompts["task"] == task])
        cut += _shot_lines(axis, frame[frame["task"] == task], mostly)
        shaded |= bool(mostly)
        axis.set_title(_short(task) + (" *" if tests.get(task, False) else ""), fontsize=8)
    outer_labels(axes, "k", "Accuracy (%)")
    legend_above(figure, _shot_handles(bool(shaded)))
    gaining = f"{int(tests.sum())} of {counted(len(tests), 'task')}"
    note = f"{gaining} gain significantly (the paper: 14 of 16)."
    return Drawing(figure, frame, joined(note, _shot_note(data, prompts, cut)))


def _prompts(data: Data, tasks: Iterable[str]) -> pd.DataFrame:
    prompts = cut_prompts(data)
    return prompts[prompts["task"].isin(list(tasks))]


def _shot_note(data: Data, prompts: pd.DataFrame, cut: int) -> str:
    return joined(suite_note(data, RAW), cut_share_note(data, prompts), cut_note(cut))


def _shot_handles(shaded: bool) -> list:
    """Return legend handles of the pair and, on request, of shaded numbers of demonstrations."""
    return pair_handles(line=True) + [Patch(color=GRID, label="most prompts cut")] * shaded


def _short(task: str) -> str:
    name = task.removeprefix("bigbench_").removeprefix("local_").replace("_", " ")
    return name if len(name) <= 20 else name[:19] + "…"


def _curves(data: Data) -> pd.DataFrame:
    """Return accuracies in percent by task, architecture and number of demonstrations."""
    data.need("shot_curves")
    return data.frame(
        """
        SELECT arch, task, shots, 100 * accuracy AS accuracy, 100 * low AS low, 100 * high AS high, seeds,
          cells
        FROM shot_curves ORDER BY task, arch, shots
        """
    )


def _shot_lines(axis: Axes, frame: pd.DataFrame, shaded: set[int]) -> int:
    """Draw accuracy against k, evenly spaced, with `shaded` numbers of k; return how many intervals are cut.

    No interval leaves 0 to 100. The pair stand a little apart, so that their intervals do not lie on each
    other.
    """
    counts = sorted(frame["shots"].unique())
    places = {count: i for i, count in enumerate(counts)}
    frame = frame.assign(low=frame["low"].clip(0, 100), high=frame["high"].clip(0, 100))
    limits = readable(frame["accuracy"], _ROOM)
    for count in shaded & places.keys():
        axis.axvspan(places[count] - 0.5, places[count] + 0.5, color=GRID, linewidth=0, zorder=0)
    cut = 0
    for arch, beside in zip(PAIR, (-0.04, 0.04), strict=True):
        part = frame[frame["arch"] == arch].sort_values("shots")
        x = part["shots"].map(places) + beside
        axis.plot(x, part["accuracy"], **LOOKS[arch].points(), linewidth=1.2)
        cut += whiskers(axis, x, part["low"], part["high"], limits, LOOKS[arch].colour)
    around = [max(0.0, frame["accuracy"].min() - 1), min(100.0, frame["accuracy"].max() + 1)]
    frame_axis(axis, [*around, *frame["accuracy"]], frame["low"], frame["high"], limits)
    axis.set_xlim(-0.5, len(counts) - 0.5)
    axis.set_xticks(range(len(counts)), counts)
    return cut


def _gap_note(mean: pd.DataFrame) -> str:
    table = mean.pivot(index="shots", columns="arch", values="accuracy")
    if not set(PAIR) <= set(table):
        return ""
    gap = table["smelt"] - table["baseline"]
    return (
        f"SMELT minus Baseline: {gap.iloc[0]:+.1f} pp at k = {gap.index[0]}, {gap.iloc[-1]:+.1f} pp at "
        f"k = {gap.index[-1]} (the paper: 0.9 at k = 0, 1.9 from k = 1)."
    )
