"""Invariants of the whole model: loops, masks, causality, cache, checkpointing, mixed precision."""

from __future__ import annotations

import dataclasses

import pytest
import torch

from smelt.errors import SmeltError
from smelt.model import KVCache, LoopedLM, ModelConfig
from smelt.model.context import attention_mask, segment_block_mask
from smelt.model.weights import write_tensors
from smelt.study import Geometry
from tests.model.conftest import LOOP, SIZES, build


def unroll(model: LoopedLM) -> LoopedLM:
    """Return an unlooped model whose layers are copies, its writes divided by the visits."""
    schedule = model.config.geometry.schedule()
    flat = build(layers=len(schedule))
    weights = {name: value for name, value in model.state_dict().items() if not name.startswith("layers.")}
    for index, execution in enumerate(schedule):
        prefix = f"layers.{execution.layer}."
        for name, value in model.state_dict().items():
            if name.startswith(prefix):
                scale = execution.scale if name.endswith(("attention.o.weight", "moe.w2")) else 1.0
                weights[f"layers.{index}." + name.removeprefix(prefix)] = value * scale
    flat.load_state_dict(weights)
    return flat


@pytest.mark.parametrize("order", ["block", "layer"])
@pytest.mark.parametrize("count", [2, 3])
def test_visits_apply_the_same_layers_again(tokens_bt, segments_bt, order, count):
    model = build(**{**LOOP, "loop_count": count}, loop_order=order)
    wanted = unroll(model)(tokens_bt, segments_bt)
    torch.testing.assert_close(model(tokens_bt, segments_bt), wanted, rtol=1e-4, atol=1e-4)


def test_order_of_the_visits_matters(tokens_bt):
    block, layer = build(**LOOP), build(**LOOP, loop_order="layer")
    assert (block(tokens_bt) - layer(tokens_bt)).abs().max() > 0.01


def test_looped_weights_get_the_gradient_of_all_their_copies(tokens_bt):
    model = build(**LOOP)
    flat = unroll(model)
    for each in (model, flat):
        each.loss(tokens_bt[:, :-1], tokens_bt[:, 1:]).ce.backward()
    grads = dict(flat.named_parameters())
    for name in ("attention.q.weight", "moe.w13", "moe.router.weight", "moe_norm.weight"):
        # Layers 1 and 2 are executed as 1, 2, 3, 4 of the unrolled model.
        wanted = grads[f"layers.1.{name}"].grad + grads[f"layers.3.{name}"].grad
        found = model.get_parameter(f"layers.1.{name}").grad
        torch.testing.assert_close(found, wanted, rtol=1e-3, atol=1e-5)


@pytest.mark.parametrize("segmented", [False, True])
def test_a_token_changes_nothing_before_it(looped, tokens_bt, segments_bt, segmented):
    segments = segments_bt if segmented else None
    changed = tokens_bt.clone()
    changed[:, 13] = (changed[:, 13] + 1) % 64
    before, after = looped(tokens_bt, segments), looped(changed, segments)
    torch.testing.assert_close(before[:, :13], after[:, :13], rtol=1e-4, atol=1e-5)
    assert (before[:, 13] - after[:, 13]).abs().max() > 0.1


def test_packed_documents_have_the_logits_they_have_alone(looped, tokens_bt, segments_bt):
    packed = looped(tokens_bt, segments_bt)
    for row, segments in enumerate(segments_bt):
        for document in segments.unique():
            inside = segments == document
            alone = looped(tokens_bt[row, inside][None])
            torch.testing.assert_close(packed[row, inside], alone[0], rtol=1e-4, atol=1e-4)


def test_positions_are_relative(looped, tokens_bt, segments_bt):
    """Rotary attention depends on distances only, so counting anew in each document changes nothing."""
    starts = [[(row[:i] == row[i]).sum() for i in range(24)] for row in segments_bt]
    positions = torch.tensor(starts)
    wanted = looped(tokens_bt, segments_bt)
    torch.testing.assert_close(looped(tokens_bt, segments_bt, positions), wanted, rtol=1e-4, atol=1e-4)
    assert (looped(tokens_bt, segments_bt, positions * 3) - wanted).abs().max() > 0.01


