"""Copy the report of a finished study to docs/snapshot/<study>, small enough to be kept in the repository.

Pages of a report carry their pictures inside; here every picture is one file and all pages show it. That is
the SVG, which has colours for a dark page as well. Used by `make snapshot STUDY=nano`.
"""

from __future__ import annotations

import argparse
import os
import shutil
import tempfile
from collections.abc import Iterator
from pathlib import Path
from urllib.parse import unquote, urlsplit

from lxml import html

from smelt import cli
from smelt.errors import SmeltError
from smelt.files import ROOT, write_json, write_text
from smelt.report.data import Data
from smelt.study import Study, load_study

LIMIT = 10_000_000  # bytes of a snapshot
# Pictures for README.md, as PNG beside the pages: loss against compute, and the gap against tokens.
FRONT = ("fig03", "figP2")
# What the study was run with: rows of the table `provenance` and their names in provenance.json.
PROVENANCE = {
    "git_commit": "commit",
    "processor": "processor",
    "processor_count": "cores",
    "devices": "devices",
    "python": "python",
    "version_torch": "torch",
}


def snapshot(study: Study, results: Path, out: Path) -> Path:
    """Write the snapshot of `study` to `out`, in place of an older one; return its first page.

    Args:
        results: the study's result folder, with its database and report.

    Raises:
        SmeltError: the report is missing or incomplete, a page names a place of this machine, or the snapshot
            is over `LIMIT`; an older snapshot is then left as it was.
    """
    report = results / "report"
    _present(report / "index.html", study)
    provenance = _provenance(study, results)
    pictures = {path.stem for path in (report / "files").glob("*.svg")}
    out.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=out.parent, prefix=f".{out.name}.") as made:
        folder = Path(made) / out.name
        write_json(folder / "provenance.json", {"study": study.name} | provenance)
        for source in sorted(report.rglob("*.html")):
            page = source.relative_to(report)
            tree = html.document_fromstring(source.read_text(encoding="utf-8"))
            _show_files(tree, os.path.relpath("files", page.parent), pictures)
            if page == Path("index.html"):
                tree.find(".//header").append(_banner(study, provenance))
            text = html.tostring(tree, encoding="unicode", doctype="<!doctype html>") + "\n"
            _refuse_places(page, text, results)
            write_text(folder / page, text)
            for target in _targets(tree, page):
                if not (folder / target).exists():
                    _copy(_present(report / target, study), folder / target)
        for name in FRONT:
            _copy(_present(report / "files" / f"{name}.png", study), folder / f"{name}.png")
        _refuse_large(folder, study)
        if out.exists():
            shutil.rmtree(out)
        folder.rename(out)
    return out / "index.html"


def _present(path: Path, study: Study) -> Path:
    if not path.is_file():
        raise SmeltError(f"{path} does not exist; run `make reproduce STUDY={study.name}` to its end first")
    return path


def _copy(source: Path, target: Path) -> None:
    target.parent.mkdir(parents=True, exist_ok=True)
    shutil.copyfile(source, target)


def _provenance(study: Study, results: Path) -> dict[str, str]:
    data = Data(study, results / "results.duckdb")
    rows = dict(data.frame("SELECT key, value FROM provenance").itertuples(index=False))
    data.close()
    return {name: rows[key] for key, name in PROVENANCE.items()}


def _show_files(tree: html.HtmlElement, files: str, pictures: set[str]) -> None:
    """Let figures show their SVG in the folder `files`, and drop the links to their PNG."""
    for figure in tree.iter("figure"):
        if (name := figure.get("id")) in pictures:
            for image in figure.iter("img"):
                image.set("src", f"{files}/{name}.svg")
    for links in tree.find_class("files"):
        anchors = [link for link in links.iter("a") if Path(link.get("href")).suffix != ".png"]
        for anchor in anchors:
            anchor.tail = ", " if anchor is not anchors[-1] else None
        links[:] = anchors


def _banner(study: Study, provenance: dict[str, str]) -> html.HtmlElement:
    facts = ", ".join(f"{name} {value}" for name, value in provenance.items())
    banner = html.Element("p", {"class": "soft", "id": "snapshot"})
    banner.text = f"Snapshot of study {study.name}: {facts} ("
    link = html.Element("a", {"href": "provenance.json"})
    link.text, link.tail = "provenance.json", ")."
    banner.append(link)
    return banner


def _targets(tree: html.HtmlElement, page: Path) -> Iterator[Path]:
    """Yield what a page links to or shows, relative to the snapshot, without what lies inside the page."""
    for _, _, target, _ in tree.iterlinks():
        parts = urlsplit(target)
        if not parts.scheme and parts.path:
            path = Path(os.path.normpath(page.parent / unquote(parts.path)))
            if path.parts[0] == "..":
                raise SmeltError(f"{page} of the report links to {target}, which lies outside of it")
            yield path


def _refuse_places(page: Path, text: str, results: Path) -> None:
    for place in (str(ROOT), str(results.resolve())):
        if place in text:
            raise SmeltError(f"{page} of the report names {place}, a place of this machine")


def _refuse_large(folder: Path, study: Study) -> None:
    sizes = {path: path.stat().st_size for path in folder.rglob("*") if path.is_file()}
    total, largest = sum(sizes.values()), max(sizes, key=sizes.__getitem__)
    if total > LIMIT:
        raise SmeltError(
            f"the snapshot of {study.name} has {total / 1e6:.1f} MB; at most {LIMIT / 1e6:.1f} MB are kept "
            f"(the largest file is {largest.relative_to(folder)} with {sizes[largest] / 1e6:.1f} MB)"
        )


def main() -> None:
    """Parse the arguments and write the snapshot."""
    parser = argparse.ArgumentParser(prog="python -m workflow.scripts.snapshot", description=__doc__)
    parser.add_argument("--study", required=True, help="name of a shipped study or path of a study file")
    parser.add_argument("--results", type=Path, default=Path("results"), help="folder with all results")
    parser.add_argument("--out", type=Path, default=Path("docs/snapshot"), help="folder of snapshots")
    arguments = parser.parse_args()
    study = load_study(arguments.study)
    index = snapshot(study, arguments.results / study.name, arguments.out / study.name)
    size = sum(path.stat().st_size for path in index.parent.rglob("*") if path.is_file())
    print(f"{index}: {size / 1e6:.1f} MB; for README.md {', '.join(f'{name}.png' for name in FRONT)}")


if __name__ == "__main__":
    cli.run(main)
