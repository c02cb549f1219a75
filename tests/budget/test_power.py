"""Gaps expected from the published law, and the spread between seeds where it is known."""

from __future__ import annotations

import statistics

import pytest

from smelt.budget.power import (
    endpoint_tokens,
    power_rows,
    predicted_gap,
    published_laws,
    seed_spread,
)
from smelt.errors import SmeltError
from smelt.results.parquet import write_table
from smelt.study import load_study


def test_law_is_that_of_table_6():
    # E + A (1-S)^b / F^a + K / D^c with the printed numbers, by hand.
    law = published_laws()["baseline"]
    by_hand = 1.4439 + 1366.0 * 0.15**0.1530 / 1e9**0.3703 + 1975000.0 / 1e11**0.6594
    assert law.loss(1e9, 0.85, 1e11) == pytest.approx(by_hand, rel=1e-12)
    assert published_laws()["smelt"].loss(1e9, 0.85, 1e11) < by_hand


def test_data_terms_cross_where_the_paper_says():
    # Section 5: K / D^c of both architectures cross at D = 1.6e10 tokens.
    base, smelt = (published_laws()[arch] for arch in ("baseline", "smelt"))
    crossing = (smelt.K / base.K) ** (1 / (smelt.c - base.c))
    assert crossing == pytest.approx(1.6e10, rel=0.05)


def test_gap_grows_with_compute_inside_the_window():
    gaps = [predicted_gap(flops, 0.85, 2e11, 65536) for flops in (6.3e8, 1.3e9, 4.2e9)]
    assert gaps == sorted(gaps, reverse=True)
    assert all(-0.02 < gap < 0 for gap in gaps)


def test_every_sparse_endpoint_of_the_paper_is_in_the_window():
    rows = power_rows(load_study("paper"))
    assert len(rows) == 96
    assert all(row["in_window"] == (not row["cell"].endswith("-s0")) for row in rows)


@pytest.mark.parametrize("name", ["smoke", "nano"])
def test_small_studies_are_extrapolations(name):
    assert not any(row["in_window"] for row in power_rows(load_study(name)))


def test_no_gap_is_told_where_the_law_is_worse_than_a_guess():
    # At 1e5 tokens the data term alone is hundreds of nats.
    assert predicted_gap(1e6, 0.85, 1e5, 1024) is None
    assert {row["gap_predicted"] for row in power_rows(load_study("nano"))} == {None}


def test_endpoint_tokens_count_trunk_and_branch():
    study = load_study("paper")
    assert endpoint_tokens(study, 196075) == (196075 + 9537) * 256 * 4096


def endpoint(run: str, horizon: int, loss: float) -> dict:
    row = dict.fromkeys(("core", "completion", "mmlu", "baseline_version"))
    return row | {
        "run": run, "horizon": horizon, "tokens": 1, "flops": 1.0, "val_loss": loss, "suite": "local",
    }  # fmt: skip


def test_seed_spread_needs_two_seeds(tmp_path):
    study = load_study("smoke")
    losses = {"xs-s85-baseline": 3.0, "xs-s85-baseline-seed1": 3.2, "xs-s85-baseline-seed2": 3.1,
              "xs-s95-baseline": 3.0, "xs-s85-smelt": 1.0, "xs-s85-smelt-seed1": 9.0,
              "old-s85-baseline": 1.0, "old-s85-baseline-seed1": 2.0}  # fmt: skip
    for run, loss in losses.items():
        write_table(tmp_path / "evaluate" / run, "endpoints", [endpoint(run, 30, loss)])
    spread = seed_spread(study, tmp_path)
    assert spread == {("xs-s85", 30): pytest.approx(statistics.stdev([3.0, 3.1, 3.2]))}


def test_damaged_endpoints_are_named(tmp_path):
    path = tmp_path / "evaluate" / "xs-s85-baseline" / "endpoints.parquet"
    path.parent.mkdir(parents=True)
    path.write_bytes(b"PAR1 no")
    with pytest.raises(SmeltError, match=r"endpoints.parquet is damaged"):
        seed_spread(load_study("smoke"), tmp_path)


def test_nothing_is_known_before_training(tmp_path):
    assert seed_spread(load_study("smoke"), tmp_path) == {}
