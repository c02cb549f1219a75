"""The commands: tables, plan and match; and what they cost at start."""

from __future__ import annotations

import csv
import json
import subprocess
import sys

import pytest

from smelt.budget import resolve_run
from smelt.budget.__main__ import main
from smelt.budget.tables import tokens_planned
from smelt.errors import SmeltError
from smelt.files import ROOT
from smelt.results.parquet import read_rows
from smelt.results.schemas import TABLES
from smelt.study import load_study, run_points

BUDGET_TABLES = ("runs", "pairs", "ablation_points", "power", "published_configs")


def command(monkeypatch, capsys, *arguments: str) -> str:
    monkeypatch.setattr(sys, "argv", ["smelt.budget", *arguments])
    main()
    return capsys.readouterr().out


@pytest.mark.parametrize("name", ["smoke", "nano", "paper"])
def test_tables_are_whole_and_reproducible(name, tmp_path, monkeypatch, capsys):
    folders = [tmp_path / "a", tmp_path / "b"]
    for folder in folders:
        command(monkeypatch, capsys, "tables", "--study", name, "--seeds", "2", "--out", str(folder))
    for table in BUDGET_TABLES:
        files = [(folder / f"{table}.parquet").read_bytes() for folder in folders]
        assert files[0] == files[1]
    study = load_study(name)
    rows = {table: read_rows(folders[0] / f"{table}.parquet") for table in BUDGET_TABLES}
    points = run_points(study, seeds=2)
    assert {row["run"] for row in rows["runs"]} == set(points)
    assert {row["run"] for row in rows["pairs"]} == {r for r, p in points.items() if p.baseline}
    assert {row["run"] for row in rows["ablation_points"]} <= set(points)
    assert len(rows["power"]) == len(study.scales) * len(study.sparsities) * len(study.training.horizons)
    for row in rows["runs"]:
        groups = ("attention", "experts", "router", "norms")
        assert row["params_total"] == sum(row[f"params_{group}"] for group in groups)
        assert row["spec_hash"] == resolve_run(study, row["run"]).spec_hash
        assert row["effective_layers"] == row["layers"] + (row["loop_count"] - 1) * row["loop_length"]


def test_pairs_are_ratios_of_runs(tmp_path, monkeypatch, capsys):
    command(monkeypatch, capsys, "tables", "--study", "paper", "--out", str(tmp_path))
    runs = {row["run"]: row for row in read_rows(tmp_path / "runs.parquet")}
    pairs = read_rows(tmp_path / "pairs.parquet")
    for pair in pairs:
        run, baseline = runs[pair["run"]], runs[pair["baseline"]]
        assert baseline["arch"] == "baseline"
        assert pair["cell"] == baseline["cell"]
        for ratio, column in (
            ("flops_ratio", "flops_per_token"),
            ("params_ratio", "params_total"),
            ("kv_ratio", "kv_bytes_per_token"),
        ):
            assert pair[ratio] == pytest.approx(run[column] / baseline[column], rel=1e-12)
    printed = [pair["run"] for pair in pairs if pair["source"] == "printed"]
    assert len(printed) == 12
    assert not any("-s0-" in run for run in printed)


def test_sparsity_of_runs(tmp_path, monkeypatch, capsys):
    command(monkeypatch, capsys, "tables", "--study", "paper", "--out", str(tmp_path))
    for row in read_rows(tmp_path / "runs.parquet"):
        if row["arch"] == "baseline":
            assert row["sparsity_measured"] == row["sparsity_own_control"] or row["grouping"] == "depth"
        if row["grouping"] == "grid":
            assert abs(100 * row["sparsity_measured"] - row["sparsity"]) < 1.5


def test_plan_of_the_paper_is_believable(tmp_path, monkeypatch, capsys):
    out = command(
        monkeypatch, capsys, "plan", "--study", "paper", "--json", str(tmp_path / "p.json"), "--csv",
        str(tmp_path / "p.csv"),
    )  # fmt: skip
    plan = json.loads((tmp_path / "p.json").read_text())
    # By hand (section 2): 196,075 steps of 256 x 4096 tokens and six branches of 10B.
    by_hand = 196_075 * 256 * 4096 + 6 * 10e9
    assert by_hand == pytest.approx(265e9, rel=0.005)
    for run in plan["runs"]:
        assert run["tokens"] == pytest.approx(by_hand, rel=1e-3)
    grid = [run for run in plan["runs"] if run["run"].endswith(("-baseline", "-smelt"))]
    assert len(grid) == 32
    # 6 x active parameters x executed share, without the attended context, is a floor.
    floor = sum(6 * run["params_active"] * by_hand for run in grid if run["arch"] == "baseline")
    total = sum(run["flops"] for run in grid)
    assert 2 * floor < total < 2 * 1.25 * floor
    # Table 9 prints 0.10, 0.21, 0.66 and 1.63B active: 2 members x 4 sparsities x 265B tokens of each.
    rough = 2 * 4 * 265e9 * 6 * (0.100 + 0.208 + 0.668 + 1.638) * 1e9
    assert total == pytest.approx(1.05 * rough, rel=0.05)
    hours = (plan["totals"]["flops"] + plan["totals"]["head_flops"]) / (989e12 * 0.30) / 3600
    assert plan["totals"]["device_hours"] == pytest.approx(hours)
    assert "30% MFU (assumed)" in out
    assert f"{plan['totals']['flops']:.3e}" in out
    largest = max(plan["runs"], key=lambda run: run["params_total"])
    # 54B parameters with 16 bytes of state do not fit one device of 141 GB.
    assert largest["devices"] * 0.9 * 141 >= largest["params_total"] * 16 / 1e9
    assert largest["strategy"] == "fsdp"
    with open(tmp_path / "p.csv", newline="") as stream:
        rows = list(csv.DictReader(stream))
    assert [row["run"] for row in rows] == [run["run"] for run in plan["runs"]]
    assert float(rows[0]["flops"]) == plan["runs"][0]["flops"]


