"""Loss against compute and the fitted law: figures 1b, 3 and 4."""

from __future__ import annotations

import itertools
from typing import Any

import numpy as np
import pandas as pd
from matplotlib.axes import Axes
from matplotlib.lines import Line2D
from matplotlib.patches import Patch

from smelt.laws import Surface, ce_gain, frontier_loss
from smelt.report.data import PAIRS, Data, NotMeasured
from smelt.report.output import Drawing
from smelt.report.style import (
    GAP,
    GREY,
    LOOKS,
    MARKERS,
    PAIR,
    SCALES,
    WIDTH,
    legend_above,
    log_axis,
    outer_labels,
    pair_handles,
    panels,
    plt,
    power_label,
    span_limits,
    sparsity_title,
    tokens_label,
)
from smelt.report.tables.formats import counted, joined, scientific

COMPUTE = "Training compute (FLOPs)"
# Columns of the law's coefficients and their names in section 5.
_COEFFICIENTS = {"E": "E", "A": "A", "K": "K", "exp_a": "a", "exp_b": "b", "exp_c": "c"}


def fitted(data: Data) -> dict[str, Surface]:
    """Return the fitted surface of each architecture, from all sparse endpoints, where it can be believed."""
    frame = data.frame(
        "SELECT * FROM law_fits WHERE subset = 'all' AND converged AND E IS NOT NULL ORDER BY arch"
    )
    return {
        row["arch"]: Surface(**{name: row[column] for column, name in _COEFFICIENTS.items()})
        for row in frame.to_dict("records")
    }


def _need_law(data: Data) -> dict[str, Surface]:
    data.need("law_fits")
    laws = fitted(data)
    if not laws:
        notes = data.frame("SELECT DISTINCT note FROM law_fits WHERE subset = 'all' ORDER BY note")["note"]
        raise NotMeasured(
            f"Not measured: no fitted law of study {data.study.name} can be believed ({notes[0]})."
        )
    return laws


def drawn_surfaces(data: Data, arch: str) -> Surface | None:
    """Return the bootstrap draws of an architecture as one surface of arrays [draws, 1], or None."""
    frame = data.frame("SELECT * FROM law_draws WHERE arch = ? AND NOT degenerate ORDER BY draw", arch)
    if frame.empty:
        return None
    return Surface(**{name: frame[column].to_numpy()[:, None] for column, name in _COEFFICIENTS.items()})


def loss_by_sparsity(data: Data) -> Drawing:
    """Figure 3: every endpoint's validation loss, one panel a sparsity, with the fitted frontiers."""
    frame, laws = data.endpoints(), fitted(data)
    figure, axes = panels(len(data.sparsities), height=2.4)
    for axis, sparsity in zip(axes, data.sparsities, strict=True):
        part = frame[frame["sparsity"] == sparsity]
        _endpoints(axis, part, part["val_loss"])
        if sparsity:
            _frontiers(axis, laws, part, offset=False)
        axis.set_ylim(*span_limits(frame["val_loss"]))
        axis.set_title(sparsity_title(sparsity))
        log_axis(axis, frame["flops"], power_label)
    outer_labels(axes, COMPUTE, "Validation loss (nats per token)")
    legend_above(figure, [*pair_handles(), *_law_handles(laws)])
    return Drawing(figure, _drawn(frame, "val_loss"), _law_note(data, laws))


def reducible_loss(data: Data) -> Drawing:
    """Figure 4: loss above the fitted irreducible loss, where the law is close to straight lines."""
    laws = _need_law(data)
    frame = data.endpoints()
    frame = frame[frame["arch"].isin(laws.keys()) & (frame["sparsity"] > 0)].copy()
    frame["reducible_loss"] = frame["val_loss"] - frame["arch"].map(
        {arch: law.E for arch, law in laws.items()}
    )
    sparse = [sparsity for sparsity in data.sparsities if sparsity]
    figure, axes = panels(len(sparse), columns=3, height=2.6)
    for axis, sparsity in zip(axes, sparse, strict=True):
        part = frame[(frame["sparsity"] == sparsity) & (frame["reducible_loss"] > 0)]
        _endpoints(axis, part, part["reducible_loss"])
        _frontiers(axis, laws, part, offset=True)
        axis.set_title(sparsity_title(sparsity))
        log_axis(axis, frame["flops"], power_label)
        positive = frame["reducible_loss"][frame["reducible_loss"] > 0]
        log_axis(axis, positive, lambda value: f"{value:.2g}", vertical=True)
    outer_labels(axes, COMPUTE, "Loss − E (nats per token)")
    legend_above(figure, [*pair_handles(), *_law_handles(laws)])
    below = int((frame["reducible_loss"] <= 0).sum())
    note = f"Below the fitted E, where it cannot be drawn: {counted(below, 'endpoint')}." if below else ""
    return Drawing(figure, _drawn(frame, "reducible_loss"), joined(note, _own_e(laws), data.law_doubt()))


