"""The command line as a user meets it: one sentence and exit code 2 for every mistake."""

from __future__ import annotations

import subprocess
import sys

import pytest
import yaml

from smelt.corpus.card import card
from smelt.files import ROOT


def run(*arguments: str) -> subprocess.CompletedProcess:
    return subprocess.run(
        [sys.executable, "-m", "smelt.corpus", *arguments],
        cwd=ROOT,
        capture_output=True,
        text=True,
        timeout=60,
    )


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("--study", "smoke"), "whl does not exist; run `python -m smelt.corpus fetch` first"),
        (("--study", "nothing"), "there is no study 'nothing'"),
        (("--study", "smoke", "--share", "0/2"), "is not streamed"),
        (("--study", "{poem}"), "there is no source set 'poems'"),
    ],
)
def test_build_refuses_in_one_sentence(tmp_path, arguments, message):
    poem = yaml.safe_load((ROOT / "config/studies/smoke.yaml").read_text())
    poem["name"], poem["corpus"]["sources"] = "poem", "poems"
    (tmp_path / "poem.yaml").write_text(yaml.safe_dump(poem))
    arguments = [a.format(poem=tmp_path / "poem.yaml") for a in arguments]
    result = run("build", *arguments, "--cache", str(tmp_path / "cache"), "--out", str(tmp_path / "out"))
    assert result.returncode == 2 and result.stdout == ""
    assert result.stderr.startswith("error: ") and message in result.stderr
    assert result.stderr.count("\n") == 1
    assert not (tmp_path / "out" / "manifest.json").exists()


def test_card_lists_every_source_and_every_document(corpus):
    text = card(corpus)
    for source in set(corpus.documents["source"]):
        assert text.count(f"\n| {source} |") == 2
    total = next(line for line in text.splitlines() if line.startswith("| **all**"))
    assert total.split("|")[4].strip() == f"{len(corpus.documents['tokens']):,}"
    rows = [line.split("|")[2:-1] for line in text.split("\n\n")[1].splitlines()[2:]]
    assert sum(int(cell) for row in rows for cell in row) == len(corpus.documents["tokens"])
