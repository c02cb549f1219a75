"""Benchmarks: figures 1c, 5-9."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pandas as pd
import seaborn as sns
from matplotlib.lines import Line2D
from scipy.special import expit

from smelt.report.data import Data
from smelt.report.output import Drawing
from smelt.report.style import (
    GREY,
    INK,
    LOOKS,
    PAIR,
    WIDTH,
    legend_above,
    log_axis,
    outer_labels,
    pair_handles,
    panels,
    plt,
    power_label,
    sparsity_title,
)
from smelt.report.suite import RAW, suite_note
from smelt.report.tables.formats import counted, joined

_COMPUTE = "Training compute (FLOPs)"
_BASELINES = "random baselines that centre Core: {}"
_METRICS = {
    "completion": ("Completion", "Completion (nats per token)", 1.0),
    "core": ("Core", "Core (centred accuracy, %)", 100.0),
    "mmlu": ("MMLU", "MMLU accuracy (%)", 100.0),
}
# Claims C8 to C10.
_PAPER_WINS = {
    "completion": "the paper: 96 of 96",
    "core": "the paper: 83 of 96",
    "mmlu": "the paper: 29 of 30 where the Baseline is 10 points above chance",
}


def completion(data: Data) -> Drawing:
    """Figure 5: cross entropy of the gold answers of the free-form tasks; lower is better."""
    return _by_sparsity(data, "completion")


def core(data: Data) -> Drawing:
    """Figure 6: mean centred accuracy of the suite."""
    return _by_sparsity(data, "core", line=0.0)


def mmlu(data: Data) -> Drawing:
    """Figure 7: accuracy of the suite's MMLU."""
    return _by_sparsity(data, "mmlu", line=25.0)


def _scored(data: Data, metric: str) -> pd.DataFrame:
    """Return the endpoints that have the metric, in the unit that is drawn."""
    data.need("endpoints")
    frame = data.rows(
        f"{_METRICS[metric][0]} score (suite {data.study.evaluation.suite})",
        f"""
        SELECT r.cell, r.scale, r.sparsity, r.arch, r.seed, e.run, e.horizon, e.tokens, e.flops,
          e.val_loss, e.suite, e.baseline_version, e.{metric} AS value
        FROM endpoints e JOIN runs r USING (run)
        WHERE r.grouping = 'grid' AND e.{metric} IS NOT NULL ORDER BY r.sparsity, r.arch, r.seed,
          e.tokens, r.run
        """,
    )
    frame["value"] *= _METRICS[metric][2]
    return data.ordered(frame)


def _by_sparsity(data: Data, metric: str, line: float | None = None) -> Drawing:
    frame = _scored(data, metric)
    figure, axes = panels(len(data.sparsities), height=2.3)
    for axis, sparsity in zip(axes, data.sparsities, strict=True):
        part = frame[frame["sparsity"] == sparsity]
        for arch in PAIR:
            for _, run in part[part["arch"] == arch].groupby("run", sort=False):
                axis.plot(run["flops"], run["value"], **LOOKS[arch].points(), linewidth=0.6)
        if line is not None:
            axis.axhline(line, color=GREY, linestyle=":", linewidth=1)
        log_axis(axis, frame["flops"], power_label)
        axis.set_title(sparsity_title(sparsity))
    outer_labels(axes, _COMPUTE, _METRICS[metric][1])
    handles = pair_handles()
    if line is not None:
        handles.append(Line2D([], [], color=GREY, linestyle=":", label="chance"))
    legend_above(figure, handles)
    note = suite_note(data, _BASELINES if metric == "core" else "the score uses no random baseline")
    return Drawing(figure, frame, joined(_wins(frame, metric), note))


def _wins(frame: pd.DataFrame, metric: str) -> str:
    table = frame.pivot_table(index=["cell", "seed", "horizon"], columns="arch", values="value")
    if not set(PAIR) <= set(table):
        return ""
    table = table.dropna(subset=list(PAIR))
    gap = (table["smelt"] - table["baseline"]) * (-1 if metric == "completion" else 1)
    ties = f", equal in {tied}" if (tied := int((gap == 0).sum())) else ""
    return f"SMELT is better in {int((gap > 0).sum())} of {len(gap)} pairs{ties} ({_PAPER_WINS[metric]})."


