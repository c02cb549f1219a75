"""Write figures and tables: SVG, PNG, CSV and HTML, and a small JSON that tells the site what they are."""

from __future__ import annotations

import base64
import io
from collections.abc import Callable
from dataclasses import dataclass
from html import escape
from pathlib import Path
from typing import Any

import matplotlib.pyplot as plt
import pandas as pd
from matplotlib.figure import Figure

from smelt.files import atomic_path, write_json, write_text
from smelt.report.contents import Item
from smelt.report.markup import caption_html, missing_html

PNG_DPI = 160


@dataclass(frozen=True)
class Drawing:
    """A drawn figure, the numbers in it, and a remark for its caption that depends on the data."""

    figure: Figure
    frame: pd.DataFrame
    note: str = ""


@dataclass(frozen=True)
class Column:
    """A column of a shown table: its heading, how a value is written, and whether it may break into lines."""

    key: str
    label: str
    show: Callable[[Any], str] = str
    numeric: bool = True
    wrap: bool = False


@dataclass(frozen=True)
class TableView:
    """A table: its columns, its rows with raw values, and a remark below it."""

    columns: tuple[Column, ...]
    frame: pd.DataFrame
    note: str = ""


@dataclass(frozen=True)
class Shown:
    """A figure or table as HTML, for a notebook's output cell."""

    html: str

    def _repr_html_(self) -> str:
        return self.html


def save_figure(item: Item, drawing: Drawing, folder: Path, reason: str = "") -> Shown:
    """Write `<folder>/<id>` as SVG, PNG, CSV and JSON; `reason` says why there is only a sentence."""
    with atomic_path(folder / f"{item.id}.svg") as path:
        drawing.figure.savefig(path, format="svg", metadata={"Date": None, "Creator": None})
    picture = io.BytesIO()
    drawing.figure.savefig(picture, format="png", dpi=PNG_DPI, metadata={"Software": None})
    plt.close(drawing.figure)
    with atomic_path(folder / f"{item.id}.png") as path:
        path.write_bytes(picture.getvalue())
    _save_csv(drawing.frame, folder / f"{item.id}.csv")
    _save_description(item, folder, drawing.note, reason)
    if reason:
        return Shown(missing_html(item.id, item.label, item.title, reason))
    data = base64.b64encode(picture.getvalue()).decode()
    return Shown(
        f'<figure id="{item.id}">{scroll_region(item)}'
        f'<img src="data:image/png;base64,{data}" alt="{escape(item.alt)}"></div>'
        f"{caption_html(item.label, item.title, item.caption, drawing.note)}</figure>"
    )


def save_table(item: Item, view: TableView, folder: Path, reason: str = "") -> Shown:
    """Write `<folder>/<id>` as HTML, CSV and JSON; `reason` says why there is only a sentence."""
    html = missing_html(item.id, item.label, item.title, reason) if reason else table_html(item, view)
    write_text(folder / f"{item.id}.html", html + "\n")
    _save_csv(view.frame, folder / f"{item.id}.csv")
    _save_description(item, folder, view.note, reason)
    return Shown(html)


def scroll_region(item: Item) -> str:
    """Return the opening tag of a box that scrolls sideways by itself, by keyboard too."""
    return f'<div class="scroll" tabindex="0" role="region" aria-label="{escape(item.label)}">'


def table_html(item: Item, view: TableView, caption: str | None = None) -> str:
    """Return a table with its caption (by default the item's); every text is escaped."""
    head = "".join(f'<th scope="col"{_class(column)}>{escape(column.label)}</th>' for column in view.columns)
    rows = []
    for record in view.frame.to_dict("records"):
        cells = "".join(_cell(column, record[column.key]) for column in view.columns)
        rows.append(f"<tr>{cells}</tr>")
    words = item.caption if caption is None else caption
    return (
        f'<figure class="table" id="{item.id}">{caption_html(item.label, item.title, words, view.note)}'
        f"{scroll_region(item)}"
        f'<table aria-label="{escape(item.title)}"><thead><tr>{head}</tr></thead>'
        f"<tbody>{''.join(rows)}</tbody></table></div></figure>"
    )


def _class(column: Column) -> str:
    names = [name for name, on in (("text", not column.numeric), ("wrap", column.wrap)) if on]
    return f' class="{" ".join(names)}"' if names else ""


def _cell(column: Column, value: Any) -> str:
    if value is None or value is pd.NA or value != value:
        return '<td class="none" title="no value">–</td>'
    return f"<td{_class(column)}>{escape(column.show(value))}</td>"


def _save_csv(frame: pd.DataFrame, path: Path) -> None:
    write_text(path, frame.to_csv(index=False, float_format="%.8g", lineterminator="\n"))


def _save_description(item: Item, folder: Path, note: str, reason: str) -> None:
    write_json(folder / f"{item.id}.json", {"id": item.id, "note": note, "not_measured": reason})


def missing_frame(reason: str) -> pd.DataFrame:
    """Return the CSV content of something that was not measured."""
    return pd.DataFrame({"not_measured": [reason]})
