"""The Dyck head's attention over a prompt: figure 18."""

from __future__ import annotations

import itertools

import numpy as np
import pandas as pd
from matplotlib.axes import Axes
from matplotlib.patches import Patch

from smelt.report.data import Data
from smelt.report.output import Drawing
from smelt.report.style import GREY, INK, PROMPT, RED, WIDTH, legend_above, plt

_ANSWER = "demonstration_answer"
_MOST_TOKENS = 45  # that can be written below the map
_COLOURS = {"bos": GREY, "demonstration": PROMPT, _ANSWER: RED, "query": "#8aa5c4", "answer": INK}


def dyck_map(data: Data) -> Drawing:
    """Figure 18: where the Dyck head looks from each target on the first and the last visit."""
    data.need("dyck_map")
    run = _shown_run(data)
    frame = data.frame("SELECT * FROM dyck_map WHERE run = ? ORDER BY visit, target, position", run)
    last = int(frame["visit"].max())
    before, after = _matrix(frame, 0), _matrix(frame, last)
    change, by_part = after - before, _matrix(_sure_changes(frame), last, "change")
    top, reach, reach_by_part = (np.nanmax(np.abs(x)) or 1.0 for x in ([before, after], change, by_part))
    figure, axes = plt.subplots(5, 1, figsize=(WIDTH, 6.2), sharex=True, height_ratios=(1, 1, 1, 1, 0.3))
    maps = (
        ("Visit 1", before, {"cmap": "Reds", "vmin": 0, "vmax": top}),
        (f"Visit {last + 1}", after, {"cmap": "Reds", "vmin": 0, "vmax": top}),
        ("Difference", change, {"cmap": "RdBu_r", "vmin": -reach, "vmax": reach}),
        (
            "Difference by part of the prompt, mean of all prompts",
            by_part,
            {"cmap": "RdBu_r", "vmin": -reach_by_part, "vmax": reach_by_part},
        ),
    )
    for axis, (title, matrix, colours) in zip(axes, maps, strict=False):
        image = axis.imshow(matrix, aspect="auto", interpolation="nearest", **colours)
        axis.set_title(title)
        axis.grid(False)
        axis.set_yticks(range(len(matrix)), [f"{i + 1}" for i in range(len(matrix))])
        axis.set_ylabel("Target")
        axis.tick_params(labelbottom=False)
        figure.colorbar(image, ax=axis, pad=0.01, aspect=8)
    _prompt_strip(axes[-1], frame)
    roles = [role for role in _COLOURS if role in set(frame["role"])]
    legend_above(figure, [Patch(color=_COLOURS[role], label=_name(role)) for role in roles])
    return Drawing(figure, frame, _note(data, run, frame))


def _name(role: str) -> str:
    return "BOS" if role == "bos" else role.replace("_", " ")


def _shown_run(data: Data) -> str:
    """Return the run shown: SMELT's largest scale at the lowest sparsity above 0 that has a map."""
    frame = data.ordered(
        data.rows(
            "Dyck head of a SMELT run",
            """
            SELECT DISTINCT r.run, r.scale, r.sparsity, r.seed FROM dyck_map d JOIN runs r USING (run)
            WHERE r.grouping = 'grid' ORDER BY r.sparsity = 0 DESC, r.sparsity DESC, r.seed DESC
            """,
        )
    )
    return frame["run"].iloc[-1]


def _matrix(frame: pd.DataFrame, visit: int, column: str = "mass") -> np.ndarray:
    """Return the masses of a visit, or another column, `[target, position]`."""
    part = frame[frame["visit"] == visit]
    return part.pivot(index="target", columns="position", values=column).to_numpy(dtype=float)


def _sure_changes(frame: pd.DataFrame) -> pd.DataFrame:
    """Return the change of each part's mass at a later visit, 0 where its interval holds zero."""
    unsure = (frame["change_low"] <= 0) & (frame["change_high"] >= 0)
    return frame.assign(change=frame["change"].where(~unsure, 0.0))


def _prompt_strip(axis: Axes, frame: pd.DataFrame) -> None:
    """Draw what each position of the prompt is, and its tokens where they can be read."""
    tokens = frame.drop_duplicates("position").sort_values("position")
    for role, group in itertools.groupby(
        zip(tokens["position"], tokens["role"], strict=True), key=lambda t: t[1]
    ):
        places = [position for position, _ in group]
        axis.axvspan(places[0] - 0.5, places[-1] + 0.5, color=_COLOURS.get(role, GREY), linewidth=0)
    axis.set_yticks([])
    axis.grid(False)
    axis.set_xlabel("Position in the prompt")
    if len(tokens) <= _MOST_TOKENS:
        labels = [_printable(t, role) for t, role in zip(tokens["token"], tokens["role"], strict=True)]
        axis.set_xticks(tokens["position"], labels, fontsize=7)


def _printable(token: str, role: str) -> str:
    if role == "bos":
        return "BOS"
    return token.strip(" ").replace("\n", "↵") or "␣"


def _note(data: Data, run: str, frame: pd.DataFrame) -> str:
    mass = data.frame("SELECT * FROM dyck_mass WHERE run = ? ORDER BY visit", run)
    text = f"Run {run}, layer {frame['layer'].iloc[0] + 1}, head {frame['head'].iloc[0] + 1}."
    heads = data.frame("SELECT * FROM dyck_heads WHERE run = ? AND selected", run)
    if not heads.empty:
        head = heads.iloc[0]
        text += f" Without it Dyck perplexity rises by {_measured(head, 'delta')}"
        text += f" from {_measured(head, 'perplexity', 'perplexity_')}."
    parts = []
    for role, label in (("bos", "BOS"), (_ANSWER, "demonstration answers")):
        of_role = mass[mass["role"] == role]
        if not of_role.empty:
            ends = [_measured(of_role.iloc[i], "mass") for i in (0, -1)]
            parts.append(f"{label} {ends[0]} to {ends[1]}")
    if parts:
        text += f" Mean mass from visit 1 to the last: {', '.join(parts)}"
        text += " (the paper: BOS 0.60 to 0.02, answers 0.24 to 0.85)."
    text += " Brackets are 95% intervals over the prompts; a part is left blank where that of its difference"
    return text + " holds zero."


def _measured(row: pd.Series, value: str, prefix: str = "") -> str:
    """Return a value with its interval in brackets, where it has one."""
    low, high = row[f"{prefix}low"], row[f"{prefix}high"]
    return f"{row[value]:.2f}" + ("" if pd.isna(low) else f" [{low:.2f}, {high:.2f}]")
