"""The frame of every page: one template, one style sheet, everything in the file itself."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import jinja2
import nbformat
from nbconvert import HTMLExporter

TEMPLATES = Path(__file__).parent / "templates"
# Cells that say where files lie, as written and as injected: nothing for a reader.
_PARAMETERS = {"parameters", "injected-parameters"}


def render(template: str, **values: Any) -> str:
    """Render `templates/<template>`; values are escaped unless a template marks them safe."""
    environment = jinja2.Environment(
        loader=jinja2.FileSystemLoader(TEMPLATES),
        autoescape=True,
        undefined=jinja2.StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    style = (TEMPLATES / "style.css").read_text(encoding="utf-8")
    return environment.get_template(template).render(style=style, **values)


def notebook_page(notebook: nbformat.NotebookNode) -> str:
    """Return an executed notebook as a self-contained page."""
    # The full templates of nbconvert load scripts from the network; the basic one is only the cells.
    exporter = HTMLExporter(template_name="basic", exclude_input_prompt=True, exclude_output_prompt=True)
    exporter.exclude_anchor_links = True
    shown = [cell for cell in notebook.cells if not _PARAMETERS & set(cell.metadata.get("tags", []))]
    body, _ = exporter.from_notebook_node(nbformat.from_dict({**notebook, "cells": shown}))
    title = next(
        (
            line.lstrip("# ")
            for cell in notebook.cells
            if cell.cell_type == "markdown"
            for line in cell.source.splitlines()
            if line.startswith("# ")
        ),
        "Notebook",
    )
    return render("notebook.html", title=title, body=body)
