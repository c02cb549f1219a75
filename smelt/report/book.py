"""`Report`: what a notebook calls to draw a figure or to show a table."""

from __future__ import annotations

import importlib
from pathlib import Path
from typing import Any

import pandas as pd

from smelt.errors import SmeltError
from smelt.report.contents import FIGURES, TABLES, Item
from smelt.report.data import Data, NotMeasured
from smelt.report.output import Drawing, Shown, TableView, missing_frame, save_figure, save_table
from smelt.report.style import text_figure, use_theme
from smelt.study import load_study


class Report:
    """Draws into `<out>/figures` and `<out>/tables` from a study's database."""

    def __init__(self, data: Data, out: Path) -> None:
        self.data = data
        self.out = Path(out)
        use_theme()

    def figure(self, name: str) -> Shown:
        """Draw the figure `name` (`fig03`), write its files and return it for display."""
        item = _item(FIGURES, name)
        try:
            drawing, reason = _maker("figures", item)(self.data), ""
        except NotMeasured as missing:
            reason = str(missing)
            drawing = Drawing(text_figure(f"{item.label}. {reason}"), missing_frame(reason))
        return save_figure(item, drawing, self.out / "figures", reason)

    def table(self, name: str) -> Shown:
        """Make the table `name` (`table06`), write its files and return it for display."""
        item = _item(TABLES, name)
        try:
            view, reason = _maker("tables", item)(self.data), ""
        except NotMeasured as missing:
            reason = str(missing)
            view = TableView((), missing_frame(reason))
        return save_table(item, view, self.out / "tables", reason)

    def query(self, sql: str, *parameters: Any) -> pd.DataFrame:
        """Return the rows of a query on the study's database."""
        return self.data.frame(sql, *parameters)


def open_report(study: str, db: str | Path, out: str | Path) -> Report:
    """Open the database `db` of `study` (a name or a file); figures and tables go below `out`."""
    return Report(Data(load_study(study), Path(db)), Path(out))


def _item(items: dict[str, Item], name: str) -> Item:
    if name not in items:
        raise SmeltError(f"the report has no {name!r}; it has {', '.join(items)}")
    return items[name]


def _maker(package: str, item: Item) -> Any:
    module, function = item.maker.split(":")
    return getattr(importlib.import_module(f"smelt.report.{package}.{module}"), function)