def test_top_k_equal_to_the_experts_is_dense(tokens_bt):
    model = build(experts=3, top_k=3)
    moe, x_nd = model.layers[0].moe, torch.randn(10, 32)
    weights_nk, ids_nk, logits_ne = moe.route(x_nd)
    probabilities_ne = logits_ne.softmax(-1)
    outputs = [moe.combine(x_nd, torch.ones(10, 1), torch.full((10, 1), e)) for e in range(3)]
    wanted = sum(probabilities_ne[:, e, None] * outputs[e] for e in range(3))
    torch.testing.assert_close(moe.combine(x_nd, weights_nk, ids_nk), wanted, rtol=1e-4, atol=1e-4)


def test_permuting_experts_changes_nothing(looped, tokens_bt):
    wanted = looped(tokens_bt)
    with torch.no_grad():
        for number, layer in enumerate(looped.layers):
            order = torch.randperm(12, generator=torch.Generator().manual_seed(number))
            for parameter in (layer.moe.router.weight, layer.moe.w13, layer.moe.w2):
                parameter.copy_(parameter[order])
    torch.testing.assert_close(looped(tokens_bt), wanted, rtol=1e-4, atol=1e-4)


def test_router_renormalises_the_chosen_probabilities(baseline):
    weights_nk, ids_nk, logits_ne = baseline.layers[0].moe.route(torch.randn(20, 32))
    probabilities, ids = logits_ne.softmax(-1).topk(3)
    assert torch.equal(ids_nk, ids)
    torch.testing.assert_close(weights_nk, probabilities / probabilities.sum(-1, keepdim=True))


@pytest.mark.parametrize("steps", [(24,), (10, 14), (9, 1, 1, 1, 12), (1,) * 24])
def test_cached_logits_equal_uncached(looped, tokens_bt, steps):
    cache = KVCache(looped.config, rows=3, capacity=24)
    parts, start = [], 0
    for step in steps:
        parts.append(looped(tokens_bt[:, start : start + step], cache=cache))
        start += step
    torch.testing.assert_close(torch.cat(parts, 1), looped(tokens_bt), rtol=1e-4, atol=1e-4)


def test_cached_rows_of_unequal_length(looped, tokens_bt):
    """A row padded on the left, its padding a segment of its own, has the logits of the short row."""
    padding = torch.zeros(3, 24, dtype=torch.int64)
    padding[1, :7] = -1
    cache = KVCache(looped.config, rows=3, capacity=24)
    first = looped(tokens_bt[:, :20], padding[:, :20], cache=cache)
    last = looped(tokens_bt[:, 20:], padding[:, 20:], cache=cache)
    wanted = looped(tokens_bt[1:2, 7:])
    torch.testing.assert_close(torch.cat([first, last], 1)[1:2, 7:], wanted, rtol=1e-4, atol=1e-4)


def test_cache_keeps_every_execution(looped):
    cache = KVCache(looped.config, rows=2, capacity=10)
    # 2 (keys, values) x 6 executions x 2 heads x 8 elements x 4 bytes
    assert cache.bytes_per_token == 2 * 6 * 2 * 8 * 4
    kept = sum(t.nbytes for slot in cache.slots for t in (slot.k_bsgd, slot.v_bsgd))
    assert kept == cache.bytes_per_token * 2 * 10


def test_cache_refuses_more_than_it_holds(looped, tokens_bt):
    cache = KVCache(looped.config, rows=3, capacity=5)
    with pytest.raises(SmeltError, match="room for 5 tokens; 24 are asked for"):
        looped(tokens_bt, cache=cache)
    with pytest.raises(SmeltError, match="has 3 rows and the input 1"):
        looped(tokens_bt[:1, :2], cache=cache)


