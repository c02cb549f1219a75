"""The fitted law and what follows from it: tables 6, 7 and 8, ours beside the printed values."""

from __future__ import annotations

import pandas as pd

from smelt.report.data import Data
from smelt.report.output import Column, TableView
from smelt.report.paper import published
from smelt.report.style import LOOKS
from smelt.report.tables.formats import fixed, integer, interval, joined, percent, scientific, text

_COEFFICIENTS = {"E": "E", "A": "A", "K": "K", "exp_a": "a", "exp_b": "b", "exp_c": "c"}


def fits(data: Data) -> TableView:
    """Table 6: coefficients of both surfaces with the 95% interval of the cell bootstrap."""
    data.need("law_fits")
    frame = data.rows(
        "fitted law", "SELECT * FROM law_fits WHERE subset = 'all' AND E IS NOT NULL ORDER BY arch"
    )
    paper = published("table06_scaling_fit").set_index("arch")
    rows = []
    for record in frame.to_dict("records"):
        arch = record["arch"]
        ends = _draw_interval(data, arch)
        for column, name in _COEFFICIENTS.items():
            low, high = ends.get(column, (None, None))
            rows.append(
                {
                    "arch": LOOKS[arch].label,
                    "coefficient": name,
                    "value": record[column],
                    "low": low,
                    "high": high,
                    "paper": paper.loc[arch, name],
                }
            )
        rmse = {"coefficient": "RMSE (nats)", "value": record["rmse"], "paper": paper.loc[arch, "rmse"]}
        rows.append({"arch": LOOKS[arch].label, **rmse})
    table = pd.DataFrame(rows)
    table["interval"] = [
        None if pd.isna(low) else f"{scientific(low)} to {scientific(high)}"
        for low, high in zip(table["low"], table["high"], strict=True)
    ]
    columns = (
        Column("arch", "Architecture", text, numeric=False),
        Column("coefficient", "Coefficient", text, numeric=False),
        Column("value", "This study", lambda value: f"{value:.4g}"),
        Column("interval", "95% interval", text),
        Column("paper", "Paper", lambda value: f"{value:.6g}"),
    )
    return TableView(columns, table, joined(*_notes(frame), data.law_doubt()))


def _draw_interval(data: Data, arch: str) -> dict[str, tuple[float, float]]:
    drawn = data.frame("SELECT * FROM law_draws WHERE arch = ? AND NOT degenerate", arch)
    if len(drawn) < 2:
        return {}
    return {name: tuple(drawn[name].quantile([0.025, 0.975])) for name in _COEFFICIENTS}


def _notes(frame: pd.DataFrame) -> list[str]:
    notes = [
        f"{record['n']} endpoints ({LOOKS[record['arch']].label})." for record in frame.to_dict("records")
    ]
    for record in frame.to_dict("records"):
        if not record["converged"]:
            notes.append(f"The fit of {LOOKS[record['arch']].label} did not converge.")
        if record["note"]:
            notes.append(f"{LOOKS[record['arch']].label}: {record['note']}.")
    return notes


def gains(data: Data) -> TableView:
    """Table 7: CE gain at three budgets and each sparsity."""
    data.need("ce_gain")
    frame = data.rows("CE gain", "SELECT * FROM ce_gain WHERE subset = 'all' ORDER BY budget, sparsity")
    paper = published("table07_ce_gain").assign(
        sparsity=lambda rows: (100 * rows["sparsity"]).round().astype(int)
    )
    frame["paper"] = None
    frame["paper_interval"] = None
    budgets, printed = sorted(frame["budget"].unique()), sorted(paper["budget_flops"].unique())
    for ours, theirs in zip(budgets, printed, strict=False):
        own = paper[paper["budget_flops"] == theirs].set_index("sparsity")
        for index in frame.index[frame["budget"] == ours]:
            sparsity = frame.at[index, "sparsity"]
            if sparsity in own.index:
                frame.at[index, "paper"] = own.at[sparsity, "ce_gain_pct"]
                ends = own.loc[sparsity, ["ci_low_pct", "ci_high_pct"]]
                frame.at[index, "paper_interval"] = interval(*ends, 0)
    frame["interval"] = _percent_intervals(frame, "low", "high")
    frame["calibrated"] = _percent_intervals(frame, "low_calibrated", "high_calibrated")
    columns = (
        Column("budget", "Budget (FLOPs)", scientific),
        Column("sparsity", "S (%)", integer),
        Column("gain", "CE gain (%)", lambda value: f"{100 * value:.1f}", group="This study"),
        Column("interval", "95% interval", text, group="This study"),
        Column("calibrated", "calibrated interval", text, group="This study"),
        Column(
            "extrapolated",
            "extrapolated",
            lambda value: "yes" if value else "no",
            numeric=False,
            group="This study",
        ),
        Column("paper", "CE gain (%)", fixed(1), group="Paper"),
        Column("paper_interval", "95% interval", text, group="Paper"),
    )
    note = ""
    if budgets != printed:
        shown = ", ".join(scientific(budget) for budget in printed)
        note = f"The paper's values are at {shown} FLOPs, ours at the same places of this study's window."
    return TableView(columns, frame, joined(note, data.law_doubt()))


