"""Counting without building, against what is built, executed and cached."""

from __future__ import annotations

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch.nn.attention import SDPBackend, sdpa_kernel
from torch.utils.flop_counter import FlopCounterMode

from smelt.budget import budget, flops_per_token, kv_elements, parameters, resolve_run, sparsity
from smelt.budget.accounting import ELEMENT_BYTES
from smelt.budget.published import published
from smelt.budget.tables import run_row
from smelt.model import KVCache, LoopedLM, ModelConfig, count_parameters
from smelt.study import Geometry, load_study, run_points

GROUPS = ("attention", "experts", "router", "norms")
SMALL = {"hidden": 32, "layers": 3, "heads": 4, "kv_heads": 2, "head_dim": 8, "experts": 6, "top_k": 3,
         "expert_dim": 16}  # fmt: skip
LOOPS = [
    {},
    {"loop_start": 1, "loop_length": 1, "loop_count": 3},
    {"loop_start": 0, "loop_length": 2, "loop_count": 2, "loop_order": "layer"},
]


@st.composite
def geometries(draw):
    kv_heads = draw(st.integers(1, 4))
    layers = draw(st.integers(1, 6))
    length = draw(st.integers(0, layers))
    top_k = draw(st.integers(1, 8))
    return Geometry(
        hidden=draw(st.integers(1, 64)),
        layers=layers,
        heads=kv_heads * draw(st.integers(1, 4)),
        kv_heads=kv_heads,
        head_dim=2 * draw(st.integers(1, 16)),
        experts=top_k + draw(st.integers(0, 40)),
        top_k=top_k,
        expert_dim=draw(st.integers(1, 64)),
        loop_start=draw(st.integers(0, layers - length)) if length else 0,
        loop_length=length,
        loop_count=draw(st.integers(2, 4)) if length else 1,
    )


def built(geometry: Geometry) -> dict[str, int]:
    return count_parameters(ModelConfig(geometry, vocab=64))


@settings(max_examples=40, deadline=None)
@given(geometries())
def test_groups_equal_the_built_model(geometry):
    count, model = parameters(geometry), built(geometry)
    assert {name: getattr(count, name) for name in GROUPS} == {name: model[name] for name in GROUPS}
    assert count.total == sum(model[name] for name in GROUPS)
    idle = geometry.layers * (geometry.experts - geometry.top_k) * 3 * geometry.hidden * geometry.expert_dim
    assert count.active == count.total - idle


@pytest.mark.parametrize("name", ["smoke", "nano", "paper"])
def test_every_run_of_a_study_equals_the_built_model(name):
    study = load_study(name)
    for run in run_points(study):
        spec = resolve_run(study, run)
        model, row = built(spec.geometry), run_row(study, spec)
        assert row["params_total"] == sum(model[group] for group in GROUPS), run
        for group in GROUPS:
            assert row[f"params_{group}"] == model[group], run


def test_all_published_configurations_equal_the_built_model():
    rows = [row for row in published().values() if row.geometry is not None]
    assert len(rows) == 28
    for row in rows:
        model = built(row.geometry)
        assert parameters(row.geometry).total == sum(model[name] for name in GROUPS)


def executed_flops(geometry: Geometry, tokens: int) -> int:
    """Return counted FLOPs of the layers, forward and backward, for one row of plain causal attention."""
    model = LoopedLM(ModelConfig(geometry, vocab=32))
    for layer in model.layers:
        layer.moe.backend = "reference"  # a loop of plain products, which the counter sees
    inputs_bt = torch.randint(32, (1, tokens), generator=torch.Generator().manual_seed(0))
    with FlopCounterMode(display=False) as counter, sdpa_kernel(SDPBackend.MATH):
        model.hidden(inputs_bt, model.context(inputs_bt))[0].sum().backward()
    return counter.get_total_flops()


