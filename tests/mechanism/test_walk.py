"""The walk is the model's own forward pass, bit for bit."""

import gc

import pytest
import torch

from smelt.errors import SmeltError
from smelt.mechanism.attention import attention_rows, query_blocks, segment_starts
from smelt.mechanism.capture import Capture
from smelt.mechanism.dyck import head_deltas
from smelt.mechanism.interventions import Interventions
from smelt.mechanism.likeness import Likeness
from smelt.mechanism.routing import Routing
from smelt.mechanism.walk import Pass
from tests.mechanism.conftest import make_batch, make_geometry, make_model

SHAPES = {
    "paper": {},
    "unlooped": {"loop_start": 0, "loop_length": 0, "loop_count": 1},
    "three visits": {"loop_count": 3},
    "layer-wise": {"loop_order": "layer"},
    "whole stack": {"loop_start": 0, "loop_length": 4},
    "one layer": {"loop_length": 1},
}


@pytest.mark.parametrize("shape", SHAPES)
@torch.inference_mode()
def test_logits_and_losses_equal_the_models(shape):
    model, batch = make_model(**SHAPES[shape]), make_batch()
    inputs = batch.inputs_bt, batch.segments_bt, batch.positions_bt
    walk = Pass(model, *inputs)
    final = walk.final()
    assert torch.equal(walk.logits(final), model(*inputs))
    losses = model.token_losses(batch.inputs_bt, batch.targets_bt, batch.segments_bt, batch.positions_bt)
    assert torch.equal(walk.losses(final, batch.targets_bt), losses.flatten())


@torch.inference_mode()
def test_bfloat16_walk_equals_the_model():
    model, batch = make_model().bfloat16(), make_batch()
    inputs = batch.inputs_bt, batch.segments_bt, batch.positions_bt
    walk = Pass(model, *inputs)
    assert torch.equal(walk.logits(walk.final()), model(*inputs))


@pytest.mark.filterwarnings("ignore:Mismatch dtype")  # the norm's weights stay float32 under autocast
@torch.inference_mode()
def test_mixed_precision_walk_equals_the_model_under_autocast():
    model, batch = make_model(), make_batch()
    inputs = batch.inputs_bt, batch.segments_bt, batch.positions_bt
    walk = Pass(model, *inputs, mixed=True)
    logits = walk.logits(walk.final())
    with torch.autocast("cpu", torch.bfloat16):
        assert torch.equal(logits, model(*inputs))
    assert not torch.equal(logits.float(), model(*inputs))


@pytest.mark.filterwarnings("ignore:Mismatch dtype")
@pytest.mark.parametrize("weights", [torch.float32, torch.bfloat16])
def test_bfloat16_changes_the_statistics_little(weights):
    """Both kinds: mixed precision on float32 weights, and bfloat16 weights."""
    batch, tables = make_batch(), []
    for dtype, mixed in ((torch.float32, False), (weights, weights == torch.float32)):
        capture = Capture(make_model(init_std=0.05).to(dtype), ["a", "b"], 0, mixed)
        capture.add(batch)
        tables.append(capture.tables("run"))
    for name in ("sink", "visit_cosine", "residual_flow"):
        for one, other in zip(tables[0][name], tables[1][name], strict=True):
            value = next(column for column in ("mass", "cosine", "rms") if column in one)
            assert one[value] == pytest.approx(other[value], rel=0.02, abs=2e-3)


def test_memory_does_not_grow_with_the_sample():
    def tensors():
        gc.collect()
        return {id(x): x for x in gc.get_objects() if issubclass(type(x), torch.Tensor)}

    def held():
        found = [x for number, x in tensors().items() if number not in others]
        return len(found), sum(x.numel() for x in found)

    others = tensors()  # kept alive by this name: what other tests left cannot vanish between two counts
    capture, batch, after = Capture(make_model(), ["a", "b"], 10), make_batch(), []
    for _ in range(3):
        capture.add(batch)
        after.append(held())
    assert after[0] == after[1] == after[2]
    arrays = capture.sums._sums.values()
    assert sum(array.nbytes for array in arrays) < 11 * 8 * 500


