"""Expert reuse and the diagnostics over the grid: figures 12 and 14."""

from __future__ import annotations

import itertools

import numpy as np
import pandas as pd
import seaborn as sns
from matplotlib.axes import Axes
from matplotlib.lines import Line2D
from matplotlib.patches import Patch

from smelt.report.data import Data
from smelt.report.figures.residual import visits_note
from smelt.report.output import Drawing
from smelt.report.style import (
    AMBER,
    INK,
    LIGHT,
    LOOKS,
    WIDTH,
    legend_above,
    outer_labels,
    panels,
    plt,
    sparsity_title,
)
from smelt.report.tables.formats import counted

# Figure 14: panel title and diagnostic; the last four are norm ratios, visit 2 over visit 1.
_PANELS = (
    ("a  top-8 tokens", "top8_overlap"),
    ("b  attention mass", "mass_overlap"),
    ("c  experts / k", "expert_overlap"),
    ("d  update cosine", "update_cosine"),
    ("e  update norm", "update_ratio"),
    ("f  attention write", "attention_ratio"),
    ("g  MoE write", "moe_ratio"),
    ("h  norm output", "norm_ratio"),
)


def shared_experts(data: Data) -> Drawing:
    """Figure 12: how many of a token's k experts the second visit shares with the first."""
    data.need("routing_overlap")
    frame = data.rows(
        "looped grid runs with routing",
        """
        SELECT r.sparsity, o.shared, avg(o.fraction) AS fraction, min(o.low) AS low, max(o.high) AS high,
          avg(o.chance) AS chance, avg(o.chance_mean) AS chance_mean
        FROM routing_overlap o JOIN runs r USING (run)
        WHERE r.grouping = 'grid' AND r.arch = 'smelt' AND o.visit = 1
        GROUP BY ALL ORDER BY ALL
        """,
    )
    sparsities = sorted(frame["sparsity"].unique())
    figure, axes = panels(len(sparsities), columns=4, height=2.3)
    for axis, sparsity in zip(axes, sparsities, strict=True):
        part = frame[frame["sparsity"] == sparsity]
        axis.bar(
            part["shared"],
            part["fraction"],
            width=0.8,
            color=LOOKS["smelt"].colour,
            alpha=0.85,
            edgecolor="none",
        )
        axis.vlines(part["shared"], part["low"], part["high"], color=INK, linewidth=1)
        axis.plot(part["shared"], part["chance"], color=AMBER, marker=".", markersize=4, linewidth=1)
        axis.axvline(part["chance_mean"].iloc[0], color=INK, linestyle="--", linewidth=1)
        mean = float((part["shared"] * part["fraction"]).sum())
        axis.set_title(f"{sparsity_title(sparsity)}: mean {mean:.1f}")
        axis.set_xticks(range(0, int(part["shared"].max()) + 1, 2))
    outer_labels(axes, "Experts shared", "Fraction of tokens")
    handles = [
        Patch(color=LOOKS["smelt"].colour, alpha=0.85, label="measured"),
        Line2D([], [], color=INK, label="range over layers and scales"),
        Line2D([], [], color=AMBER, marker=".", label="two random routers"),
        Line2D([], [], color=INK, linestyle="--", label="mean by chance, k²/E"),
    ]
    legend_above(figure, handles)
    chosen = data.study.model.top_k
    note = f"A token has {chosen} experts here. The paper: nearly 8 of 8 shared at S = 0, 2 to 3 at 97%."
    return Drawing(figure, frame, note + visits_note(data))


def diagnostics(data: Data) -> Drawing:
    """Figure 14: eight numbers of every SMELT run, scales by sparsities."""
    data.need("diagnostics")
    frame = data.rows(
        "diagnostics of looped grid runs",
        """
        SELECT r.scale, r.sparsity, d.diagnostic, avg(d.value) AS value, min(d.low) AS low, max(d.high)
          AS high, avg(d.reference) AS reference
        FROM diagnostics d JOIN runs r USING (run)
        WHERE r.grouping = 'grid' AND r.arch = 'smelt'
        GROUP BY ALL ORDER BY r.scale, r.sparsity, d.diagnostic
        """,
    )
    figure, grid = plt.subplots(2, 4, figsize=(WIDTH, 1.6 + 0.9 * len(data.scales)))
    for axis, (title, name) in zip(grid.flat, _PANELS, strict=True):
        part = frame[frame["diagnostic"] == name]
        table = _grid(data, part, part["value"])
        arms = _grid(data, part, (part["high"] - part["low"]).astype(float) / 2)
        _heat(axis, table, arms, ratio=name.endswith("_ratio"))
        axis.set_title(title, fontsize=8.5)
    for axis in grid[1]:
        axis.set_xlabel("S (%)")
    for axis in grid[:, 0]:
        axis.set_ylabel("Scale")
    names = [name for _, name in _PANELS]
    note = f"± is half of the 95% interval over documents. {_ratio_note(frame)}"
    return Drawing(figure, frame[frame["diagnostic"].isin(names)], note + visits_note(data, mean=True))


