"""Plan and wall clock: the plan's own numbers, measured speeds, and the gain in time."""

import pytest

from smelt.budget.plan import choose_machine, make_plan
from smelt.report.clock import pace_table, paces, plan, time_gains, time_table


def test_the_plan_tells_memory_and_disk(study, data, tmp_path):
    shown = plan(data, tmp_path)
    whole = make_plan(study, 1, choose_machine(study, None, None))
    text = " ".join(shown["sentences"])
    assert f"Disk: {1000 * whole['totals']['disk_gb']:.3g} MB" in text
    assert f"at most {max(run['memory_gb'] for run in whole['runs']):.3g} GB a device" in text
    assert f"{whole['totals']['runs']} runs" in text and "13 trained runs took 4.3 minutes" in text
    assert shown["table"].count("<tr>") == 1 + 6 and "ablation of the span" in shown["table"]


def test_speeds_are_compared_within_a_pair(data, tmp_path):
    frame = paces(data).set_index("cell")
    # The synthetic speed is 1000 tokens/s over the executed layers, at 1.02 of the Baseline's FLOPs a token.
    assert frame.at["xs-s85", "baseline"] == pytest.approx(1000 / 4)
    assert frame["speed"].tolist() == pytest.approx([4 / 6, 6 / 9] * 2)
    assert frame["rate"].tolist() == pytest.approx([1.02 * 4 / 6] * 4)
    assert "SMELT trains at 0.67 of its Baseline" in pace_table(paces(data), tmp_path)


def test_without_a_timed_pair_there_is_a_sentence(data, tmp_path):
    assert "no pair was timed on one device" in pace_table(paces(data)[:0], tmp_path)


def test_the_gain_in_time(data, tmp_path):
    frame = time_gains(data, paces(data))
    rate = 1.02 * 4 / 6
    assert len(frame) == 6
    for name, gain in (("gain", 0.15), ("low", 0.08), ("high", 0.25)):
        assert frame[f"{name}_time"].tolist() == pytest.approx([1 - (1 - gain) / rate] * 6)
    html = time_table(data, paces(data), tmp_path)
    assert "+15.0" in html and "-25.0" in html and "SMELT saves time in 0 of 6 rows." in html


def test_without_a_gain_the_needed_one_is_told(data, tmp_path):
    pace = paces(data)
    sentence = time_table(data, pace.assign(sparsity=0), tmp_path)
    assert "would have to save 32% of the FLOPs" in sentence and "<table" not in sentence
