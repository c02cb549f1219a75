"""The site: one page with the ledger first, every figure and table, and the notebooks' pages beside it."""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import Any

from smelt.errors import SmeltError
from smelt.files import atomic_path, read_json, write_text
from smelt.report.answer import groups, headline, words
from smelt.report.clock import pace_table, paces, plan, time_table
from smelt.report.contents import FIGURES, SECTIONS, TABLES, Item, Section
from smelt.report.costs import cost_table
from smelt.report.data import Data, NotMeasured
from smelt.report.datacard import datacard
from smelt.report.facts import facts
from smelt.report.ledger import MARKS, VERDICTS, ledger
from smelt.report.markup import missing_html
from smelt.report.output import PICTURE, figure_html, file_links, linked_table
from smelt.report.page import TEMPLATES, render
from smelt.report.tables.formats import interval_text, scientific
from smelt.study import Study


def write_site(study: Study, out: Path) -> Path:
    """Write `<out>/index.html`, `<out>/notebooks/` and `<out>/files/`; return the index.

    `out` lies in the study's result folder, whose database, figures, tables and notebooks are read.

    Raises:
        SmeltError: the database, a notebook's page, a figure or a table is missing.
    """
    out = Path(out)
    results = out.parent
    data = Data(study, results / "results.duckdb")
    try:
        index = render("index.html", **_values(data, results, out))
    finally:
        data.close()
    for section in SECTIONS:
        _copy(results / "notebooks" / f"{section.notebook}.html", out / "notebooks", section)
        for name in section.figures:
            for kind in PICTURE:
                _copy(results / "figures" / f"{name}.{kind}", out / "files", section)
        for name in section.tables:
            _copy(results / "tables" / f"{name}.csv", out / "files", section)
    write_text(out / "index.html", index)
    return out / "index.html"


def _copy(source: Path, folder: Path, section: Section) -> None:
    _present(source, section)
    with atomic_path(folder / source.name) as temporary:
        shutil.copyfile(source, temporary)


def _present(path: Path, section: Section) -> Path:
    if not path.is_file():
        raise SmeltError(
            f"{path} does not exist; `python -m smelt.report notebook --notebook "
            f"notebooks/{section.notebook}.ipynb` writes it"
        )
    return path


def _values(data: Data, results: Path, out: Path) -> dict[str, Any]:
    rows = data.frame("SELECT key, value FROM provenance ORDER BY key").to_dict("records")
    return {
        "title": f"smelt: study {data.study.name}",
        "study": data.study,
        "ledger": _ledger(data),
        "facts": facts(data),
        "sections": [_section(section, results) for section in SECTIONS if section.notebook != "09_claims"],
        "datacard": datacard(data, out / "files"),
        "words": words(data),
        "clock": _clock(data, out / "files"),
        "provenance": [row for row in rows if not row["key"].startswith("spec_")],
        "specs": [row | {"key": row["key"][5:]} for row in rows if row["key"].startswith("spec_")],
        "script": (TEMPLATES / "filter.js").read_text(encoding="utf-8"),
    }


def _ledger(data: Data) -> dict[str, Any]:
    try:
        frame = ledger(data)
    except NotMeasured as missing:
        return {"rows": [], "missing": str(missing).replace("`", "")}
    rows = [
        {
            **record,
            "mark": MARKS[record["verdict"]],
            "unit": "" if record["unit"] in record["component"] else record["unit"],
            "value": "–" if record["value"] != record["value"] else scientific(record["value"]),
            "interval": interval_text(record["low"], record["high"]),
        }
        for record in frame.to_dict("records")
    ]
    counts = [(verdict, sum(row["verdict"] == verdict for row in rows)) for verdict in VERDICTS]
    return {
        "rows": rows,
        "counts": counts,
        "scope": frame["scope"].iloc[0],
        "headline": headline(data, frame),
        "groups": groups(frame),
    }


def _clock(data: Data, folder: Path) -> dict[str, Any]:
    pace = paces(data)
    tables = [pace_table(pace, folder), time_table(data, pace, folder), cost_table(data, folder)]
    return {"plan": plan(data, folder), "tables": tables}


def _section(section: Section, results: Path) -> dict[str, Any]:
    entries = [_figure(FIGURES[name], section, results / "figures") for name in section.figures]
    entries += [_table(TABLES[name], section, results / "tables") for name in section.tables]
    return {
        "id": section.notebook[:2],
        "title": section.title,
        "notebook": section.notebook,
        "items": entries,
    }


def _figure(item: Item, section: Section, folder: Path) -> str:
    about = read_json(_present(folder / f"{item.id}.json", section))
    if about["not_measured"]:
        return missing_html(item.id, item.label, item.title, about["not_measured"])
    svg = _present(folder / f"{item.id}.svg", section).read_text(encoding="utf-8")
    return figure_html(item, svg, about["note"], file_links(item.id))


def _table(item: Item, section: Section, folder: Path) -> str:
    html = _present(folder / f"{item.id}.html", section).read_text(encoding="utf-8").rstrip()
    about = read_json(_present(folder / f"{item.id}.json", section))
    if about["not_measured"]:
        return html
    return linked_table(item, html)