def _grid(data: Data, part: pd.DataFrame, values: pd.Series) -> pd.DataFrame:
    """Return values as a table of scales by sparsities."""
    table = part.assign(shown=values).pivot(index="scale", columns="sparsity", values="shown")
    return table.reindex(index=data.scales, columns=data.sparsities)


def _heat(axis: Axes, table: pd.DataFrame, arms: pd.DataFrame, ratio: bool) -> None:
    """Draw one heat map of values with half of their intervals; ratios are coloured about 1."""
    if ratio:
        reach = float(np.nanmax(np.abs(np.log(table.to_numpy(dtype=float))), initial=0.1))
        colours = {"cmap": "RdBu_r", "norm": plt.matplotlib.colors.LogNorm(np.exp(-reach), np.exp(reach))}
    else:
        colours = {"cmap": "Blues", "vmin": 0, "vmax": 1}
    texts = [
        [
            "" if np.isnan(value) else f"{value:.2f}" + ("" if np.isnan(arm) else f"\n±{arm:.2f}")
            for value, arm in row
        ]
        for row in np.stack([table.to_numpy(dtype=float), arms.to_numpy(dtype=float)], axis=-1)
    ]
    sns.heatmap(
        table,
        ax=axis,
        annot=np.array(texts),
        fmt="",
        annot_kws={"fontsize": 6.5},
        cbar=False,
        linewidths=0.5,
        **colours,
    )
    axis.set(xlabel="", ylabel="")
    axis.tick_params(labelsize=7.5, length=0)
    axis.tick_params(axis="y", rotation=0)


def _ratio_note(frame: pd.DataFrame) -> str:
    ratios = frame[frame["diagnostic"].isin([name for _, name in _PANELS if name.endswith("_ratio")])]
    if ratios.empty:
        return ""
    above = int((ratios["value"] > 1).sum())
    return f"{above} of {len(ratios)} norm ratios are above 1 (the paper: all of 64)."


INTERVENTIONS = {
    "queries": "queries of visit 1",
    "keys": "keys of visit 1",
    "pattern": "attention pattern of visit 1",
    "values": "values of visit 1",
    "attention": "attention of visit 1",
    "routing": "experts of visit 1",
    "skip_attention": "no attention write",
    "skip_experts": "no expert write",
    "skip": "no second visit",
    "single_visit": "one visit at full strength",
}


def interventions(data: Data) -> Drawing:
    """Figure P3: what the loss loses when the second visit repeats or leaves out a part, by category."""
    data.need("interventions")
    sparsity = data.lowest_sparse
    frame = data.rows(
        f"interventions on SMELT runs at S = {sparsity}%",
        """
        SELECT i.intervention, i.category, avg(i.rise) AS rise, min(i.low) AS low, max(i.high) AS high,
          count(*) AS runs
        FROM interventions i JOIN runs r USING (run)
        WHERE r.grouping = 'grid' AND r.arch = 'smelt' AND r.sparsity = ? AND i.intervention <> 'none'
        GROUP BY ALL ORDER BY ALL
        """,
        sparsity,
    )
    names = [name for name in INTERVENTIONS if name in set(frame["intervention"])]
    categories = [name for name in sorted(frame["category"].unique()) if name != "all"]
    colours = dict(zip(categories, sns.color_palette("colorblind", len(categories)), strict=True))
    markers = dict(zip(categories, itertools.cycle("osD^vP*X"), strict=False))
    figure, axis = plt.subplots(figsize=(WIDTH, 0.9 + 0.55 * len(names)))
    # All text in the middle of a row, the categories about it.
    offsets = np.linspace(-0.36, 0.36, len(categories) + 1)
    rows = ["all", *categories]
    rows.insert(len(rows) // 2, rows.pop(0))
    for place, name in enumerate(names):
        part = frame[frame["intervention"] == name].set_index("category")
        if "all" in part.index:
            axis.barh(place, part.at["all", "rise"], color=LIGHT, height=0.86, edgecolor="none")
        for category, offset in zip(rows, offsets, strict=True):
            if category in part.index:
                look = {"color": colours.get(category, INK)}
                ends, height = part.loc[category, ["low", "high"]], [place + offset] * 2
                axis.plot(ends, height, **look, linewidth=1.6 if category == "all" else 1)
                if category != "all":
                    look |= {"marker": markers[category], "markersize": 4, "linestyle": "none"}
                    axis.plot(part.at[category, "rise"], height[0], **look)
    axis.set_yticks(range(len(names)), [INTERVENTIONS[name] for name in names])
    axis.invert_yaxis()
    axis.axvline(0, color=INK, linewidth=0.8)
    axis.set_xlabel("Rise of the loss (nats per token)")
    handles = [Patch(color=LIGHT, label="all text")]
    for category in categories:
        look = {"color": colours[category], "marker": markers[category]}
        handles.append(Line2D([], [], label=category, linewidth=1, markersize=4, **look))
    legend_above(figure, handles)
    runs = counted(frame["runs"].max(), "run")
    note = f"S = {sparsity}%, mean over {runs}; whiskers span the runs' 95% intervals, thick on all text."
    return Drawing(figure, frame, note + visits_note(data, mean=True))
