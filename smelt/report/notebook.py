"""Run a notebook on a study and turn it into a page; a notebook that fails leaves neither."""

from __future__ import annotations

import logging
import os
import re
from pathlib import Path
from typing import Any

import nbformat
import papermill
from papermill.exceptions import PapermillExecutionError

from smelt.errors import SmeltError
from smelt.files import ROOT, write_text
from smelt.report.contents import SECTIONS
from smelt.report.page import notebook_page

_KERNEL = "python3"
_TIMEOUT = 1800  # seconds a cell
_SHOWN = re.compile(r'report\.(?:figure|table)\("(\w+)"\)')


def run_notebook(notebook: Path, study: str, db: Path, out: Path) -> Path:
    """Execute `notebook` with the parameters `study`, `db` and `out`; return the HTML page.

    Writes `<out>/notebooks/<name>.ipynb` and `.html`, and what the cells write below `out`. Figures and
    tables of the notebook's section that no cell shows are shown at its end.

    Raises:
        SmeltError: no such notebook or database, a notebook without the parameters or of another kernel,
            or a cell that fails: its number and its error.
    """
    notebook, db, out = Path(notebook), Path(db), Path(out)
    if not db.is_file():
        raise SmeltError(f"{db} does not exist; `python -m smelt.results build` writes it")
    parameters = {"study": study, "db": str(db), "out": str(out)}
    content = _checked(notebook, parameters)
    _add_cells(content, notebook.stem)
    page = out / "notebooks" / f"{notebook.stem}.html"
    executed = _execute(notebook, content, parameters)
    _strip(executed)
    html = notebook_page(executed)
    write_text(page.with_suffix(".ipynb"), nbformat.writes(executed) + "\n")
    write_text(page, html)
    return page


def _checked(notebook: Path, parameters: dict[str, Any]) -> nbformat.NotebookNode:
    """Return the notebook.

    Papermill itself runs on with a misspelt parameter and stops at a missing kernel only when it starts it.
    """
    try:
        content = nbformat.read(notebook, as_version=4)
    except FileNotFoundError:
        raise SmeltError(f"{notebook} does not exist") from None
    except (nbformat.reader.NotJSONError, nbformat.ValidationError) as error:
        raise SmeltError(f"{notebook} is not a notebook: {str(error).splitlines()[0]}") from None
    kernel = content.metadata.get("kernelspec", {}).get("name")
    if kernel != _KERNEL:
        raise SmeltError(f"{notebook}: the kernel is {kernel!r}; it must be {_KERNEL!r}")
    known = set(papermill.inspect_notebook(str(notebook)))
    if known != parameters.keys():
        raise SmeltError(
            f"{notebook}: the cell tagged `parameters` sets {', '.join(sorted(known)) or 'nothing'}; "
            f"it must set {', '.join(sorted(parameters))}"
        )
    return content


def _add_cells(content: nbformat.NotebookNode, name: str) -> None:
    """Append a cell for each figure and table of the section `name` that no cell shows."""
    shown = set(_SHOWN.findall("\n".join(cell.source for cell in content.cells)))
    for section in SECTIONS:
        if section.notebook == name:
            calls = [("figure", item) for item in section.figures]
            calls += [("table", item) for item in section.tables]
            lacking = [f'report.{kind}("{item}")' for kind, item in calls if item not in shown]
            content.cells.extend(map(nbformat.v4.new_code_cell, lacking))


def _execute(
    notebook: Path, content: nbformat.NotebookNode, parameters: dict[str, Any]
) -> nbformat.NotebookNode:
    logging.getLogger("papermill").setLevel(logging.ERROR)
    # The kernel starts in this process's working directory and must find this very package.
    os.environ["PYTHONPATH"] = os.pathsep.join(filter(None, (str(ROOT), os.environ.get("PYTHONPATH"))))
    os.environ.setdefault("PYDEVD_DISABLE_FILE_VALIDATION", "1")
    try:
        return papermill.execute_notebook(
            content,
            None,
            parameters=parameters,
            progress_bar=False,
            log_output=False,
            request_save_on_cell_execute=False,
            execution_timeout=_TIMEOUT,
            kernel_name=_KERNEL,
        )
    except PapermillExecutionError as error:
        raise SmeltError(
            f"{notebook}: cell {error.cell_index} failed: {error.ename}: {error.evalue}"
        ) from None


def _strip(notebook: nbformat.NotebookNode) -> None:
    """Remove what differs between two runs: times, process paths and the injected locations."""
    notebook.metadata.pop("papermill", None)
    for cell in notebook.cells:
        cell.metadata.pop("papermill", None)
        cell.metadata.pop("execution", None)
