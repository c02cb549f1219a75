"""Write figures and tables: SVG, PNG, CSV and HTML, and a small JSON that tells the site what they are."""

from __future__ import annotations

import base64
import io
import itertools
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
from smelt.report.style import dark_style

PNG_DPI = 160
PICTURE = ("svg", "png", "csv")  # a figure's files for readers


@dataclass(frozen=True)
class Drawing:
    """A drawn figure, the numbers in it, and a remark for its caption that depends on the data."""

    figure: Figure
    frame: pd.DataFrame
    note: str = ""


@dataclass(frozen=True)
class Column:
    """A column of a shown table: its heading, how a value is written, and whether it may break into lines.

    Neighbours with the same `group` stand below one heading.
    """

    key: str
    label: str
    show: Callable[[Any], str] = str
    numeric: bool = True
    wrap: bool = False
    group: str = ""


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
    svg = _svg(drawing.figure)
    write_text(folder / f"{item.id}.svg", svg)
    picture = io.BytesIO()
    drawing.figure.savefig(picture, format="png", dpi=PNG_DPI, metadata={"Software": None})
    plt.close(drawing.figure)
    with atomic_path(folder / f"{item.id}.png") as path:
        path.write_bytes(picture.getvalue())
    _save_csv(drawing.frame, folder / f"{item.id}.csv")
    _save_description(item, folder, drawing.note, reason)
    if reason:
        return Shown(missing_html(item.id, item.label, item.title, reason))
    return Shown(figure_html(item, svg, drawing.note))


def _svg(figure: Figure) -> str:
    """Return the figure without background, with the colours for a dark page in its style."""
    text = io.StringIO()
    figure.savefig(text, format="svg", transparent=True, metadata={"Date": None, "Creator": None})
    head, end, rest = text.getvalue().partition("</style>")
    return f"{head}{dark_style()}{end}{rest}"


def figure_html(item: Item, svg: str, note: str, below: str = "") -> str:
    """Return a figure with its caption, the picture inside; `below` is HTML that follows the caption."""
    data = base64.b64encode(svg.encode()).decode()
    return (
        f'<figure id="{item.id}">{scroll_region(item)}'
        f'<img src="data:image/svg+xml;base64,{data}" alt="{escape(item.alt)}"></div>'
        f"{caption_html(item.label, item.title, item.caption, note)}{below}</figure>"
    )


def file_links(name: str, kinds: tuple[str, ...] = PICTURE) -> str:
    """Return links to the files that the site has of a figure or table."""
    links = ", ".join(f'<a href="files/{name}.{kind}">{kind.upper()}</a>' for kind in kinds)
    return f'<p class="files">{links}</p>'


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


def page_table(item: Item, view: TableView, folder: Path) -> str:
    """Return a table that only the page has; its CSV goes to `folder`, the page's `files`."""
    _save_csv(view.frame, folder / f"{item.id}.csv")
    return linked_table(item, table_html(item, view))


def linked_table(item: Item, html: str) -> str:
    """Return a table's HTML with a link to its CSV below it."""
    return html.removesuffix("</figure>") + file_links(item.id, ("csv",)) + "</figure>"


def table_html(item: Item, view: TableView) -> str:
    """Return a table with its caption; every text is escaped."""
    rows = []
    for record in view.frame.to_dict("records"):
        cells = "".join(_cell(column, record[column.key]) for column in view.columns)
        rows.append(f"<tr>{cells}</tr>")
    caption = caption_html(item.label, item.title, item.caption, view.note)
    return (
        f'<figure class="table" id="{item.id}">{caption}'
        f"{scroll_region(item)}"
        f'<table aria-label="{escape(item.title)}"><thead>{_head(view.columns)}</thead>'
        f"<tbody>{''.join(rows)}</tbody></table></div></figure>"
    )


def _head(columns: tuple[Column, ...]) -> str:
    """Return one row of headings, or two where columns are grouped."""
    names = "".join(f'<th scope="col"{_class(column)}>{escape(column.label)}</th>' for column in columns)
    if not any(column.group for column in columns):
        return f"<tr>{names}</tr>"
    groups = ""
    for group, members in itertools.groupby(columns, key=lambda column: column.group):
        width = len(list(members))
        cell = f'<th scope="colgroup" colspan="{width}" class="group">{escape(group)}</th>'
        groups += cell if group else f'<td colspan="{width}"></td>'
    return f'<tr class="groups">{groups}</tr><tr>{names}</tr>'


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