def frontier(data: Data) -> Drawing:
    """Figure 1b: both frontiers at the middle sparse level, with the bands of the cell bootstrap."""
    laws = _need_law(data)
    frame = data.endpoints()
    sparse = sorted(sparsity for sparsity in frame["sparsity"].unique() if sparsity)
    if not sparse:
        raise NotMeasured(f"Not measured: study {data.study.name} has no endpoint at a sparsity above 0.")
    sparsity = sparse[len(sparse) // 2]
    part = frame[frame["sparsity"] == sparsity]
    compute = _compute_range(part)
    figure, axis = plt.subplots(figsize=(WIDTH, 3.4))
    _endpoints(axis, part, part["val_loss"])
    rows = []
    for arch, law in laws.items():
        look = LOOKS[arch]
        curve = frontier_loss(law, compute, sparsity / 100)
        axis.plot(compute, curve, color=look.colour)
        low, high = np.full_like(curve, np.nan), np.full_like(curve, np.nan)
        if (draws := drawn_surfaces(data, arch)) is not None:
            low, high = np.percentile(frontier_loss(draws, compute, sparsity / 100), (2.5, 97.5), axis=0)
            axis.fill_between(compute, low, high, color=look.colour, alpha=0.13, linewidth=0)
        columns = {"flops": compute, "frontier_loss": curve, "low": low, "high": high}
        rows.append(pd.DataFrame({"arch": arch, "sparsity": sparsity, **columns}))
    log_axis(axis, compute, power_label)
    axis.set(xlabel=COMPUTE, ylabel="Validation loss (nats per token)")
    axis.set_ylim(*span_limits(part["val_loss"], 0.08))
    axis.set_title(sparsity_title(sparsity))
    bands = Patch(color=GREY, alpha=0.3, linewidth=0, label="95% bands")
    legend_above(figure, [*pair_handles(), *_law_handles(laws, "-"), bands])
    note = joined(_gain_note(laws, compute, sparsity), data.law_doubt())
    return Drawing(figure, pd.concat(rows, ignore_index=True), note)


def _gain_note(laws: dict[str, Surface], compute: np.ndarray, sparsity: int) -> str:
    if not set(PAIR) <= laws.keys():
        return ""
    gain = float(ce_gain(laws["smelt"], laws["baseline"], compute[-1], sparsity / 100))
    more = "fewer" if gain > 0 else "more"
    return (
        f"At {scientific(compute[-1])} FLOPs SMELT's frontier needs {abs(gain):.0%} {more} FLOPs for the "
        "same loss."
    )


def _endpoints(axis: Axes, frame: pd.DataFrame, values: pd.Series) -> None:
    """Draw one marker an endpoint, with a thin line along the horizons of a run."""
    for arch in PAIR:
        own = frame[frame["arch"] == arch]
        for _, run in own.groupby("run", sort=False):
            line = LOOKS[arch].points() | {"linewidth": 0.6, "alpha": 0.9}
            axis.plot(run["flops"], values[run.index], **line)


def _compute_range(frame: pd.DataFrame) -> np.ndarray:
    return np.geomspace(frame["flops"].min(), frame["flops"].max(), 60)


def _frontiers(axis: Axes, laws: dict[str, Surface], frame: pd.DataFrame, offset: bool) -> None:
    if frame.empty:
        return
    compute = _compute_range(frame)
    for arch, law in laws.items():
        curve = frontier_loss(law, compute, frame["sparsity"].iloc[0] / 100) - (law.E if offset else 0.0)
        axis.plot(compute, curve, color=LOOKS[arch].colour, linestyle=(0, (4, 2)), linewidth=1.1)


def _law_handles(laws: dict[str, Surface], style: Any = (0, (4, 2))) -> list[Line2D]:
    return [
        Line2D([], [], color=LOOKS[arch].colour, linestyle=style, label=f"{LOOKS[arch].label}, frontier")
        for arch in PAIR
        if arch in laws
    ]


def _law_note(data: Data, laws: dict[str, Surface]) -> str:
    nothing = "No fitted law of these endpoints can be believed, so no frontier is drawn."
    return data.law_doubt() if laws else nothing


def _own_e(laws: dict[str, Surface]) -> str:
    """Tell what was taken off each architecture: where it differs, heights cannot be compared."""
    taken = ", ".join(f"{law.E:.2f} nats ({LOOKS[arch].label})" for arch, law in laws.items())
    return f"E taken off: {taken}."


def _drawn(frame: pd.DataFrame, value: str) -> pd.DataFrame:
    return frame[["run", "scale", "sparsity", "arch", "seed", "horizon", "tokens", "flops", value]]


def gaps(data: Data) -> Drawing:
    """Figure P2: SMELT minus Baseline at every endpoint, on the same tokens; below zero SMELT is better."""
    data.need("endpoints")
    frame = data.ordered(
        data.rows(
            "pairs of endpoints",
            PAIRS
            + """
            SELECT scale, sparsity, tokens, avg(flops) AS flops, avg(gap) AS gap,
              stddev_samp(gap) AS deviation, count(*) AS seeds
            FROM pairs GROUP BY scale, sparsity, tokens ORDER BY ALL
            """,
        )
    )
    colours = dict(zip(data.scales, itertools.cycle(SCALES), strict=False))
    markers = dict(zip(data.scales, itertools.cycle(MARKERS), strict=False))
    figure, axes = panels(len(data.sparsities), height=2.2)
    for axis, sparsity in zip(axes, data.sparsities, strict=True):
        axis.axhline(0, color=GREY, linewidth=0.9)
        for scale in data.scales:
            part = frame[(frame["scale"] == scale) & (frame["sparsity"] == sparsity)]
            axis.errorbar(
                part["tokens"],
                part["gap"],
                yerr=part["deviation"].fillna(0),
                color=colours[scale],
                marker=markers[scale],
                markersize=4,
                elinewidth=0.8,
            )
        axis.set_title(sparsity_title(sparsity))
        log_axis(axis, frame["tokens"], tokens_label)
    outer_labels(axes, "Tokens seen", GAP)
    legend_above(
        figure,
        [Line2D([], [], color=colours[s], marker=markers[s], markersize=4, label=s) for s in data.scales],
    )
    better = int((frame["gap"] < 0).sum())
    bars = " Bars: one standard deviation between seeds." if (frame["seeds"] > 1).any() else ""
    note = f"SMELT has the lower loss at {better} of {counted(len(frame), 'point')}.{bars}"
    error = data.interval_note("loss_gap", "one gap at the last horizon")
    return Drawing(figure, frame, joined(note, error))