def test_plan_totals_are_sums(tmp_path, monkeypatch, capsys):
    command(monkeypatch, capsys, "plan", "--study", "nano", "--json", str(tmp_path / "p.json"))
    plan = json.loads((tmp_path / "p.json").read_text())
    assert plan["totals"]["tokens"] == len(plan["runs"]) * tokens_planned(load_study("nano"))
    for name in ("flops", "head_flops", "device_hours", "endpoints_gb"):
        assert plan["totals"][name] == pytest.approx(sum(run[name] for run in plan["runs"]))
    assert all(run["strategy"] == "single" for run in plan["runs"])


def test_plan_scales_with_the_assumptions(monkeypatch, capsys, tmp_path):
    hours = {}
    for mfu in ("0.2", "0.4"):
        file = tmp_path / f"{mfu}.json"
        command(
            monkeypatch,
            capsys,
            "plan",
            "--study",
            "paper",
            "--mfu",
            mfu,
            "--device",
            "a100",
            "--json",
            str(file),
        )
        hours[mfu] = json.loads(file.read_text())["totals"]["device_hours"]
    assert hours["0.2"] == pytest.approx(2 * hours["0.4"])


def test_match_prints_chosen_and_others(monkeypatch, capsys):
    out = command(monkeypatch, capsys, "match", "--study", "paper", "--run", "200M-s85-smelt")
    lines = [line.split() for line in out.splitlines()]
    assert "hold every goal" in out
    assert [line[0] for line in lines if line and line[0] in ("Baseline", "chosen")] == ["Baseline", "chosen"]
    narrowed = command(
        monkeypatch, capsys, "match", "--study", "paper", "--run", "200M-s85-smelt", "--narrow", "experts"
    )
    assert narrowed != out


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["tables", "--study", "nope", "--out", "x"], "no study 'nope'"),
        (["tables", "--study", "smoke", "--seeds", "0", "--out", "x"], "--seeds is 0"),
        (["plan", "--study", "smoke", "--mfu", "1.5"], "--mfu is 1.5"),
        (["plan", "--study", "smoke", "--device", "tpu"], "--device is 'tpu'"),
        (["plan", "--study", "paper", "--device", "core"], "does not fit 1024 devices"),
        (["match", "--study", "smoke", "--run", "s-s85-baseline"], "a Baseline"),
        (["match", "--study", "smoke", "--run", "nope"], "has no run 'nope'"),
        (["match", "--study", "smoke", "--run", "s-s85-smelt", "--narrow", "x"], "narrow is 'x'"),
    ],
)
def test_bad_arguments_are_told(arguments, words, monkeypatch, capsys):
    with pytest.raises(SmeltError) as caught:
        command(monkeypatch, capsys, *arguments)
    assert words in str(caught.value)


def test_resolving_needs_no_torch_and_no_pandas():
    code = (
        "import sys; from smelt.study import load_study, run_points; from smelt.budget import resolve_run\n"
        "study = load_study('nano')\n"
        "assert all(resolve_run(study, run).spec_hash for run in run_points(study))\n"
        "assert not {'torch', 'pandas', 'pyarrow', 'scipy'} & set(sys.modules), sorted(sys.modules)"
    )
    done = subprocess.run([sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr


def test_refusal_is_one_line_and_exit_code_two():
    done = subprocess.run(
        [sys.executable, "-m", "smelt.budget", "plan", "--study", "nope"],
        cwd=ROOT, capture_output=True, text=True, check=False,
    )  # fmt: skip
    assert done.returncode == 2
    assert done.stderr.startswith("error: there is no study 'nope'")
    assert done.stderr.count("\n") == 1


def test_every_budget_table_is_declared():
    assert set(BUDGET_TABLES) <= set(TABLES)