def calibration(data: Data) -> Drawing:
    """Figure 8: each benchmark against validation loss with the Baseline's sigmoid."""
    data.need("endpoints", "calibration")
    curves = data.frame("SELECT * FROM calibration ORDER BY metric").set_index("metric")
    shown = [metric for metric in _METRICS if metric in curves.index]
    figure, grid = plt.subplots(1, len(shown), figsize=(WIDTH, 2.9), squeeze=False)
    frames, notes = [], []
    for axis, metric in zip(grid[0], shown, strict=True):
        frame, curve = _scored(data, metric), curves.loc[metric]
        for arch in PAIR:
            part = frame[frame["arch"] == arch]
            small = {"markersize": 0.7 * LOOKS[arch].size, "markeredgewidth": 0.8}  # 96 of each overlap
            axis.plot(part["val_loss"], part["value"], linestyle="none", **LOOKS[arch].points() | small)
        loss = np.linspace(frame["val_loss"].min(), frame["val_loss"].max(), 100)
        axis.plot(loss, _sigmoid(curve, loss) * _METRICS[metric][2], color=INK, linewidth=1)
        axis.set_xlabel("Validation loss (nats)")
        axis.set_title(_METRICS[metric][1], fontsize=8.5)
        axis.invert_xaxis()
        frames.append(frame.assign(metric=metric))
        notes.append(f"{_METRICS[metric][0]} {curve['r2']:.3f}")
    legend_above(figure, [*pair_handles(), Line2D([], [], color=INK, label="sigmoid fitted on the Baseline")])
    note = f"R² of the fits: {', '.join(notes)} (the paper: Completion 0.997, Core 0.974, MMLU 0.911)."
    note = joined(note, _doubt(data, shown), suite_note(data, _BASELINES))
    return Drawing(figure, pd.concat(frames, ignore_index=True), note)


def _sigmoid(curve: pd.Series, loss: np.ndarray) -> np.ndarray:
    """Section 6: b + a / (1 + exp(-d alpha (loss - tau)))."""
    return curve["b"] + curve["a"] * expit(curve["direction"] * curve["alpha"] * (loss - curve["tau"]))


def residuals_by_scale(data: Data) -> Drawing:
    """Figure 9a: mean residual of SMELT at equal loss, benchmarks by scales."""
    frame = _residuals(data)
    labels = {
        metric: f"{name} ({'nats' if unit == 1 else 'pp'})" for metric, (name, _, unit) in _METRICS.items()
    }
    factor = frame["metric"].map({metric: unit for metric, (_, _, unit) in _METRICS.items()})
    drawing = _residual_map(data, frame.assign(residual=frame["residual"] * factor), labels)
    doubt = _doubt(data, sorted(frame["metric"].unique()))
    return replace(drawing, note=joined(drawing.note, doubt, suite_note(data, _BASELINES)))


def residuals_by_category(data: Data) -> Drawing:
    """Figure 9b: mean residual of SMELT at equal loss, task categories by scales; one curve a task."""
    data.need("residuals", "task_scores")
    frame = data.rows(
        "residuals of single tasks",
        """
        WITH tasks AS (SELECT DISTINCT task, category FROM task_scores)
        SELECT r.scale, x.metric AS task, t.category AS metric, 100 * x.residual AS residual
        FROM residuals x JOIN runs r USING (run) JOIN tasks t ON x.metric = 'task:' || t.task
        WHERE r.grouping = 'grid' AND r.arch = 'smelt' ORDER BY t.category, x.metric, x.run, x.horizon
        """,
    )
    impossible = frame["residual"].abs() > 100
    frame = frame[~impossible]
    labels = {name: name.capitalize() for name in sorted(frame["metric"].unique())}
    drawing = _residual_map(data, frame, labels, "points of accuracy")
    count = int(impossible.sum())
    left_out = f"{count} residuals beyond 100 points, where a curve is extrapolated, are left out."
    doubt = _task_doubt(data, frame["task"])
    note = joined(drawing.note, doubt, left_out if count else "", suite_note(data, RAW))
    return replace(drawing, note=note)


def _doubt(data: Data, metrics: list[str]) -> str:
    """Tell which curves the ledger does not trust."""
    reasons = data.unsound("calibration:%")
    doubted = [
        f"{_METRICS[metric][0]}: {reason}"
        for metric in metrics
        if (reason := reasons.get(f"calibration:{metric}"))
    ]
    return f"Doubtful: {'; '.join(doubted)}; no claim is decided by it." if doubted else ""


def _task_doubt(data: Data, tasks: pd.Series) -> str:
    reasons, drawn = data.unsound("calibration:task:%"), set(tasks)
    doubted = sum(f"calibration:{task}" in reasons for task in drawn)
    return f"Doubtful: {doubted} of {counted(len(drawn), 'curve')} explain too little." if doubted else ""


