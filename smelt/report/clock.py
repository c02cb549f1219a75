"""What a study costs: the plan beside what was measured, and the two architectures against the clock."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

from smelt.budget.plan import choose_machine, make_plan
from smelt.report.contents import Item
from smelt.report.data import Data
from smelt.report.markup import missing_html
from smelt.report.output import Column, TableView, page_table
from smelt.report.tables.formats import (
    between,
    counted,
    fixed,
    integer,
    interval,
    joined,
    scientific,
    short,
    text,
)

# What a run is for, by its `grouping`.
_PURPOSES = {
    "grid": "grid",
    "span": "ablation of the span",
    "depth": "ablation of the depth",
    "loops": "ablation of the visits",
    "control": "unlooped control",
}
# Tokens per second over trunk and decay of a run; a run that was resumed on another device has two rows.
_PACE = """
    WITH pace AS (
      SELECT run, device, sum(seconds) AS seconds, sum(tokens_per_s * seconds) / sum(seconds) AS tokens_per_s
      FROM throughput WHERE seconds > 0 GROUP BY run, device)
"""


def plan(data: Data, folder: Path) -> dict[str, Any]:
    """Return sentences on cost, and the table of planned and measured cost by scale and purpose."""
    frame = data.ordered(
        data.frame(
            _PACE
            + """
            , trained AS (
              SELECT run, sum(seconds) AS seconds, any_value(device) AS device,
                sum(seconds * tokens_per_s) / sum(seconds) AS tokens_per_s FROM pace GROUP BY run)
            SELECT r.grouping, r.scale, count(*) AS runs, count(t.run) AS trained,
              any_value(r.tokens_planned) AS tokens, sum(r.flops_per_token * r.tokens_planned) AS flops,
              avg(t.tokens_per_s) AS tokens_per_s, sum(t.seconds) AS seconds, any_value(t.device) AS device
            FROM runs r LEFT JOIN trained t USING (run) GROUP BY r.grouping, r.scale
            ORDER BY r.grouping <> 'grid', r.grouping
            """
        )
    )
    planned, memory = _planned(data)
    frame["memory"] = [memory.get((row.grouping, row.scale)) for row in frame.itertuples()]
    frame["purpose"] = frame["grouping"].map(lambda name: _PURPOSES.get(name, name))
    frame["minutes"] = frame["seconds"].astype(float) / 60
    columns = (
        Column("scale", "Scale", text, numeric=False),
        Column("purpose", "What for", text, numeric=False),
        Column("runs", "Runs", integer, group="Planned"),
        Column("tokens", "Tokens a run", short, group="Planned"),
        Column("flops", "FLOPs, all runs", scientific, group="Planned"),
        Column("memory", "Memory a device (GB)", fixed(2), group="Planned"),
        Column("trained", "Runs", integer, group="Measured"),
        Column("tokens_per_s", "Tokens/s a run", short, group="Measured"),
        Column("minutes", "Minutes, all runs", fixed(1), group="Measured"),
        Column("device", "Device", text, numeric=False, wrap=True, group="Measured"),
    )
    caption = (
        "One row is all runs of a scale that serve one purpose. Tokens and time count the trunk and every "
        "decay branch; FLOPs are those of the layers, without the output head; memory is the plan's estimate "
        "for the largest of the runs; minutes are summed as if one run followed another."
    )
    item = Item("plan-table", "W1", "Planned cost and measured training time", "", caption=caption)
    table = page_table(item, TableView(columns, frame), folder)
    return {"sentences": [*planned, *_spent(frame)], "table": table}


def _planned(data: Data) -> tuple[list[str], dict[tuple[str, str], float]]:
    """Return sentences on the plan and the most memory a run needs, by purpose and scale."""
    runs = data.frame("SELECT run, grouping, scale, seed FROM runs").set_index("run")
    whole = make_plan(data.study, runs["seed"].nunique(), choose_machine(data.study, None, None))
    totals, machine = whole["totals"], whole["assumptions"]
    largest = max(whole["runs"], key=lambda row: row["memory_gb"])
    memory: dict[tuple[str, str], float] = {}
    for row in whole["runs"]:
        key = tuple(runs.loc[row["run"], ["grouping", "scale"]])
        memory[key] = max(memory.get(key, 0.0), row["memory_gb"])
    flops = scientific(totals["flops"] + totals["head_flops"])
    sentences = [
        f"Planned: {counted(totals['runs'], 'run')} with {scientific(totals['tokens'])} tokens and "
        f"{flops} training FLOPs in all, output heads included; about "
        f"{_hours(totals['device_hours'] * 3600)} on one {machine['name']} that reaches "
        f"{machine['mfu']:.0%} of {scientific(machine['peak'])} FLOP/s.",
        f"Memory: at most {largest['memory_gb']:.3g} GB a device (run {largest['run']}, on "
        f"{counted(largest['devices'], 'device')}). Disk: {_size(totals['disk_gb'])}, of it "
        f"{_size(totals['endpoints_gb'])} for endpoints, {_size(totals['resume_gb'])} for the checkpoints "
        f"of the largest run and {_size(totals['corpus_gb'])} for text.",
    ]
    return sentences, memory


def _spent(frame: pd.DataFrame) -> list[str]:
    trained, seconds = int(frame["trained"].sum()), float(frame["seconds"].sum())
    if not trained:
        return ["No run is trained yet."]
    took = f"took {_hours(seconds)} of training in all, one run after another"
    return [f"Measured: {counted(trained, 'trained run')} {took}."]


def _hours(seconds: float) -> str:
    return f"{seconds / 3600:.3g} hours" if seconds >= 5400 else f"{seconds / 60:.2g} minutes"


def _size(gigabytes: float) -> str:
    for size, unit in ((1e3, "TB"), (1, "GB"), (1e-3, "MB")):
        if gigabytes >= size:
            return f"{gigabytes / size:.3g} {unit}"
    return f"{gigabytes * 1e6:.3g} kB"


def paces(data: Data) -> pd.DataFrame:
    """Return tokens per second of both members of each cell's pair, by device, seeds averaged.

    `speed` is SMELT's tokens/s over the Baseline's; `rate` compares training FLOPs per second, so that a
    small difference of the pair's FLOPs per token does not count as speed.
    """
    return data.ordered(
        data.frame(
            _PACE
            + """
            SELECT s.cell, s.scale, s.sparsity, a.device, avg(b.tokens_per_s) AS baseline,
              avg(a.tokens_per_s) AS smelt, exp(avg(ln(a.tokens_per_s / b.tokens_per_s))) AS speed,
              exp(avg(ln(a.tokens_per_s * s.flops_per_token / b.tokens_per_s / r.flops_per_token))) AS rate,
              count(*) AS seeds
            FROM pace a JOIN runs s USING (run) JOIN pace b ON b.run = s.baseline AND b.device = a.device
            JOIN runs r ON r.run = s.baseline
            WHERE s.grouping = 'grid' AND s.arch = 'smelt' GROUP BY ALL ORDER BY s.sparsity, a.device
            """
        )
    )


def pace_table(frame: pd.DataFrame, folder: Path) -> str:
    """Return the speeds of the pairs as a table, or a sentence where no pair was timed."""
    title = "Training speed of each pair"
    if frame.empty:
        return missing_html("pace-table", "Table W2", title, "Not measured: no pair was timed on one device.")
    columns = (
        Column("cell", "Cell", text, numeric=False),
        Column("device", "Device", text, numeric=False, wrap=True),
        Column("baseline", "Baseline", short, group="Tokens/s"),
        Column("smelt", "SMELT", short, group="Tokens/s"),
        Column("speed", "tokens/s", fixed(2), group="SMELT / Baseline"),
        Column("rate", "FLOP/s", fixed(2), group="SMELT / Baseline"),
        Column("seeds", "Training seeds", integer),
    )
    caption = (
        "Tokens a second in training, evaluation left out. Below 1 SMELT is the slower one: equal FLOPs are "
        "not equal time, and SMELT runs more, narrower layers in a row. Runs that share a machine "
        "disturb each other, so compare ratios, not single speeds."
    )
    ends = (f"{end:.2f}" for end in (frame["speed"].min(), frame["speed"].max()))
    note = f"SMELT trains at {between(*ends)} of its Baseline's tokens/s."
    item = Item("pace-table", "W2", title, "", caption=caption)
    return page_table(item, TableView(columns, frame, note), folder)


def time_gains(data: Data, pace: pd.DataFrame) -> pd.DataFrame:
    """Return the CE gain in FLOPs and in time, by device, budget and sparsity.

    At equal loss SMELT needs `1 - gain` of the FLOPs and does them at `rate` of the Baseline's FLOP/s, so it
    needs `(1 - gain) / rate` of the time. `rate` is the geometric mean over the cells of the sparsity; its
    own error is not in the interval.
    """
    gains = data.frame(
        """
        SELECT budget, sparsity, gain, coalesce(low_calibrated, low) AS low,
          coalesce(high_calibrated, high) AS high, extrapolated
        FROM ce_gain WHERE subset = 'all' ORDER BY budget, sparsity
        """
    )
    rates = (
        pace.assign(rate=np.log(pace["rate"])).groupby(["device", "sparsity"], as_index=False)["rate"].mean()
    )
    frame = gains.merge(rates.assign(rate=np.exp(rates["rate"])), on="sparsity")
    for name in ("gain", "low", "high"):
        frame[f"{name}_time"] = 1 - (1 - frame[name]) / frame["rate"]
    return frame.sort_values(["device", "budget", "sparsity"], kind="stable")


def time_table(data: Data, pace: pd.DataFrame, folder: Path) -> str:
    """Return the CE gain restated in time as a table, or a sentence where there is none."""
    title = "The compute-efficiency gain against the clock"
    frame = time_gains(data, pace)
    if frame.empty:
        reason = "Not measured: without a CE gain there is nothing to restate in time."
        if not pace.empty:
            needed = (f"{1 - rate:.0%}" for rate in (pace["rate"].max(), pace["rate"].min()))
            reason += (
                f" At the speeds of Table W2 SMELT would have to save {between(*needed)} of the FLOPs to be "
                "as quick as the Baseline."
            )
        return missing_html("time-table", "Table W3", title, reason)
    for name, low, high in (("flops", "low", "high"), ("time", "low_time", "high_time")):
        ends = zip(100 * frame[low], 100 * frame[high], strict=True)
        frame[f"interval_{name}"] = [interval(*pair, 0) for pair in ends]
    percent = _signed_percent
    columns = (
        Column("device", "Device", text, numeric=False, wrap=True),
        Column("budget", "Budget (FLOPs)", scientific),
        Column("sparsity", "S (%)", integer),
        Column("gain", "saved (%)", percent, group="FLOPs"),
        Column("interval_flops", "95% interval", text, group="FLOPs"),
        Column("rate", "SMELT / Baseline", fixed(2), group="FLOP/s"),
        Column("gain_time", "saved (%)", percent, group="Time"),
        Column("interval_time", "95% interval", text, group="Time"),
        Column("extrapolated", "Extrapolated", lambda value: "yes" if value else "no", numeric=False),
    )
    caption = (
        "To reach the Baseline's loss SMELT needs 1 − gain of the FLOPs and runs them at its own speed, so "
        "it needs (1 − gain) / (its FLOP/s over the Baseline's) of the time; a negative saving is time lost. "
        "Speeds are those of Table W2, averaged over the cells of a sparsity and taken as exact."
    )
    saved = int((frame["gain_time"] > 0).sum())
    note = joined(f"SMELT saves time in {saved} of {counted(len(frame), 'row')}.", data.law_doubt())
    item = Item("time-table", "W3", title, "", caption=caption)
    return page_table(item, TableView(columns, frame, note), folder)


def _signed_percent(value: Any) -> str:
    return f"{100 * value:+.1f}"
