"""The scripts of `bench/` on a processor, with tiny sizes: that they run and count correctly, no speed."""

from __future__ import annotations

import importlib.util
import sys

import pytest
import torch

from smelt.files import ROOT
from smelt.study import Geometry
from tests.model.conftest import SIZES

TINY = Geometry(**SIZES)


def script(name: str):
    spec = importlib.util.spec_from_file_location(name, ROOT / "bench" / f"{name}.py")
    module = importlib.util.module_from_spec(spec)
    sys.modules[name] = module
    spec.loader.exec_module(module)
    return module


@pytest.fixture(scope="module")
def gpu_check():
    return script("gpu_check")


def test_without_a_device_nothing_is_checked(gpu_check, monkeypatch, capsys):
    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)
    monkeypatch.setattr(sys, "argv", ["gpu_check.py"])
    assert gpu_check.main() == 0
    assert "no CUDA device" in capsys.readouterr().out


def test_parts_agree_with_float64(gpu_check):
    errors = gpu_check.check(torch.device("cpu"), torch.float32)
    assert {"experts grouped, sparse", "experts cpu, one token", "cross entropy"} <= errors.keys()
    assert max(errors.values()) < 1e-4


def test_a_wrong_part_is_noticed(gpu_check, monkeypatch):
    monkeypatch.setattr(
        gpu_check, "moe_experts", lambda x, *rest, **_: 1.1 * gpu_check.reference(x, *rest[:-1], rest[-1])
    )
    errors = gpu_check.check(torch.device("cpu"), torch.float32)
    assert errors["experts grouped, even"] > gpu_check.TOLERANCE


@pytest.fixture(scope="module")
def gpu_capture():
    return script("gpu_capture")


def test_the_capture_of_a_device_is_held_to_the_processors(gpu_capture):
    """On the processor float32 is the same bit for bit, mixed precision differs within its tolerance."""
    found = gpu_capture.check_capture(torch.device("cpu"))
    assert found["capture, float32"][0] == 0
    error, tolerance = found["capture, mixed bf16"]
    assert 0 < error < tolerance
    assert {found[f"logits beside it, {name}"] for name in gpu_capture.TOLERANCES} == {(0.0, 0.0)}


@pytest.mark.parametrize("fault", [1.5, float("nan")])
def test_a_wrong_capture_is_noticed(gpu_capture, monkeypatch, fault):
    """A number of the device's tables alone is off."""
    keep = gpu_capture.tables
    calls = []

    def tables(model, *rest):
        calls.append(model)
        rows, changed = keep(model, *rest)
        if len(calls) % 2 == 0:
            rows["sink"][0]["mass"] *= fault
        return rows, changed

    monkeypatch.setattr(gpu_capture, "tables", tables)
    error, tolerance = gpu_capture.check_capture(torch.device("cpu"))["capture, float32"]
    assert not error <= tolerance


def test_a_capture_that_changes_the_model_is_noticed(gpu_capture, monkeypatch):
    class Meddling(gpu_capture.Capture):
        def add(self, batch):
            super().add(batch)
            self.model.head.weight.mul_(1.001)

    monkeypatch.setattr(gpu_capture, "Capture", Meddling)
    found = gpu_capture.check_capture(torch.device("cpu"))
    assert found["logits beside it, float32"][0] > 0


def test_timings_run(gpu_check, monkeypatch):
    monkeypatch.setattr(gpu_check, "STEPS", 2)
    monkeypatch.setattr(gpu_check, "WARM_UP", 1)
    device = torch.device("cpu")
    assert gpu_check.time_layer(device, TINY, 2, 32, "grouped") > 0
    found = gpu_check.train(device, TINY, 64, 2, 32)
    assert found["tokens_per_step"] == 64
    assert found["last_loss"] < found["first_loss"]


def test_attended_tokens_by_hand(gpu_check):
    # 1 2 3 | 1 2 and 1 | 1 2 3 4
    segments = torch.tensor([[0, 0, 0, 1, 1], [0, 1, 1, 1, 1]])
    assert gpu_check.attended(segments) == (1 + 2 + 3 + 1 + 2 + 1 + 1 + 2 + 3 + 4) / 10


def test_layers_are_chosen_by_memory(gpu_check):
    assert gpu_check.layers_that_fit(141 * 10**9) == 20
    assert 1 <= gpu_check.layers_that_fit(40 * 10**9) < 20


@pytest.mark.parametrize(
    ("mfu", "word"), [(None, "unknown"), (0.1, "rejected"), (0.2, "below"), (0.3, "goal"), (0.5, "stretch")]
)
def test_verdict(gpu_check, mfu, word):
    assert word in gpu_check.verdict(mfu)


def test_step_benchmark_compares_with_hf(monkeypatch):
    pytest.importorskip("transformers")
    bench = script("train_step")
    monkeypatch.setattr(bench, "SIZES", {"tiny": TINY})
    monkeypatch.setattr(bench, "CONTEXT", 32)
    found = bench.measure("tiny", 1, 2)
    assert all(len(row["seconds"]) == 2 for row in found.values())
    ours = found["smelt"]["saved_bytes_per_token"]
    assert ours < 0.5 * found["hf grouped_mm"]["saved_bytes_per_token"]
    rows = {"smelt": ([1.0, 2.0], [1.0, 1.0]), "hf eager": ([2.0, 5.0], [1.5, 1.5])}
    rows = {name: {"seconds": wall, "cpu_seconds": cpu} for name, (wall, cpu) in rows.items()}
    smelt = bench.summary(rows)["models"]["smelt"]
    assert (smelt["ratio"], smelt["cpu_ratio"]) == (pytest.approx(2.25), pytest.approx(1.5))
