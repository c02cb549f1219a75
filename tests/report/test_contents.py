"""Contents, captions and notebooks agree."""

import html
import importlib
import re

import nbformat
import pytest

from smelt.errors import SmeltError
from smelt.report.contents import CAPTIONS, FIGURES, SECTIONS, TABLES, read_item

PAPER_FIGURES = [str(number) for number in range(1, 26)]
PAPER_TABLES = [str(number) for number in range(1, 12)]


def test_every_figure_and_table_of_the_paper_has_its_number():
    numbers = {re.sub("[a-z]$", "", item.number) for item in FIGURES.values() if not item.ours}
    assert sorted(numbers, key=int) == PAPER_FIGURES
    assert [item.number for item in TABLES.values() if not item.ours] == PAPER_TABLES


def test_every_item_is_in_exactly_one_section():
    assert sorted(name for section in SECTIONS for name in section.figures) == sorted(FIGURES)
    assert sorted(name for section in SECTIONS for name in section.tables) == sorted(TABLES)


@pytest.mark.parametrize("item", [*FIGURES.values(), *TABLES.values()], ids=lambda item: item.id)
def test_item_has_a_maker_and_a_caption(item):
    package = "figures" if item.id in FIGURES else "tables"
    module, function = item.maker.split(":")
    assert callable(getattr(importlib.import_module(f"smelt.report.{package}.{module}"), function))
    assert item.caption.endswith(".") and len(item.caption) > 20
    # Snakemake renders captions as reStructuredText through Jinja: they must mean the same in both.
    assert not re.search(r"[`*|]|\{\{|_ ", item.caption)
    if item.id in FIGURES:
        assert item.alt.endswith(".")


def test_a_description_says_what_is_wrong_with_it(tmp_path):
    path, good = tmp_path / "figP9.rst", (CAPTIONS / "fig03.rst").read_text()
    path.write_text(good)
    assert read_item(path).title == FIGURES["fig03"].title and read_item(path).id == "figP9"
    for old, new, message in (
        ("   maker: scaling:loss_by_sparsity\n", "", "field maker is missing"),
        ("   alt:", "   also:", "field also is unknown"),
        ("04_scaling", "04_scalings", "section is '04_scalings'; it must be one of 01_recipe"),
        ("\n\n", "\n", "must be a comment with fields"),
        (".. number", "number", "must be a comment with fields"),
    ):
        assert old in good
        path.write_text(good.replace(old, new))
        with pytest.raises(SmeltError, match=rf"figP9\.rst.* {message}"):
            read_item(path)


def test_snakemake_shows_the_caption_alone():
    from docutils.core import publish_parts

    for item in (*FIGURES.values(), *TABLES.values()):
        source = (CAPTIONS / f"{item.id}.rst").read_text(encoding="utf-8")
        assert not re.search(r"\{[{%#]", source), item.id
        body = re.sub(r"<!--.*?-->", "", publish_parts(source, writer="html")["body"], flags=re.S)
        assert " ".join(html.unescape(re.sub(r"<[^>]+>", "", body)).split()) == item.caption


def test_no_caption_is_left_over():
    known = {f"{name}.rst" for name in (*FIGURES, *TABLES)} | {"workflow.rst"}
    assert {path.name for path in CAPTIONS.glob("*.rst")} <= known


def test_there_is_one_notebook_a_section(notebooks):
    assert {path.stem for path in notebooks.glob("*.ipynb")} == {section.notebook for section in SECTIONS}


@pytest.mark.parametrize("section", SECTIONS, ids=lambda section: section.notebook)
def test_notebook_only_queries_and_shows(notebooks, section):
    notebook = nbformat.read(notebooks / f"{section.notebook}.ipynb", as_version=4)
    nbformat.validate(notebook)
    assert notebook.metadata.kernelspec.name == "python3"
    code = [cell for cell in notebook.cells if cell.cell_type == "code"]
    assert all(not cell.outputs and cell.execution_count is None for cell in code)
    assert [cell.metadata.get("tags") for cell in code] == [["parameters"]] + [None] * (len(code) - 1)
    calls = re.findall(r'report\.(figure|table)\("(\w+)"\)', "\n".join(cell.source for cell in code))
    belonging = [("figure", name) for name in section.figures] + [("table", name) for name in section.tables]
    assert calls == [call for call in belonging if call in calls]
    for cell in code[2:]:
        assert re.fullmatch(r"report\.(figure|table|query)\((.|\n)*\)", cell.source), cell.source
    assert notebook.cells[0].source.startswith(f"# {section.title}\n")
