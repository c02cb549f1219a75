"""Running notebooks: pages on success, nothing on failure."""

import nbformat
import pytest

from smelt.errors import SmeltError
from smelt.report.contents import SECTIONS
from smelt.report.notebook import _add_cells, run_notebook


def write(path, *sources, kernel="python3", parameters='study = ""\ndb = ""\nout = ""'):
    cell = nbformat.v4.new_code_cell(parameters)
    cell.metadata["tags"] = ["parameters"]
    notebook = nbformat.v4.new_notebook(
        cells=[nbformat.v4.new_markdown_cell("# A title"), cell, *map(nbformat.v4.new_code_cell, sources)]
    )
    if kernel:
        notebook.metadata["kernelspec"] = {"name": kernel, "display_name": kernel, "language": "python"}
    nbformat.write(notebook, path)
    return path


@pytest.mark.slow
def test_a_notebook_of_the_report_gives_a_page(results, notebooks, tmp_path):
    page = run_notebook(notebooks / "02_ablations.ipynb", "smoke", results / "results.duckdb", tmp_path)
    html = page.read_text()
    assert html.startswith("<!doctype html>") and "<title>Ablations</title>" in html
    assert 'id="table03"' in html and "://" not in html.replace("http://www.w3.org", "")
    assert (tmp_path / "tables" / "table05.csv").is_file()
    executed = nbformat.read(tmp_path / "notebooks" / "02_ablations.ipynb", as_version=4)
    assert "papermill" not in executed.metadata
    assert all("papermill" not in cell.metadata for cell in executed.cells)


@pytest.mark.slow
def test_a_failing_cell_is_named_and_leaves_no_page(results, tmp_path):
    notebook = write(tmp_path / "bad.ipynb", "1 / 0")
    with pytest.raises(SmeltError, match=r"bad\.ipynb: cell \d+ failed: ZeroDivisionError"):
        run_notebook(notebook, "smoke", results / "results.duckdb", tmp_path / "out")
    assert not list((tmp_path / "out").rglob("*.*"))


@pytest.mark.parametrize("section", SECTIONS, ids=lambda section: section.notebook)
def test_what_no_cell_shows_is_added_at_the_end(notebooks, section):
    content = nbformat.read(notebooks / f"{section.notebook}.ipynb", as_version=4)
    whole = [cell.source for cell in content.cells]
    _add_cells(content, section.notebook)
    assert [cell.source for cell in content.cells] == whole
    name = (section.figures + section.tables)[-1]
    content.cells = [cell for cell in content.cells if f'"{name}"' not in cell.source]
    _add_cells(content, section.notebook)
    assert content.cells[-1].source == f'report.{"table" if section.tables else "figure"}("{name}")'
    nbformat.validate(content)


def test_a_notebook_must_take_the_parameters(results, tmp_path):
    notebook = write(tmp_path / "bad.ipynb", parameters='study = ""\ndatabase = ""')
    with pytest.raises(SmeltError, match="it must set db, out, study"):
        run_notebook(notebook, "smoke", results / "results.duckdb", tmp_path)


@pytest.mark.parametrize("kernel", [None, "julia"])
def test_a_notebook_must_be_for_the_known_kernel(results, tmp_path, kernel):
    notebook = write(tmp_path / "bad.ipynb", kernel=kernel)
    with pytest.raises(SmeltError, match="it must be 'python3'"):
        run_notebook(notebook, "smoke", results / "results.duckdb", tmp_path)


def test_missing_and_broken_files_are_named(results, tmp_path):
    database = results / "results.duckdb"
    with pytest.raises(SmeltError, match="none.ipynb does not exist"):
        run_notebook(tmp_path / "none.ipynb", "smoke", database, tmp_path)
    (tmp_path / "text.ipynb").write_text("text")
    with pytest.raises(SmeltError, match="is not a notebook"):
        run_notebook(tmp_path / "text.ipynb", "smoke", database, tmp_path)
    with pytest.raises(SmeltError, match="smelt.results build"):
        run_notebook(write(tmp_path / "good.ipynb"), "smoke", tmp_path / "none.duckdb", tmp_path)
