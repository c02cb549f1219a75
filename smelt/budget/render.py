"""The plan as text for a terminal and as CSV."""

from __future__ import annotations

import csv
from pathlib import Path
from typing import Any

from smelt.budget.solver import GOALS, Match
from smelt.files import atomic_path
from smelt.study import Geometry

_UNITS = ((1e21, "Z"), (1e18, "E"), (1e15, "P"), (1e12, "T"), (1e9, "G"), (1e6, "M"), (1e3, "k"))


def quantity(value: float) -> str:
    """Return a number with three digits and a decimal prefix."""
    for size, letter in _UNITS:
        if abs(value) >= size:
            return f"{value / size:.3g}{letter}"
    return f"{value:.3g}"


def plan_text(plan: dict[str, Any], spread: dict[tuple[str, int], float]) -> str:
    """Return the plan for a terminal; `spread` is the loss spread between seeds by (cell, horizon)."""
    parts = [_head(plan), _runs(plan["runs"]), _totals(plan), _pairs(plan), _power(plan, spread)]
    return "\n\n".join(parts) + "\n"


def _table(header: list[str], rows: list[list[str]]) -> str:
    widths = [max(len(row[i]) for row in [header, *rows]) for i in range(len(header))]
    lines = [
        "  ".join(cell.ljust(width) if i == 0 else cell.rjust(width)
                  for i, (cell, width) in enumerate(zip(row, widths, strict=True))).rstrip()
        for row in [header, *rows]
    ]  # fmt: skip
    return "\n".join(lines)


def _head(plan: dict[str, Any]) -> str:
    assumed = plan["assumptions"]
    return (
        f"Plan of study {plan['study']}: {plan['totals']['runs']} runs on {assumed['name']}, "
        f"{quantity(assumed['peak'])}FLOP/s at {assumed['mfu']:.0%} MFU (assumed), "
        f"{assumed['memory'] / 1e9:.0f} GB.\nFLOPs count the executed layers at a mean attended context of "
        f"{assumed['attended_context']:g} tokens; hours count the output head too. Memory is "
        f"{assumed['state_bytes_per_parameter']} bytes a parameter and the activations of at "
        f"most {assumed['most_micro_tokens']} tokens a device (micro)."
    )


def _runs(runs: list[dict[str, Any]]) -> str:
    header = ["run", "H", "L", "L_eff", "heads", "kv", "E", "I", "active", "total", "F/token", "tokens",
              "FLOPs", "hours", "devices", "micro", "GB each", "disk GB"]  # fmt: skip
    rows = [
        [
            run["run"],
            *(str(run[name]) for name in ("hidden", "layers", "effective_layers")),
            f"{run['heads']}x{run['head_dim']}",
            *(str(run[name]) for name in ("kv_heads", "experts", "expert_dim")),
            *(quantity(run[name])
              for name in ("params_active", "params_total", "flops_per_token", "tokens", "flops")),
            f"{run['device_hours']:.3g}",
            f"{run['devices']} {run['strategy']}",
            str(run["micro_tokens"]),
            f"{run['memory_gb']:.3g}",
            f"{run['endpoints_gb']:.3g}",
        ]
        for run in runs
    ]  # fmt: skip
    return _table(header, rows)


def _totals(plan: dict[str, Any]) -> str:
    totals, name = plan["totals"], plan["assumptions"]["name"]
    return (
        f"Sum: {quantity(totals['tokens'])} tokens, {totals['flops']:.3e} FLOPs in layers and "
        f"{totals['head_flops']:.3e} in output heads, {totals['device_hours']:,.3g} {name} hours; disk "
        f"{totals['disk_gb']:,.3g} GB (endpoints {totals['endpoints_gb']:,.3g}, largest run's checkpoints "
        f"{totals['resume_gb']:,.3g}, token shards {totals['corpus_gb']:,.3g})."
    )


def _pairs(plan: dict[str, Any]) -> str:
    rows = []
    for pair in plan["pairs"]:
        mismatch = {name: pair[f"{name}_ratio"] - 1 for name in GOALS}
        missed = [name for name, value in mismatch.items() if abs(value) > GOALS[name]]
        rows.append(
            [pair["run"], *(f"{mismatch[name]:+.2%}" for name in GOALS), pair["source"], " ".join(missed)]
        )
    goals = ", ".join(f"{name} {goal:.1%}" for name, goal in GOALS.items())
    return (
        f"Mismatch against the Baseline (goals: {goals}); `python -m smelt.budget match --run RUN`\n"
        "shows what else was possible. Sizes are the study's own (printed) or the solver's.\n"
        + _table(["run", *GOALS, "source", "misses"], rows)
        + "\n\n"
        + _worst(plan)
    )


