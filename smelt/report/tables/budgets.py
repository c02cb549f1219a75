"""Configurations and budgets: tables 1, 2, 9 and 10."""

from __future__ import annotations

import pandas as pd

from smelt.report.data import Data
from smelt.report.output import Column, TableView
from smelt.report.paper import published
from smelt.report.style import LOOKS
from smelt.report.tables.formats import fixed, integer, percent, short, text


def studies(data: Data) -> TableView:
    """Table 1: what other looped studies hold equal, as the paper has it, and this study."""
    loop = data.study.loop
    own = (f"this study ({data.study.name})", "MoE", f"mid {100 * loop.span:.0f}%", "yes", "yes", "yes")
    paper = published("table01_studies")
    frame = pd.concat([paper, pd.DataFrame([own], columns=paper.columns)], ignore_index=True)
    labels = ("Study", "Architecture", "Span", "FLOPs matched", "Parameters matched", "KV cache matched")
    columns = [Column(name, label, text, numeric=False) for name, label in zip(frame, labels, strict=True)]
    return TableView(tuple(columns), frame)


def matching(data: Data) -> TableView:
    """Table 2: which size gave way in each pair, and how far each budget is off."""
    data.need("pairs", "runs")
    frame = data.frame(
        """
        SELECT s.run, s.scale, s.sparsity, s.arch, p.source,
          b.hidden AS hidden_b, s.hidden, b.heads * b.head_dim AS width_b, s.heads * s.head_dim AS width,
          b.kv_heads * b.head_dim AS kv_b, s.kv_heads * s.head_dim AS kv,
          b.experts AS experts_b, s.experts, b.expert_dim AS expert_b, s.expert_dim,
          100 * (p.flops_ratio - 1) AS flops, 100 * (p.params_ratio - 1) AS params,
          100 * (p.kv_ratio - 1) AS kv_off
        FROM pairs p JOIN runs s USING (run) JOIN runs b ON b.run = p.baseline
        WHERE s.seed = 0 ORDER BY s.grouping <> 'grid', s.sparsity, s.run
        """
    )
    frame = data.ordered(frame)
    for name, before, after in (
        ("hidden_change", "hidden_b", "hidden"),
        ("width_change", "width_b", "width"),
        ("kv_change", "kv_b", "kv"),
        ("experts_change", "experts_b", "experts"),
        ("expert_change", "expert_b", "expert_dim"),
    ):
        frame[name] = frame[before].astype(str) + " → " + frame[after].astype(str)
    worst = {name: frame[name].abs().max() for name in ("flops", "params", "kv_off")}
    note = (
        f"Worst mismatch here: FLOPs {worst['flops']:.1f}%, parameters {worst['params']:.1f}%, "
        f"KV cache {worst['kv_off']:.1f}%; the paper's twelve sparse cells: 3.9%, 1.0%, 3.6%."
    )
    columns = (
        Column("run", "Run", str, numeric=False),
        Column("hidden_change", "Hidden", str, group="Baseline → run"),
        Column("width_change", "Query width", str, group="Baseline → run"),
        Column("kv_change", "KV width", str, group="Baseline → run"),
        Column("experts_change", "Experts", str, group="Baseline → run"),
        Column("expert_change", "Expert size", str, group="Baseline → run"),
        Column("flops", "FLOPs", fixed(1, sign=True), group="Off the Baseline (%)"),
        Column("params", "Parameters", fixed(1, sign=True), group="Off the Baseline (%)"),
        Column("kv_off", "KV cache", fixed(1, sign=True), group="Off the Baseline (%)"),
        Column("source", "Sizes from", str, numeric=False),
    )
    return TableView(columns, frame, note)


def baselines(data: Data) -> TableView:
    """Table 9: the grid's Baselines, with the paper's printed parameters where the cell is one of its own."""
    frame = _configurations(data, "baseline")
    columns = (*_size_columns(), *_printed_columns(frame, ratios=False))
    return TableView(columns, frame)


def looped(data: Data) -> TableView:
    """Table 10: the grid's SMELT runs with their budget ratios, ours and printed."""
    frame = _configurations(data, "smelt")
    ratios = tuple(
        Column(name, label, fixed(3), group="SMELT / Baseline")
        for name, label in (
            ("flops_ratio", "FLOPs"),
            ("params_ratio", "Params"),
            ("kv_ratio", "KV"),
        )
    )
    columns = (*_size_columns(), *ratios, *_printed_columns(frame, ratios=True))
    return TableView(columns, frame)


