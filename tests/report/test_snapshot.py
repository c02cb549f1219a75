"""The copy of a report that is kept in the repository: small, whole, and without places of this machine."""

import json
import shutil
import subprocess
import sys

import pytest
from lxml import html

from smelt.errors import SmeltError
from smelt.files import ROOT
from smelt.report.contents import FIGURES, SECTIONS
from tests.report.test_browser import CHROMIUM, measure
from workflow.scripts import snapshot as script
from workflow.scripts.snapshot import snapshot

# Two figures are for scales that smoke has not, so no page shows them; one is the data card's.
SHOWN = sorted(set(FIGURES) - {"fig22", "fig23"} | {"figD1"})


@pytest.fixture(scope="module")
def made(study, site, tmp_path_factory):
    return snapshot(study, site.parent, tmp_path_factory.mktemp("docs") / "smoke").parent


@pytest.fixture
def copied(site, tmp_path):
    """A copy of the synthetic study's results, to damage."""
    return shutil.copytree(site.parent, tmp_path / "results")


def tree(path):
    return html.document_fromstring(path.read_text(encoding="utf-8"))


def test_every_page_links_to_what_is_there(made):
    pages = sorted(made.rglob("*.html"))
    assert {page.stem for page in pages} == {"index", *(section.notebook for section in SECTIONS)}
    for page in pages:
        for _, _, target, _ in tree(page).iterlinks():
            if target.startswith(("data:", "#")):
                continue
            assert (page.parent / target.partition("#")[0]).is_file(), f"{page}: {target}"


def test_a_page_shows_pictures_that_have_colours_for_a_dark_page(made, site):
    figures = tree(made / "index.html").xpath("//figure[.//img]")
    assert sorted(figure.get("id") for figure in figures) == SHOWN
    for figure in figures:
        name, (image,) = figure.get("id"), figure.iter("img")
        assert image.get("src") == f"files/{name}.svg" and image.get("alt")
        assert (made / image.get("src")).read_bytes() == (site / image.get("src")).read_bytes()
        svg = (made / image.get("src")).read_text()
        assert "prefers-color-scheme: dark" in svg and "svg { color-scheme: light dark }" in svg
        assert not (made / "files" / f"{name}.png").exists()
        links = [link.get("href") for link in figure.xpath(".//p[@class='files']/a")]
        assert links == [f"files/{name}.svg", f"files/{name}.csv"]
    shown = {figure.get("id"): figure.xpath(".//img/@src")[0] for figure in figures}
    (image,) = tree(made / "notebooks" / "04_scaling.html").xpath("//figure//img")
    assert image.get("src") == f"../{shown['fig03']}"


def test_a_page_says_the_same_as_before(made, site):
    """All but the line about the snapshot and the names of pictures that are gone."""
    before, after = tree(site / "index.html"), tree(made / "index.html")
    (banner,) = after.xpath("//*[@id='snapshot']")
    banner.getparent().remove(banner)
    for page in (before, after):
        for links in page.find_class("files"):
            links.getparent().remove(links)
    assert " ".join(after.text_content().split()) == " ".join(before.text_content().split())
    assert [e.tag for e in before.iter("*")] == [e.tag for e in after.iter("*")]


def test_it_names_commit_and_machine(made, data):
    provenance = json.loads((made / "provenance.json").read_text())
    stored = dict(data.frame("SELECT key, value FROM provenance").itertuples(index=False))
    assert provenance == {
        "study": "smoke",
        "commit": stored["git_commit"],
        "processor": stored["processor"],
        "cores": stored["processor_count"],
        "devices": stored["devices"],
        "python": stored["python"],
        "torch": stored["version_torch"],
    }
    (banner,) = tree(made / "index.html").xpath("//header/*[@id='snapshot']")
    for value in provenance.values():
        assert value in banner.text_content()


def test_it_is_small_and_has_the_pictures_of_the_readme(made, site):
    assert sum(path.stat().st_size for path in made.rglob("*")) < 0.5 * sum(
        path.stat().st_size for path in site.rglob("*")
    )
    for name in script.FRONT:
        assert (made / f"{name}.png").read_bytes().startswith(b"\x89PNG")


def test_a_second_snapshot_takes_the_place_of_the_first(study, site, tmp_path):
    out = tmp_path / "docs" / "smoke"
    snapshot(study, site.parent, out)
    first = {path.relative_to(out): path.read_bytes() for path in out.rglob("*") if path.is_file()}
    (out / "left over.txt").write_text("")
    snapshot(study, site.parent, out)
    assert {path.relative_to(out): path.read_bytes() for path in out.rglob("*") if path.is_file()} == first
    assert [path.name for path in out.parent.iterdir()] == ["smoke"]


def test_it_refuses_what_is_not_finished(study, copied, tmp_path):
    (copied / "report" / "files" / "table06.csv").unlink()
    with pytest.raises(SmeltError, match=r"table06\.csv does not exist; run `make reproduce STUDY=smoke`"):
        snapshot(study, copied, tmp_path / "docs" / "smoke")
    (copied / "report" / "index.html").unlink()
    with pytest.raises(SmeltError, match=r"index\.html does not exist; run `make reproduce STUDY=smoke`"):
        snapshot(study, copied, tmp_path / "docs" / "smoke")
    assert list((tmp_path / "docs").iterdir()) == []


def test_it_refuses_what_is_too_large(study, site, tmp_path, monkeypatch):
    out = tmp_path / "docs" / "smoke"
    index = snapshot(study, site.parent, out)
    kept = index.read_bytes()
    monkeypatch.setattr(script, "LIMIT", 200_000)
    with pytest.raises(SmeltError, match=r"has \d\.\d MB; at most 0\.2 MB are kept \(the largest file is "):
        snapshot(study, site.parent, out)
    assert index.read_bytes() == kept and [path.name for path in out.parent.iterdir()] == ["smoke"]


@pytest.mark.parametrize(
    ("text", "message"),
    [
        (str(ROOT), "of the report names .*, a place of this machine"),
        ('<a href="../../results.duckdb">database</a>', "which lies outside of it"),
        ('<a href="files/none.csv">none</a>', r"none\.csv does not exist"),
    ],
)
def test_it_refuses_a_page_that_leads_elsewhere(study, copied, tmp_path, text, message):
    page = copied / "report" / "index.html"
    page.write_text(page.read_text().replace("<footer>", f"<footer>{text}"))
    with pytest.raises(SmeltError, match=message):
        snapshot(study, copied, tmp_path / "docs" / "smoke")


def test_the_command_writes_below_the_named_folders(site, tmp_path):
    (tmp_path / "results").mkdir()
    (tmp_path / "results" / "smoke").symlink_to(site.parent)
    command = [sys.executable, "-m", "workflow.scripts.snapshot", "--study", "smoke"]
    command += ["--results", str(tmp_path / "results"), "--out", str(tmp_path / "docs")]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    assert (tmp_path / "docs" / "smoke" / "index.html").is_file() and "fig03.png, figP2.png" in done.stdout
    command[command.index("smoke")] = "nano"
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True)
    assert done.returncode == 2 and "make reproduce STUDY=nano" in done.stderr


@pytest.mark.slow
@pytest.mark.skipif(CHROMIUM is None, reason="no Chromium on this machine")
@pytest.mark.parametrize("page", ["index.html", "notebooks/04_scaling.html"])
def test_it_opens_from_disk(made, page):
    measured, console = measure(made, 390, page=page)
    assert console == [] and measured["images"] and measured["broken"] == []
    assert measured["width"] <= 390 and measured["worst"] >= 4.5