def test_capture_changes_no_logits_and_no_weights():
    model, batch = make_model(), make_batch()
    inputs = batch.inputs_bt, batch.segments_bt, batch.positions_bt
    with torch.no_grad():
        before = model(*inputs)
        weights = {name: value.clone() for name, value in model.state_dict().items()}
        Capture(model, ["a", "b"], 10).add(batch)
        assert torch.equal(model(*inputs), before)
    assert all(torch.equal(value, weights[name]) for name, value in model.state_dict().items())


@torch.inference_mode()
def test_resumed_walk_equals_the_whole():
    model, batch = make_model(loop_count=3), make_batch()
    walk = Pass(model, batch.inputs_bt, batch.segments_bt, batch.positions_bt)
    steps = list(walk.steps())
    for step in steps:
        assert torch.equal(walk.final(start=step.index, stream_btd=step.stream_btd), steps[-1].after_btd)


@torch.inference_mode()
def test_writes_add_up_to_the_stream():
    model, batch = make_model(), make_batch()
    for step in Pass(model, batch.inputs_bt, batch.segments_bt, batch.positions_bt).steps():
        assert torch.allclose(step.stream_btd + step.update_btd, step.after_btd, atol=1e-5)


@torch.inference_mode()
def test_attention_rows_reproduce_the_models_weighted_values():
    model, batch = make_model(), make_batch()
    for step in Pass(model, batch.inputs_bt, batch.segments_bt, batch.positions_bt).steps():
        v_bshd = step.v_btgd.repeat_interleave(2, dim=2)
        for block in query_blocks(batch.segments_bt, block=10):
            rows = block.rows(step.q_bthd, step.k_btgd)
            assert torch.allclose(rows.sum(-1), torch.ones(()), atol=1e-5)
            pv = torch.einsum("bhts,bshd->bthd", rows, v_bshd[:, block.keys])
            assert torch.allclose(pv, step.pv_bthd[:, block.queries], atol=1e-5)


def test_attention_rows_have_no_mass_in_other_documents_or_the_future():
    batch = make_batch()
    q, k = torch.randn(4, 48, 4, 8), torch.randn(4, 48, 2, 8)
    (block,) = query_blocks(batch.segments_bt)
    rows = attention_rows(q, k, block.mask_bts)
    seen = batch.segments_bt[:, :, None] == batch.segments_bt[:, None, :]
    seen &= torch.ones(48, 48).tril().bool()
    assert rows.masked_select(~seen[:, None].expand_as(rows)).abs().max() == 0


def test_blocks_leave_out_what_no_query_sees_but_keep_eight_keys():
    segments = torch.tensor([[0] * 3 + [1] * 20, [0] * 14 + [1] * 9])
    keys = [(block.keys.start, block.keys.stop) for block in query_blocks(segments, block=5)]
    assert keys == [(0, 5), (0, 10), (0, 15), (3, 20), (3, 23)]
    keys = [(block.keys.start, block.keys.stop) for block in query_blocks(segments[1:], block=5)]
    assert keys == [(0, 5), (0, 10), (0, 15), (12, 20), (14, 23)]


def test_segment_starts_of_uneven_segments():
    segments = torch.tensor([[0, 0, 1, 1, 1, 2], [0, 1, 2, 3, 3, 3]])
    assert segment_starts(segments).tolist() == [[0, 0, 2, 2, 2, 5], [0, 1, 2, 3, 3, 3]]


def test_unlooped_model_is_refused_where_visits_are_compared():
    unlooped = {"loop_start": 0, "loop_length": 0, "loop_count": 1}
    geometry = make_geometry(**unlooped)
    for build in (
        lambda: Routing(geometry, None),
        lambda: Likeness(geometry, None),
        lambda: Interventions(geometry, None, []),
        lambda: head_deltas(make_model(**unlooped), [], 0),
    ):
        with pytest.raises(SmeltError, match="loop_count is 1; comparing visits needs a looped model"):
            build()