def _configurations(data: Data, arch: str) -> pd.DataFrame:
    data.need("runs")
    frame = data.ordered(
        data.rows(
            f"grid runs of {arch}",
            """
            SELECT r.*, p.flops_ratio, p.params_ratio, p.kv_ratio FROM runs r LEFT JOIN pairs p USING (run)
            WHERE r.grouping = 'grid' AND r.arch = ? AND r.seed = 0 ORDER BY r.sparsity
            """,
            arch,
        )
    ).drop(columns=["spec_hash", "cell"])
    paper = published("table09_10_configs")
    paper = paper[paper["arch"] == arch].assign(
        sparsity=lambda rows: (100 * rows["sparsity"]).round().astype(int)
    )
    keep = [
        "scale",
        "sparsity",
        "active_params_b",
        "total_params_b",
        "sparsity_measured_pct",
        "flops_ratio",
        "kv_ratio",
    ]
    frame["depth"] = [f"{row.layers} ({row.effective_layers})" for row in frame.itertuples()]
    frame["attention"] = [f"{row.heads} / {row.kv_heads} × {row.head_dim}" for row in frame.itertuples()]
    return frame.merge(paper[keep], on=["scale", "sparsity"], how="left", suffixes=("", "_paper"))


def _size_columns() -> tuple[Column, ...]:
    return (
        Column("scale", "Scale", text, numeric=False),
        Column("sparsity", "S (%)", integer),
        Column("hidden", "H", integer),
        Column("depth", "L (L_eff)", text),
        Column("attention", "Heads / KV × size", text),
        Column("experts", "E", integer),
        Column("expert_dim", "I", integer),
        Column("params_active", "active", short, group="Parameters"),
        Column("params_total", "total", short, group="Parameters"),
        Column("sparsity_measured", "measured", percent(1), group="S (%)"),
        Column("sparsity_own_control", "own", percent(1), group="S (%)"),
    )


def _printed_columns(frame: pd.DataFrame, ratios: bool) -> tuple[Column, ...]:
    """Return columns of printed values; none where no cell of the study is one of the paper's."""
    if frame["total_params_b"].isna().all():
        return ()
    columns = [
        Column("active_params_b", "active (B)", fixed(3), group="Paper"),
        Column("total_params_b", "total (B)", fixed(2), group="Paper"),
        Column("sparsity_measured_pct", "S (%)", fixed(1), group="Paper"),
    ]
    if ratios:
        columns += [
            Column("flops_ratio_paper", "FLOPs", fixed(3), group="Paper"),
            Column("kv_ratio_paper", "KV", fixed(3), group="Paper"),
        ]
    return tuple(columns)


def _published_note(data: Data) -> str:
    """Say how well the accounting reproduces the paper's printed configurations."""
    found = data.frame(
        """
        SELECT quantity, count(matches)::INT AS n, count_if(matches)::INT AS equal FROM published_configs
        WHERE NOT (arch = 'smelt' AND sparsity = 0)
        GROUP BY quantity HAVING count(matches) > 0 ORDER BY quantity
        """
    )
    if found.empty:
        return ""
    off = found[found["equal"] < found["n"]]
    names = {quantity: label for quantity, label, _ in _PRINTED}
    others = ", ".join(
        f"{row['n'] - row['equal']} of {names.get(row['quantity'], row['quantity'])}"
        for row in off.to_dict("records")
    )
    others = f", all but {others}" if others else ""
    return (
        f"The accounting gives {found['equal'].sum()} of the {found['n'].sum()} values printed for the 28 "
        f"configurations other than SMELT at S = 0 to the last digit{others}; "
        "SMELT at S = 0 does not reconcile."
    )


_PRINTED = (
    ("active_params_b", "Active (B)", 3),
    ("total_params_b", "Total (B)", 2),
    ("sparsity_measured_pct", "S (%)", 1),
    ("flops_ratio", "FLOPs ratio", 3),
    ("kv_ratio", "KV ratio", 3),
)


def recounted(data: Data) -> TableView:
    """The paper's 32 configurations: each printed value, what the accounting gives, and the solver's."""
    data.need("published_configs")
    frame = data.frame(
        """
        SELECT scale, sparsity, arch, quantity, printed, ours, solver FROM published_configs
        WHERE arch IN ('baseline', 'smelt')
        """
    )
    wide = frame.pivot_table(
        index=["scale", "sparsity", "arch"],
        columns="quantity",
        values=["printed", "ours", "solver"],
        aggfunc="first",
    )
    wide.columns = [f"{kind}_{name}" for kind, name in wide.columns]
    wide = wide.reset_index()
    order = list(dict.fromkeys(published("table09_10_configs")["scale"]))
    wide["place"] = wide["scale"].map(order.index)
    wide = wide.sort_values(["place", "arch", "sparsity"]).drop(columns="place")
    columns = [
        Column("scale", "Scale", text, numeric=False),
        Column("sparsity", "S (%)", integer),
        Column("arch", "Architecture", lambda arch: LOOKS[arch].label, numeric=False),
    ]
    for name, label, digits in _PRINTED:
        for kind, suffix in (("printed", "printed"), ("ours", "ours"), ("solver", "solver")):
            if f"{kind}_{name}" in wide and not (kind == "solver" and not name.endswith("_ratio")):
                columns.append(Column(f"{kind}_{name}", suffix, fixed(digits), group=label))
    return TableView(tuple(columns), wide, _published_note(data))