def _percent_intervals(frame: pd.DataFrame, low: str, high: str) -> list[str | None]:
    return [interval(100 * a, 100 * b, 0) for a, b in zip(frame[low], frame[high], strict=True)]


def tokens_per_parameter(data: Data) -> TableView:
    """Table 8: compute-optimal tokens per active parameter, D* / (F* / 6)."""
    data.need("tpp")
    frame = data.rows("tokens per parameter", "SELECT * FROM tpp ORDER BY sparsity, arch")
    paper = published("table08_tpp").assign(
        sparsity=lambda rows: (100 * rows["sparsity"]).round().astype(int)
    )
    paper["paper_interval"] = [
        interval(a, b, 0) for a, b in zip(paper["ci_low"], paper["ci_high"], strict=True)
    ]
    paper = paper.rename(columns={"tpp": "paper"})[["sparsity", "arch", "paper", "paper_interval"]]
    frame = frame.merge(paper, on=["sparsity", "arch"], how="left")
    frame["interval"] = [interval(a, b, 0) for a, b in zip(frame["low"], frame["high"], strict=True)]
    frame["label"] = [LOOKS[arch].label for arch in frame["arch"]]
    columns = (
        Column("sparsity", "S (%)", integer),
        Column("label", "Architecture", text, numeric=False),
        Column("budget", "Budget (FLOPs)", scientific),
        Column("tpp", "Tokens per parameter", fixed(1)),
        Column("interval", "95% interval", text),
        Column("paper", "Paper", fixed(0)),
        Column("paper_interval", "Paper's interval", text),
    )
    return TableView(columns, frame, data.law_doubt())


def coverage(data: Data) -> TableView:
    """How often a 95% interval of the cell bootstrap holds a simulated truth, and the stretch it needs."""
    data.need("law_coverage")
    frame = data.frame(
        """
        SELECT design, quantity, any_value(truth) AS truth, any_value(repeats) AS repeats,
          any_value(coverage) FILTER (noise = 'independent') AS coverage,
          any_value(factor) FILTER (noise = 'independent') AS factor,
          any_value(coverage) FILTER (noise = 'cell') AS coverage_cell,
          any_value(factor) FILTER (noise = 'cell') AS factor_cell
        FROM law_coverage WHERE regexp_matches(quantity, '^(exponent|ce_gain|tpp_ratio):')
        GROUP BY design, quantity ORDER BY design DESC, quantity
        """
    )
    columns = (
        Column("design", "Endpoints of", text, numeric=False),
        Column("quantity", "Quantity", text, numeric=False),
        Column("truth", "Truth", scientific),
        Column("coverage", "Coverage (%)", percent(0)),
        Column("factor", "Stretch", fixed(2)),
        Column("coverage_cell", "Coverage, cells vary (%)", percent(0)),
        Column("factor_cell", "Stretch, cells vary", fixed(2)),
        Column("repeats", "Repeats", integer),
    )
    low = int((frame[["coverage", "coverage_cell"]].min(axis=1) < 0.9).sum())
    note = f"{low} of {len(frame)} nominal 95% intervals hold the truth in fewer than 90% of the repeats."
    if "study" not in set(frame["design"]):
        note += " This study's own grid is left out: its fits are not believed."
    return TableView(columns, frame, note)


def signs(data: Data) -> TableView:
    """How sure the signs of the paper's differences in the exponents are, given its own RMSE."""
    data.need("law_signs")
    frame = data.frame("SELECT * FROM law_signs ORDER BY exponent, noise")
    columns = (
        Column("exponent", "Exponent", text, numeric=False),
        Column("noise", "Noise", text, numeric=False),
        Column("printed", "Printed difference", fixed(4, sign=True)),
        Column("spread", "Spread of its estimate", fixed(4)),
        Column("right", "Right sign (%)", percent(0)),
        Column("p_value", "p if there were none", fixed(3)),
        Column("repeats", "Repeats", integer),
    )
    return TableView(columns, frame)