def test_loss_is_the_mean_over_targets(looped, tokens_bt, segments_bt):
    targets = tokens_bt.roll(-1, 1)
    targets[:, -1] = targets[0, 3] = -100
    out = looped.loss(tokens_bt, targets, segments_bt)
    logits = looped(tokens_bt, segments_bt)
    wanted = torch.nn.functional.cross_entropy(logits.flatten(0, 1), targets.flatten())
    torch.testing.assert_close(out.ce, wanted)
    assert out.targets == (targets >= 0).sum()
    each = looped.token_losses(tokens_bt, targets, segments_bt)
    torch.testing.assert_close(each.sum() / out.targets, wanted)
    assert (each[targets < 0] == 0).all()


def test_counts_cover_every_slot_of_every_execution(looped, tokens_bt):
    out = looped.loss(tokens_bt, tokens_bt)
    assert out.counts_xe.shape == (6, 12)
    assert (out.counts_xe.sum(1) == tokens_bt.numel() * 3).all()


def test_checkpointing_changes_nothing(looped, tokens_bt, segments_bt):
    def step():
        looped.zero_grad()
        out = looped.loss(tokens_bt[:, :-1], tokens_bt[:, 1:], segments_bt[:, :-1])
        (out.ce + out.balance + 0.1 * out.z).backward()
        return out, [parameter.grad.clone() for parameter in looped.parameters()]

    plain, wanted = step()
    looped.checkpointing = True
    again, found = step()
    assert torch.equal(plain.ce, again.ce)
    assert torch.equal(plain.counts_xe, again.counts_xe)
    for ours, theirs in zip(found, wanted, strict=True):
        assert torch.equal(ours, theirs)


def test_checkpointing_keeps_less(looped, tokens_bt):
    def kept() -> int:
        parameters = {p.untyped_storage().data_ptr() for p in looped.parameters()}
        sizes = {}

        def pack(tensor):
            storage = tensor.untyped_storage()
            if storage.data_ptr() not in parameters:
                sizes[storage.data_ptr()] = storage.nbytes()
            return tensor

        with torch.autograd.graph.saved_tensors_hooks(pack, lambda tensor: tensor):
            out = looped.loss(tokens_bt, tokens_bt)
        del out
        return sum(sizes.values())

    everything = kept()
    looped.checkpointing = True
    assert kept() < everything / 3


def test_mixed_precision_keeps_the_router_and_losses_in_float32(looped, tokens_bt):
    exact = looped.loss(tokens_bt[:, :-1], tokens_bt[:, 1:])
    with torch.autocast("cpu", torch.bfloat16):
        out = looped.loss(tokens_bt[:, :-1], tokens_bt[:, 1:])
        moe, x_nd = looped.layers[0].moe, torch.randn(5, 32).bfloat16()
        weights_nk, ids_nk, logits_ne = moe.route(x_nd)
        assert moe.combine(x_nd, weights_nk, ids_nk).dtype == torch.bfloat16
    assert weights_nk.dtype == logits_ne.dtype == out.ce.dtype == torch.float32
    out.ce.backward()
    assert all(parameter.grad.dtype == torch.float32 for parameter in looped.parameters())
    torch.testing.assert_close(out.ce, exact.ce, rtol=0.05, atol=0.05)


def test_runs_in_bfloat16_throughout(looped, tokens_bt):
    exact = looped(tokens_bt)
    found = looped.bfloat16()(tokens_bt).float()
    assert (found.log_softmax(-1) - exact.log_softmax(-1)).abs().mean() < 0.2


def test_a_compiled_layer_is_one_graph(looped, tokens_bt, segments_bt):
    torch._dynamo.reset()
    wanted = looped.loss(tokens_bt, tokens_bt, segments_bt)
    wanted.ce.backward()
    grads = [parameter.grad.clone() for parameter in looped.parameters()]
    looped.zero_grad()
    for layer in looped.layers:
        layer.compile(backend="aot_eager", fullgraph=True)
    found = looped.loss(tokens_bt, tokens_bt, segments_bt)
    found.ce.backward()
    torch.testing.assert_close(found.ce, wanted.ce)
    for parameter, grad in zip(looped.parameters(), grads, strict=True):
        torch.testing.assert_close(parameter.grad, grad, rtol=1e-3, atol=1e-5)


