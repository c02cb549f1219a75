"""The site: self-contained, every link and image works, text is escaped, readable by machines."""

import base64
import re
from html.parser import HTMLParser
from pathlib import Path
from urllib.parse import unquote, urlparse

import pytest

from smelt.errors import SmeltError
from smelt.report.contents import FIGURES
from smelt.report.site import write_site

VOID = {"meta", "link", "img", "input", "br", "hr"}


class Page(HTMLParser):
    """Collects elements and checks that they are nested."""

    def __init__(self, html):
        super().__init__()
        self.elements, self.open = [], []
        self.feed(html)
        assert not self.open

    def handle_starttag(self, tag, attributes):
        self.elements.append((tag, dict(attributes)))
        if tag not in VOID:
            self.open.append(tag)

    def handle_endtag(self, tag):
        assert self.open.pop() == tag

    def all(self, tag):
        return [attributes for name, attributes in self.elements if name == tag]


@pytest.fixture(scope="module")
def page(site):
    return Page((site / "index.html").read_text())


def test_every_link_leads_somewhere(site, page):
    ids = {attributes["id"] for _, attributes in page.elements if "id" in attributes}
    for link in page.all("a"):
        target = urlparse(link["href"])
        assert not target.scheme, link
        if target.path:
            assert (site / unquote(target.path)).is_file(), link
        else:
            assert target.fragment in ids, link


def test_every_table_and_figure_of_the_page_has_its_csv(page):
    shown = {attributes["id"] for tag, attributes in page.elements if tag == "figure"}
    linked = {Path(link["href"]).stem for link in page.all("a") if link["href"].endswith(".csv")}
    assert {"data-card", "length-table", "cost-table", "plan-table", "pace-table"} <= shown
    assert shown == linked


def test_ids_occur_once(page):
    ids = [attributes["id"] for _, attributes in page.elements if "id" in attributes]
    assert len(ids) == len(set(ids))


def test_images_are_inside_the_page_and_described(page):
    images = page.all("img")
    assert len(images) == len(FIGURES) - 1  # the data card's more; two are for scales that smoke has not
    for image in images:
        assert image["alt"].endswith(".")
        kind, data = image["src"].split(",", 1)
        assert kind == "data:image/svg+xml;base64"
        assert b"<svg" in base64.b64decode(data)[:600]


def test_nothing_is_loaded_from_elsewhere(site):
    html = (site / "index.html").read_text()
    outside = re.findall(r'(?:src|href|url)\s*[=(]\s*["\']?\s*(?:https?:)?//[^"\')]*', html)
    assert not outside


def test_the_answer_and_the_ledger_come_first_and_headings_step_by_one(page):
    headings = [(tag, a) for tag, a in page.elements if re.fullmatch("h[1-6]", tag)]
    assert headings[0][0] == "h1" and headings[1] == ("h2", {"id": "answer"})
    assert [a for tag, a in headings if tag == "h2"][1] == {"id": "ledger"}
    levels = [int(tag[1]) for tag, _ in headings]
    assert all(later - earlier <= 1 for earlier, later in zip(levels, levels[1:], strict=False))
    assert page.all("html")[0]["lang"] == "en"


def test_text_of_the_data_is_escaped(site):
    html = (site / "index.html").read_text()
    assert "&lt;b&gt;with markup&lt;/b&gt;" in html and "<b>with markup" not in html
    assert "CC0 &lt;test&gt;" in html


def test_what_was_not_measured_is_said(site):
    html = (site / "index.html").read_text()
    assert html.count('<p class="missing"') == 2
    assert "this figure is for scale 3 of the paper" in html


def test_tables_have_scopes_and_captions(page):
    assert all("scope" in cell for cell in page.all("th"))
    assert all("aria-label" in table for table in page.all("table")[1:]) and len(page.all("caption")) == 1
    assert len(page.all("figcaption")) == len(page.all("figure"))


def test_it_is_small(site):
    assert (site / "index.html").stat().st_size < 4e6


def test_a_missing_part_is_named_with_its_command(study, site, tmp_path):
    import shutil

    folder = shutil.copytree(site.parent, tmp_path / "copy")
    (folder / "figures" / "fig03.svg").unlink()
    with pytest.raises(SmeltError, match=r"fig03\.svg does not exist; .*04_scaling"):
        write_site(study, folder / "report")
    (folder / "results.duckdb").unlink()
    with pytest.raises(SmeltError, match="smelt.results build"):
        write_site(study, folder / "report")
