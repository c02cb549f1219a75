"""What the report consists of: its sections, figures and tables, with the paper's numbers.

A figure or table is described by one file, `workflow/report/<id>.rst`: a comment with its fields, then its
caption. Snakemake's own report shows the caption of the same file.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from smelt.errors import SmeltError
from smelt.files import ROOT

CAPTIONS = ROOT / "workflow" / "report"
# Notebooks (`notebooks/<name>.ipynb`) in the order of the report, with the titles of their sections.
_TITLES = {
    "01_recipe_and_budgets": "Recipe and budgets",
    "02_ablations": "Ablations",
    "03_training_curves": "Training curves",
    "04_scaling": "Scaling",
    "05_downstream": "Downstream",
    "06_domains_length_shots": "Domains, length and shots",
    "07_second_pass": "Inside the second pass",
    "08_dyck_and_sinks": "Dyck head and attention sinks",
    "09_claims": "Claims",
}
_NEEDED = {"number", "title", "section", "maker"}
_OPTIONAL = {"alt", "place"}


@dataclass(frozen=True)
class Section:
    """One section of the report and the notebook (`notebooks/<notebook>.ipynb`) that makes its figures."""

    notebook: str
    title: str
    figures: tuple[str, ...] = ()
    tables: tuple[str, ...] = ()


@dataclass(frozen=True)
class Item:
    """A figure or table: the paper's number, a title, the function that makes it, and its alternative text.

    `maker` is `module:function` below `smelt.report.figures` or `smelt.report.tables`. What the paper does
    not have is numbered with a letter. Items of a `section` are sorted by `place`, which is the id unless
    said otherwise.
    """

    id: str
    number: str
    title: str
    maker: str
    alt: str = ""
    caption: str = ""
    section: str = ""
    place: str = ""

    @property
    def ours(self) -> bool:
        """Whether the paper does not have it."""
        return self.number[0].isalpha()

    @property
    def label(self) -> str:
        """The heading, such as `Figure 3`."""
        kind = "Figure" if self.id.startswith("fig") else "Table"
        return f"{kind} {self.number}" + (" (ours)" if self.ours else "")


def read_item(path: Path) -> Item:
    """Read the description of a figure or table.

    Raises:
        SmeltError: a field is missing or unknown, the section does not exist, or there is no caption.
    """
    head, _, caption = path.read_text(encoding="utf-8").partition("\n\n")
    if not head.startswith(".. ") or not caption.strip():
        raise SmeltError(
            f"{path} must be a comment with fields (`.. number: 3`), an empty line and a caption"
        )
    pairs = [line[3:].partition(": ") for line in head.splitlines()]
    values = {name.strip(): value.strip() for name, _, value in pairs}
    if wrong := _NEEDED - values.keys() or values.keys() - _NEEDED - _OPTIONAL:
        state = "missing" if wrong <= _NEEDED else "unknown"
        raise SmeltError(f"{path}: field {', '.join(sorted(wrong))} is {state}")
    if values["section"] not in _TITLES:
        raise SmeltError(f"{path}: section is {values['section']!r}; it must be one of {', '.join(_TITLES)}")
    return Item(path.stem, **{"place": path.stem} | values, caption=" ".join(caption.split()))


def _items(pattern: str) -> dict[str, Item]:
    return {path.stem: read_item(path) for path in sorted(CAPTIONS.glob(f"{pattern}.rst"))}


def _section(notebook: str, title: str) -> Section:
    chosen = [
        tuple(item.id for item in sorted(items.values(), key=_place) if item.section == notebook)
        for items in (FIGURES, TABLES)
    ]
    return Section(notebook, title, *chosen)


def _place(item: Item) -> str:
    return item.place


FIGURES = _items("fig*")
TABLES = _items("table*") | _items("claims")
SECTIONS = tuple(_section(notebook, title) for notebook, title in _TITLES.items())