def test_flex_attention_sees_the_same_documents(looped, segments_bt):
    """The sparse mask that CUDA uses, run uncompiled here."""
    attention = looped.layers[0].attention
    with torch.no_grad():  # flex attention has no backward pass on a processor
        q, k, v = attention.qkv(torch.randn(3, 24, 32), torch.arange(24)[None])
    wanted = attention.attend(q, k, v, attention_mask(segments_bt, segments_bt))
    found = attention.attend(q, k, v, segment_block_mask(segments_bt))
    torch.testing.assert_close(found, wanted, rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize("qk_norm", [True, False])
def test_the_public_steps_are_the_whole_layer(tokens_bt, segments_bt, qk_norm):
    model = build(qk_norm=qk_norm, **LOOP)
    context = model.context(tokens_bt, segments_bt)
    x_btd = model.embed(tokens_bt)
    for execution in model.config.geometry.schedule():
        layer = model.layers[execution.layer]
        q, k, v = layer.attention.qkv(layer.attention_norm(x_btd), context.positions_bt)
        pv = layer.attention.attend(q, k, v, context.mask)
        x_btd = x_btd + execution.scale * layer.attention.write(pv)
        h_nd = layer.moe_norm(x_btd).flatten(0, 1)
        weights_nk, ids_nk, _ = layer.moe.route(h_nd)
        x_btd = x_btd + execution.scale * layer.moe.combine(h_nd, weights_nk, ids_nk).view_as(x_btd)
    wanted = model(tokens_bt, segments_bt)
    torch.testing.assert_close(model.head(model.norm(x_btd)), wanted, rtol=1e-4, atol=1e-4)


def test_weights_are_a_function_of_the_seed():
    torch.manual_seed(0)
    first = build(seed=3, **LOOP)
    torch.manual_seed(1)
    again, other = build(seed=3, **LOOP), build(seed=4, **LOOP)
    for name, value in first.state_dict().items():
        assert torch.equal(value, again.state_dict()[name])
        assert "norm" in name or not torch.equal(value, other.state_dict()[name])


def test_initial_scale_of_the_weights():
    config = ModelConfig(Geometry(**{**SIZES, **LOOP, "experts": 64}), vocab=512, init_std=0.02)
    weights = LoopedLM(config).state_dict()
    for name, divisor in {
        "embed.weight": 1, "head.weight": 1, "layers.0.attention.q.weight": 1, "layers.2.moe.w13": 1,
        "layers.2.moe.w2": (2 * 6) ** 0.5, "layers.0.attention.o.weight": (2 * 6) ** 0.5,
    }.items():  # fmt: skip
        assert weights[name].std().item() * divisor == pytest.approx(0.02, rel=0.1)


def test_building_leaves_the_global_generator_alone():
    before = torch.get_rng_state()
    build()
    assert torch.equal(before, torch.get_rng_state())


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"vocab": 1}, "vocab is 1"),
        ({"rope_base": 0.5}, "rope_base is 0.5"),
        ({"init_std": 0}, "init_std is 0"),
    ],
)
def test_impossible_constants_are_refused(change, message):
    with pytest.raises(SmeltError, match=message):
        dataclasses.replace(build().config, **change)


def test_alignment_is_checked_before_anything_is_built():
    config = ModelConfig(Geometry(**{**SIZES, "expert_dim": 20}), vocab=64)
    config.check_alignment(4)
    with pytest.raises(
        SmeltError, match="expert_dim is 20; grouped products of 2-byte numbers need a multiple of 8"
    ):
        config.check_alignment(2)


def test_a_file_that_cannot_be_written_is_an_os_error(tmp_path):
    with pytest.raises(OSError, match="absent"):
        write_tensors({"x": torch.zeros(8)}, tmp_path / "absent" / "x.safetensors")