@pytest.mark.parametrize("loop", LOOPS, ids=lambda loop: "-".join(map(str, loop.values())) or "unlooped")
def test_flops_equal_the_executed_ones(loop):
    geometry, tokens = Geometry(**SMALL, **loop), 48
    # The counter takes every query to attend to all tokens.
    expected = tokens * flops_per_token(geometry, attended=tokens)
    assert executed_flops(geometry, tokens) == pytest.approx(expected, rel=0.01)


@pytest.mark.parametrize("loop", LOOPS)
@pytest.mark.parametrize(("precision", "dtype"), [("fp32", torch.float32), ("bf16", torch.bfloat16)])
def test_kv_bytes_equal_the_cache(loop, precision, dtype):
    geometry = Geometry(**SMALL, **loop)
    cache = KVCache(ModelConfig(geometry, vocab=32), rows=2, capacity=5, dtype=dtype)
    kept = sum(slot.k_bsgd.nbytes + slot.v_bsgd.nbytes for slot in cache.slots)
    assert kept == 2 * 5 * kv_elements(geometry) * ELEMENT_BYTES[precision]


def test_generation_fills_the_counted_cache():
    geometry = Geometry(**SMALL, **LOOPS[1])
    config = ModelConfig(geometry, vocab=32)
    model = LoopedLM(config)
    inputs_bt = torch.randint(32, (1, 9), generator=torch.Generator().manual_seed(1))
    cache = KVCache(config, rows=1, capacity=9)
    for slot in cache.slots:
        slot.k_bsgd.fill_(torch.nan)
        slot.v_bsgd.fill_(torch.nan)
    with torch.no_grad():
        whole_btv = model(inputs_bt)
        parts = [model(inputs_bt[:, i : i + 1], cache=cache) for i in range(9)]
    torch.testing.assert_close(torch.cat(parts, 1), whole_btv, rtol=1e-4, atol=1e-5)
    # Every element counted was written: none more is needed, none is spare.
    written = sum(int(t.isfinite().sum()) for slot in cache.slots for t in (slot.k_bsgd, slot.v_bsgd))
    assert written == 9 * kv_elements(geometry)


def test_worked_example():
    # Section 3: 200M, S=95%.
    base = budget(published()["200M", 95, "baseline"].geometry, 395)
    smelt = budget(published()["200M", 95, "smelt"].geometry, 395)
    assert base.flops == pytest.approx(1.33e9, rel=0.003)
    assert base.params == pytest.approx(3.87e9, rel=0.001)
    assert smelt.flops == pytest.approx(1.37e9, rel=0.003)
    assert smelt.params == pytest.approx(3.89e9, rel=0.001)
    assert smelt.flops / base.flops == pytest.approx(1.029, abs=0.0005)


@given(geometries(), st.floats(1, 4096))
def test_a_visit_costs_flops_and_cache_but_no_parameters(geometry, attended):
    flat = Geometry(**{**geometry.to_dict(), "loop_start": 0, "loop_length": 0, "loop_count": 1})
    growth = geometry.effective_layers / geometry.layers
    flops, params, kv = budget(geometry, attended).ratios(budget(flat, attended))
    assert (flops, params, kv) == (pytest.approx(growth), 1, pytest.approx(growth))


@given(geometries(), st.floats(1, 4096))
def test_sparsity_is_zero_at_the_own_control(geometry, attended):
    own = budget(geometry, attended)
    assert sparsity(own, own) == pytest.approx(0, abs=1e-12)


def test_sparsity_is_the_idle_share_without_router_and_attention_differences():
    # F/F0 is nearly 1 along S, so S is nearly 1 - N0/N (section 3).
    base = Geometry(**{**SMALL, "hidden": 512, "expert_dim": 1024, "experts": 40})
    control = Geometry(**{**SMALL, "hidden": 512, "expert_dim": 1024, "experts": 4})
    ours, zero = budget(base, 100), budget(control, 100)
    assert sparsity(ours, zero) == pytest.approx(1 - zero.params / ours.params, abs=1e-3)