def _residuals(data: Data) -> pd.DataFrame:
    data.need("residuals")
    return data.rows(
        "residuals of SMELT endpoints",
        """
        SELECT r.scale, x.metric, x.residual FROM residuals x JOIN runs r USING (run)
        WHERE r.grouping = 'grid' AND r.arch = 'smelt' AND x.metric IN ('completion', 'core', 'mmlu')
        ORDER BY x.metric, x.run, x.horizon
        """,
    )


def _residual_map(data: Data, frame: pd.DataFrame, labels: dict[str, str], unit: str = "") -> Drawing:
    table = frame.pivot_table(index="metric", columns="scale", values="residual", aggfunc="mean")
    rows = [metric for metric in labels if metric in table.index]
    table = table.reindex(index=rows, columns=[scale for scale in data.scales if scale in table])
    figure, axis = plt.subplots(figsize=(WIDTH, 0.9 + 0.42 * len(rows)))
    # Units differ from row to row, so each row is coloured by its own largest value.
    shade = table.div(table.abs().max(axis=1).replace(0, 1), axis=0)
    sns.heatmap(shade, annot=table, fmt="+.3f", cmap="RdBu", center=0, vmin=-1, vmax=1, cbar=False, ax=axis)
    axis.set_yticklabels([labels[row] for row in rows], rotation=0)
    axis.set(xlabel="Scale", ylabel="")
    drawn = table.rename_axis("metric").reset_index()
    start = f"Values in {unit}; positive" if unit else "Positive"
    note = f"{start} is better than a Baseline of the same loss; colour by row."
    return Drawing(figure, drawn, note)


def radar(data: Data) -> Drawing:
    """Figure 1c: mean accuracy by task category in the largest cell at its last endpoint."""
    data.need("task_scores")
    frame = data.rows(
        f"task scores of the largest cell, {data.scales[-1]}, S = {data.sparsities[-1]}%",
        """
        WITH last AS (SELECT run, max(horizon) AS horizon
        FROM task_scores GROUP BY run), tasks AS (SELECT r.arch, t.category, t.task, avg(t.value) AS
          accuracy, any_value(t.chance) AS chance
        FROM task_scores t JOIN last USING (run, horizon) JOIN runs r USING (run)
        WHERE t.metric = 'accuracy' AND r.grouping = 'grid' AND r.scale = ? AND r.sparsity = ?
        GROUP BY ALL) SELECT arch, category, 100 * avg(accuracy) AS accuracy, 100 * avg(chance) AS
          chance, count(*) AS tasks FROM tasks GROUP BY ALL ORDER BY category, arch
        """,
        data.scales[-1],
        data.sparsities[-1],
    )
    categories = sorted(frame["category"].unique())
    angles = np.linspace(0, 2 * np.pi, len(categories), endpoint=False)
    figure, axis = plt.subplots(figsize=(WIDTH, 4.2), subplot_kw={"projection": "polar"})
    for arch in PAIR:
        part = frame[frame["arch"] == arch].set_index("category").reindex(categories)
        _loop(axis, angles, part["accuracy"].to_numpy(), **LOOKS[arch].points(), linewidth=1.3)
    chance = frame.groupby("category")["chance"].first().reindex(categories).to_numpy()
    _loop(axis, angles, chance, color=GREY, linestyle=":", linewidth=1)
    axis.set_xticks(angles, [name.capitalize().replace(" ", "\n", 1) for name in categories], fontsize=8)
    axis.tick_params(axis="x", pad=4)
    # Texts beside the circle begin or end at it instead of running over it.
    for label, angle in zip(axis.get_xticklabels(), angles, strict=True):
        side = np.cos(angle)
        label.set_horizontalalignment("center" if abs(side) < 0.2 else "left" if side > 0 else "right")
    axis.yaxis.set_major_locator(plt.MaxNLocator(4))
    axis.set_rlabel_position(360 / len(categories) / 2)
    handles = [*pair_handles(line=True), Line2D([], [], color=GREY, linestyle=":", label="chance")]
    figure.legend(handles=handles, loc="outside lower center", ncols=3)
    note = f"Accuracy in %, scale {data.scales[-1]}, S = {data.sparsities[-1]}%, last endpoint."
    return Drawing(figure, frame, joined(note, suite_note(data, "chance is that of random baselines {}")))


def _loop(axis, angles: np.ndarray, values: np.ndarray, **style) -> None:
    axis.plot([*angles, angles[0]], [*values, values[0]], **style)