def _worst(plan: dict[str, Any]) -> str:
    """Return the worst mismatch of each kind of run."""
    kinds = {"smelt": "grid", "baseline": "ablations", "looped": "ablations", "control": "controls"}
    archs = {run["run"]: kinds[run["arch"]] for run in plan["runs"]}
    groups: dict[str, list[dict[str, float]]] = {}
    for pair in plan["pairs"]:
        mismatch = {name: abs(pair[f"{name}_ratio"] - 1) for name in GOALS}
        groups.setdefault(archs[pair["run"]], []).append(mismatch)
    rows = []
    for kind, pairs in groups.items():
        missed = sum(any(pair[name] > goal for name, goal in GOALS.items()) for pair in pairs)
        worst = (f"{max(pair[name] for pair in pairs):.2%}" for name in GOALS)
        rows.append([kind, *worst, f"{missed} of {len(pairs)}"])
    return _table(["worst mismatch", *GOALS, "miss a goal"], rows)


def _power(plan: dict[str, Any], spread: dict[tuple[str, int], float]) -> str:
    rows = []
    for row in plan["power"]:
        known = spread.get((row["cell"], row["horizon"]))
        if row["gap_predicted"] is None and known is None:
            continue
        rows.append([
            row["cell"], str(row["horizon"]), quantity(row["tokens"]), f"{row['flops']:.2e}",
            "none" if row["gap_predicted"] is None else f"{row['gap_predicted']:+.4f}",
            "inside" if row["in_window"] else "EXTRAPOLATED",
            "unknown" if known is None else f"{known:.4f}",
        ])  # fmt: skip
    silent = sum(row["gap_predicted"] is None for row in plan["power"])
    head = (
        "Loss gap, SMELT minus Baseline in nats per token, that the paper's law (table 6) expects. The law\n"
        "was fitted on S 85-97% and 1.3e19 to 2.2e21 FLOPs; outside that window a number is extrapolated.\n"
    )
    if silent:
        head += (
            f"For {silent} of {len(plan['power'])} endpoints it predicts a loss above that of a uniform "
            "guess, so it says nothing there.\n"
        )
    header = ["cell", "horizon", "tokens", "FLOPs", "gap", "window", "seed spread"]
    return head + (_table(header, rows) if rows else "")


def match_text(run: str, baseline: Geometry, best: Match, others: list[Match]) -> str:
    """Return the solver's answer for a run, the budgets that bind, and up to ten other choices."""
    goals = ", ".join(f"{name} {goal:.1%}" for name, goal in GOALS.items())
    verdict = "hold every goal" if not best.binding else f"miss the goal for {', '.join(best.binding)}"
    others = [other for other in others if other.geometry != best.geometry]
    rows = [_sizes("Baseline", baseline, None), _sizes("chosen", best.geometry, best)]
    rows += [_sizes("other", other.geometry, other) for other in others[:10]]
    return (
        f"{run}: the chosen sizes {verdict} ({goals}).\nOf the others none is worse in every budget and "
        f"farther from the preferred shape; {len(others)} were found.\n"
        + _table(["", "H", "heads", "kv", "E", "top_k", "I", *GOALS], rows)
        + "\n"
    )


def _sizes(label: str, geometry: Geometry, match: Match | None) -> list[str]:
    return [
        label,
        str(geometry.hidden),
        f"{geometry.heads}x{geometry.head_dim}",
        *(str(getattr(geometry, name)) for name in ("kv_heads", "experts", "top_k", "expert_dim")),
        *(f"{match.mismatch[name]:+.2%}" if match else "" for name in GOALS),
    ]


def write_csv(path: Path, runs: list[dict[str, Any]]) -> None:
    """Write the plan's runs as CSV, atomically."""
    with atomic_path(path) as temporary, open(temporary, "w", newline="", encoding="utf-8") as stream:
        writer = csv.DictWriter(stream, list(runs[0]), lineterminator="\n")
        writer.writeheader()
        writer.writerows(runs)
