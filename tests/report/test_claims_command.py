"""The command `report claims` refuses a study that lacks a file of a stage before it."""

import shutil
import sys

import pytest

from smelt.errors import SmeltError
from smelt.report.__main__ import main
from smelt.results.parquet import read_rows
from smelt.study import load_study
from tests.report.synthetic import Synthetic

RUN = "xs-s85-smelt"


@pytest.fixture(scope="module")
def stages(tmp_path_factory):
    return Synthetic(load_study("smoke"), tmp_path_factory.mktemp("stages"), sources=2).write()


@pytest.fixture
def command(stages, tmp_path, monkeypatch):
    folder = shutil.copytree(stages, tmp_path / "results")
    arguments = ["--study", "smoke", "--results", str(folder), "--out", str(tmp_path / "claims")]
    monkeypatch.setattr(sys, "argv", ["smelt.report", "claims", *arguments])
    return folder


def test_with_every_file_there_is_a_verdict_on_every_claim(command, tmp_path):
    main()
    assert len(read_rows(tmp_path / "claims" / "claims.parquet")) == 22


@pytest.mark.parametrize(
    "path",
    [
        "budget/runs.parquet",
        "budget/power.parquet",
        "laws/ce_gain.parquet",
        f"mechanism/{RUN}/sink.parquet",
        f"evaluate/{RUN}/endpoints.parquet",
    ],
)
def test_a_missing_file_is_named(command, tmp_path, path):
    (command / path).unlink()
    with pytest.raises(SmeltError, match=f"{path} does not exist; run the same snakemake command again"):
        main()
    assert not (tmp_path / "claims").exists()
