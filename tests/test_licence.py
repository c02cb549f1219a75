"""Licence, citation and package metadata are whole and agree."""

import hashlib
import re
import tomllib

import yaml
from packaging.licenses import canonicalize_license_expression

from smelt.files import ROOT

PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
CITATION = yaml.safe_load((ROOT / "CITATION.cff").read_text())
LICENCE = (ROOT / "LICENSE").read_text()
# SHA-256 of the MIT licence from "Permission" on, its white space folded.
MIT = "fe2a9817987f862eaced948f0468c7f51d2fedfc48c5c505b246a49a3870e9a5"


def test_the_licence_is_the_whole_text_with_its_holder():
    assert LICENCE.startswith("MIT License\n\nCopyright (c) 2026 the smelt authors\n\nPermission is hereby")
    terms = " ".join(LICENCE[LICENCE.index("Permission") :].split())
    assert hashlib.sha256(terms.encode()).hexdigest() == MIT


def test_package_metadata_names_the_licence():
    assert PROJECT["license"] == canonicalize_license_expression("mit") == CITATION["license"]
    assert PROJECT["license-files"] == ["LICENSE"]
    assert PROJECT["authors"] == [{"name": CITATION["authors"][0]["name"]}]


def test_the_citation_has_what_its_format_asks_for():
    assert CITATION["cff-version"] == "1.2.0" and CITATION["type"] == "software"
    assert CITATION.keys() >= {"message", "title", "authors"}
    assert CITATION["version"] == PROJECT["version"]
    assert CITATION["title"].startswith(f"{PROJECT['name']}: ")


def test_the_citation_refers_to_the_paper():
    (paper,) = CITATION["references"]
    assert paper.keys() >= {"type", "title", "authors"}
    first = " ".join((ROOT / "docs" / "paper.md").read_text()[:600].split())
    assert paper["title"] in first
    (identifier,) = paper["identifiers"]
    number = re.search(r"arXiv (\d{4}\.\d{5})", first).group(1)
    assert identifier["value"] == f"arXiv:{number}" and paper["url"].endswith(f"/abs/{number}")
