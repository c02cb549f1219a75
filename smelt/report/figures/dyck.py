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
    change = after - before
    top, reach = np.nanmax([before, after]), np.nanmax(np.abs(change)) or 1.0
    figure, axes = plt.subplots(4, 1, figsize=(WIDTH, 5.0), sharex=True, height_ratios=(1, 1, 1, 0.3))
    maps = (
        ("Visit 1", before, {"cmap": "Reds", "vmin": 0, "vmax": top}),
        (f"Visit {last + 1}", after, {"cmap": "Reds", "vmin": 0, "vmax": top}),
        ("Difference", change, {"cmap": "RdBu_r", "vmin": -reach, "vmax": reach}),
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


def _matrix(frame: pd.DataFrame, visit: int) -> np.ndarray:
    """Return the masses [target, position]; a target sees nothing after itself, which stays NaN."""
    part = frame[frame["visit"] == visit]
    return part.pivot(index="target", columns="position", values="mass").to_numpy(dtype=float)


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
    mass = data.frame("SELECT visit, role, mass FROM dyck_mass WHERE run = ? ORDER BY visit", run)
    text = f"Run {run}, layer {frame['layer'].iloc[0] + 1}, head {frame['head'].iloc[0] + 1}."
    parts = []
    for role, label in (("bos", "BOS"), (_ANSWER, "demonstration answers")):
        values = mass[mass["role"] == role]["mass"].tolist()
        if values:
            parts.append(f"{label} {values[0]:.2f} to {values[-1]:.2f}")
    if parts:
        text += f" Mean mass from visit 1 to the last: {', '.join(parts)}"
        text += " (the paper: BOS 0.60 to 0.02, answers 0.24 to 0.85)."
    return text
