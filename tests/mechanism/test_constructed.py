"""Models in which the answer is known beforehand."""

import itertools

import numpy as np
import pytest
import torch

from smelt.mechanism.capture import Capture
from smelt.mechanism.dyck import dyck_tables, head_deltas, target_rows
from smelt.mechanism.interventions import INTERVENTIONS, REUSE, Reuse
from smelt.mechanism.prompts import ROLES, TARGETS, build_prompts
from smelt.mechanism.statistics import hypergeometric
from smelt.mechanism.walk import Edit, Pass
from tests.mechanism.conftest import BOS, make_batch, make_model

CATEGORIES = ["code", "web"]


def capture(model, *batches, draws=20):
    result = Capture(model, CATEGORIES, draws)
    for batch in batches:
        result.add(batch)
    return result.tables("run")


def by(rows, *names):
    return {tuple(row[name] for name in names): row for row in rows}


def quiet(model, factor):
    """Scale all that the span writes."""
    with torch.no_grad():
        for layer in model.config.geometry.span:
            model.layers[layer].attention.o.weight.mul_(factor)
            model.layers[layer].moe.w2.mul_(factor)
    return model


@pytest.mark.parametrize("order", ["block", "layer"])
@pytest.mark.parametrize("visits", [2, 3])
def test_second_visit_that_repeats_the_first(order, visits):
    """A span that hardly writes sees the same stream at every visit, so every visit computes the same."""
    model = quiet(make_model(loop_order=order, loop_count=visits), 1e-6)
    tables = capture(model, make_batch())
    full = [row for row in tables["routing_overlap"] if row["shared"] == 4]
    assert len(full) == 2 * (visits - 1)
    assert all(row["fraction"] == 1 for row in full)
    assert all(row["cosine"] == pytest.approx(1, abs=1e-4) for row in tables["visit_cosine"])
    assert all(row["value"] == pytest.approx(1, abs=1e-4) for row in tables["token_overlap"])
    assert all(row["ratio"] == pytest.approx(1, abs=1e-3) for row in tables["norm_ratios"])
    assert all(abs(row["rise"]) < 1e-4 for row in tables["interventions"])
    diagnostics = by(tables["diagnostics"], "diagnostic")
    assert diagnostics["update_cosine",]["value"] == pytest.approx(1, abs=1e-4)
    assert diagnostics["sink",]["difference"] == pytest.approx(0, abs=1e-5)


def test_random_routers_give_the_chance_line(monkeypatch):
    model = make_model(experts=16)
    generator = torch.Generator().manual_seed(0)

    def route(x_nd):
        logits = torch.rand(x_nd.shape[0], 16, generator=generator)
        chosen, ids = logits.topk(4)
        return chosen.softmax(-1), ids, logits

    for layer in model.layers:
        monkeypatch.setattr(layer.moe, "route", route)
    tables = capture(model, *(make_batch(rows=16, length=96, seed=seed) for seed in range(3)))
    chance = hypergeometric(16, 4)
    assert len(tables["routing_overlap"]) == 2 * 5
    for row in tables["routing_overlap"]:
        assert row["chance"] == chance[row["shared"]]
        assert row["fraction"] == pytest.approx(row["chance"], abs=0.02)
        assert row["chance_mean"] == 1
    overlap = by(tables["diagnostics"], "diagnostic")["expert_overlap",]
    assert overlap["reference"] == 0.25
    assert overlap["value"] == pytest.approx(0.25, abs=0.01)


def test_all_experts_active_share_all():
    rows = capture(make_model(experts=4), make_batch())["routing_overlap"]
    assert {row["shared"]: row["fraction"] for row in rows} == {0: 0, 1: 0, 2: 0, 3: 0, 4: 1}
    assert {(row["chance_mean"], row["chance_low"], row["chance_high"]) for row in rows} == {(4, 4, 4)}


def sink_model():
    """Head 0 of layer 1 looks at BOS and nowhere else; the stream keeps the token throughout."""
    model = make_model(config={"qk_norm": False, "rope_base": 1e12}, kv_heads=4)
    with torch.no_grad():
        for layer in model.layers:
            layer.attention.o.weight.zero_()
            layer.moe.w2.zero_()
        model.embed.weight[:, :2] = torch.tensor([4.0, 0.0])
        model.embed.weight[BOS, :2] = torch.tensor([4.0, 4.0])
        attention = model.layers[1].attention
        # Pair 3 of the head's four turns slowest: by 1e-9 radians a token.
        attention.q.weight[:8] = 0
        attention.k.weight[:8] = 0
        attention.q.weight[3, 0] = 20
        attention.k.weight[3, 1] = 20
    return model


@pytest.mark.filterwarnings("ignore:invalid value encountered in divide")  # nothing is ever written
def test_head_with_a_forced_sink_has_mass_one():
    tables = capture(sink_model(), make_batch())
    sinks = by(tables["sink"], "layer", "visit", "head")
    for visit in (0, 1):
        assert sinks[1, visit, 0]["mass"] == pytest.approx(1, abs=1e-4)
    assert max(row["mass"] for key, row in sinks.items() if key[::2] != (1, 0)) < 0.6


def test_uniform_attention_has_the_sink_mass_of_chance():
    model = make_model()
    with torch.no_grad():
        for layer in model.layers:
            layer.attention.q_norm.weight.zero_()
    expected = sum(1 / n for n in range(2, 13)) / 11
    tables = capture(model, make_batch(document=12))
    assert all(row["mass"] == pytest.approx(expected, rel=1e-5) for row in tables["sink"])
    assert all(row["value"] == pytest.approx(1) for row in tables["token_overlap"] if row["kind"] == "mass")
    chance = by(tables["token_overlap"], "layer", "visit", "head", "kind")
    assert chance[1, 1, 0, "top1"]["chance"] == pytest.approx(expected, rel=1e-6)
    assert chance[1, 1, 0, "top8"]["chance"] == pytest.approx(sum(8 / n for n in range(9, 13)) / 4)


def test_update_ratios_are_the_planted_ones():
    """The embedding grows by a factor, so that the same write is half as large beside it."""
    small, large = make_model(), make_model()
    with torch.no_grad():
        large.embed.weight.mul_(2)
    flows = [
        by(capture(m, make_batch())["residual_flow"], "layer", "visit", "component") for m in (small, large)
    ]
    key = (0, 0, "attention")
    assert flows[0][key]["rms"] == pytest.approx(flows[1][key]["rms"], rel=1e-3)
    assert flows[0][key]["relative"] == pytest.approx(2 * flows[1][key]["relative"], rel=1e-3)
    assert flows[1][0, 0, "stream"]["relative"] == 1


def test_writes_carry_the_loops_factor():
    """In the first looped layer the write at scale 1/2 is half of what the same layer writes unlooped."""
    looped = make_model(loop_start=0)
    plain = make_model(loop_start=0, loop_length=0, loop_count=1)
    plain.load_state_dict(looped.state_dict())
    flows = [
        by(capture(m, make_batch())["residual_flow"], "layer", "visit", "component") for m in (looped, plain)
    ]
    key = (0, 0, "attention")
    assert flows[0][key]["rms"] == pytest.approx(flows[1][key]["rms"] / 2, rel=1e-5)


def test_update_cosine_is_symmetric_with_ones_on_the_diagonal():
    rows = by(capture(make_model(), make_batch())["update_cosine"], "i", "j")
    assert len(rows) == 36
    for (i, j), row in rows.items():
        assert row["cosine"] == pytest.approx(rows[j, i]["cosine"], abs=1e-6)
        if i == j:
            assert row["cosine"] == pytest.approx(1, abs=1e-5)
    assert [rows[i, 0]["visit_i"] for i in range(6)] == [0, 0, 0, 1, 1, 0]
    assert [rows[i, 0]["layer_i"] for i in range(6)] == [0, 1, 2, 1, 2, 3]


def copy_model(layer=2, head=3):
    """All that writes is one head: it spreads over all tokens alike and votes for those it has seen."""
    model = make_model(hidden=64, heads=4, kv_heads=4, head_dim=16)
    with torch.no_grad():
        for block in model.layers:
            block.attention.o.weight.zero_()
            block.moe.w2.zero_()
        attention, own = model.layers[layer].attention, slice(16 * head, 16 * head + 16)
        attention.q_norm.weight.zero_()
        features = torch.linalg.qr(torch.randn(64, 16, generator=torch.Generator().manual_seed(3))).Q
        attention.v.weight[own] = features.T
        attention.o.weight[:, own] = 4 * features
        model.head.weight.copy_(model.embed.weight @ (features @ features.T))
    return model


@pytest.mark.parametrize(("layer", "head"), [(2, 3), (1, 0)])
def test_planted_copy_head_is_found_by_the_ablation(tokenizer, layer, head):
    prompts = [build_prompts(tokenizer, BOS, 300, 6, seed) for seed in (1, 2)]
    tables = dyck_tables("run", copy_model(layer, head), *prompts, 50)
    heads = by(tables["dyck_heads"], "layer", "head")
    assert set(heads) == {(x, h) for x in (1, 2) for h in range(4)}
    assert [key for key, row in heads.items() if row["selected"]] == [(layer, head)]
    assert heads[layer, head]["low"] > 1
    assert all(abs(row["delta"]) < 1e-3 for key, row in heads.items() if key != (layer, head))
    for row in heads.values():
        assert row["delta_choice_low"] <= row["delta_choice"] <= row["delta_choice_high"]
        assert 1 < row["perplexity_low"] < row["perplexity"] < row["perplexity_high"]
    assert heads[layer, head]["delta_choice_low"] > 1


def test_uniform_dyck_head_spreads_its_mass_by_role(tokenizer):
    prompts = build_prompts(tokenizer, BOS, 300, 4, 2)
    tables = dyck_tables("run", copy_model(), build_prompts(tokenizer, BOS, 300, 4, 1), prompts, 20)
    masses = by(tables["dyck_mass"], "visit", "role")
    for role in ROLES:
        shares = [p.roles[:t].count(role) / t for p in prompts for t in p.targets]
        for visit in (0, 1):
            assert masses[visit, role]["mass"] == pytest.approx(sum(shares) / len(shares), rel=1e-4)
    rows = by(tables["dyck_map"], "visit", "target", "position")
    for target, end in enumerate(prompts[0].targets):
        assert sum(row["mass"] for key, row in rows.items() if key[:2] == (0, target)) == pytest.approx(1)
        unseen = [row["mass"] for key, row in rows.items() if key[1] == target and key[2] >= end]
        assert unseen == [0] * 2 * (prompts[0].targets[-1] - end)


def test_map_tells_the_mass_on_the_same_part_of_all_prompts(tokenizer):
    """A uniform head: a part's mass is its share of what the target sees, and no visit changes it."""
    prompts = build_prompts(tokenizer, BOS, 300, 4, 2)
    tables = dyck_tables("run", copy_model(), build_prompts(tokenizer, BOS, 300, 4, 1), prompts, 50)
    runs = [
        [(role, len(list(tokens))) for role, tokens in itertools.groupby(prompt.roles)] for prompt in prompts
    ]
    assert len({tuple(role for role, _ in run) for run in runs}) == 1
    found = {}
    for row in tables["dyck_map"]:
        assert row["role"] == runs[0][row["part"]][0]
        found[row["visit"], row["target"], row["part"]] = row
    assert len(found) == 2 * TARGETS * len(runs[0])
    for (visit, target, part), row in found.items():
        shares = []
        for run, prompt in zip(runs, prompts, strict=True):
            start, end = sum(length for _, length in run[:part]), prompt.targets[target]
            shares.append(max(0, min(start + run[part][1], end) - start) / end)
        assert row["part_mass"] == pytest.approx(sum(shares) / len(shares), rel=1e-4)
        assert min(shares) - 1e-6 <= row["part_low"] <= row["part_high"] <= max(shares) + 1e-6
        if visit:
            changes = [row["change"], row["change_low"], row["change_high"]]
            assert changes == pytest.approx([0, 0, 0], abs=1e-6)
        else:
            assert row["change"] is None


def test_dyck_head_is_chosen_on_other_prompts_than_those_shown(tokenizer):
    """The best head differs between the two sets here, so a choice on the wrong one would be seen."""
    model = make_model(init_std=0.5)
    choice, shown = (build_prompts(tokenizer, BOS, 300, 2, seed) for seed in (1, 3))
    (_, on_choice), (perplexity, on_shown) = (head_deltas(model, prompts, 0) for prompts in (choice, shown))
    assert on_choice[0].argmax() != on_shown[0].argmax()
    rows = by(dyck_tables("run", model, choice, shown, 0)["dyck_heads"], "layer", "head")
    for (layer, head), row in rows.items():
        assert row["delta_choice"] == pytest.approx(on_choice[0, layer - 1, head])
        assert row["delta"] == pytest.approx(on_shown[0, layer - 1, head])
        assert row["perplexity"] == pytest.approx(perplexity[0])
        assert row["selected"] == (on_choice[0, layer - 1, head] == on_choice.max())


@torch.inference_mode()
def test_target_rows_are_the_whole_rows_of_the_head(tokenizer):
    """With grouped heads: head 3 reads key head 1."""
    model, (prompt,) = make_model(), build_prompts(tokenizer, BOS, 300, 1, 2)
    rows = target_rows(model, [prompt], 2, 3)[:, 0]
    steps = [step for step in Pass(model, torch.tensor([prompt.ids])).steps() if step.execution.layer == 2]
    for visit, step in enumerate(steps):
        for target, end in enumerate(prompt.targets):
            scores = step.k_btgd[0, :end, 1] @ step.q_bthd[0, end - 1, 3] / 8**0.5
            assert torch.allclose(rows[visit, target, :end], scores.softmax(-1), atol=1e-6)
            assert rows[visit, target, end:].abs().max() == 0


def test_ablation_without_any_draw_equals_zeroed_columns(tokenizer):
    """Removing a head's rows of the output matrix is the same as the edit."""
    model, prompts = make_model(), build_prompts(tokenizer, BOS, 300, 3, 1)
    perplexity, deltas = head_deltas(model, prompts, 0)
    with torch.no_grad():
        model.layers[2].attention.o.weight[:, 8:16] = 0
    changed, _ = head_deltas(model, prompts, 0)
    assert deltas[0, 1, 1] == pytest.approx(changed[0] - perplexity[0], rel=1e-4)


def test_single_visit_is_the_unlooped_model():
    looped = make_model()
    plain = make_model(loop_start=0, loop_length=0, loop_count=1)
    plain.load_state_dict(looped.state_dict())
    batch = make_batch()
    rows = by(capture(looped, batch)["interventions"], "intervention", "category")
    loss = plain.loss(batch.inputs_bt, batch.targets_bt, batch.segments_bt, batch.positions_bt).ce.item()
    assert rows["single_visit", "all"]["loss"] == pytest.approx(loss, rel=1e-5)
    whole = looped.loss(batch.inputs_bt, batch.targets_bt, batch.segments_bt, batch.positions_bt).ce.item()
    assert rows["none", "all"]["loss"] == pytest.approx(whole, rel=1e-5)
    assert rows["none", "all"]["rise"] == 0
    assert rows["skip", "all"]["rise"] == pytest.approx(rows["skip", "all"]["loss"] - whole, abs=1e-5)


def test_loss_and_rise_have_intervals_over_documents():
    """Against draws made by hand: each document counts a Poisson number of times."""
    model, batch = make_model(), make_batch()
    rows = by(capture(model, batch, draws=200)["interventions"], "intervention", "category")
    with torch.inference_mode():
        walk = Pass(model, batch.inputs_bt, batch.segments_bt, batch.positions_bt)
        losses = [
            walk.losses(walk.final(edit), batch.targets_bt) for edit in (Edit(), Reuse(REUSE["values"]))
        ]
    documents, predicted = batch.documents_bt.flatten(), (batch.targets_bt >= 0).flatten()
    intact, changed = (
        np.array([loss_n[predicted & (documents == g)].double().sum() for g in documents.unique()])
        for loss_n in losses
    )
    tokens = np.array([int((predicted & (documents == g)).sum()) for g in documents.unique()])
    counts = [np.random.default_rng([0, int(g)]).poisson(1.0, 200) for g in documents.unique()]
    weights = np.stack(counts, axis=1)
    for name, sums, value in (
        ("none", intact, "loss"),
        ("values", changed, "loss"),
        ("values", changed - intact, "rise"),
    ):
        low, high = np.percentile(weights @ sums / (weights @ tokens), [2.5, 97.5])
        row, prefix = rows[name, "all"], "loss_" if value == "loss" else ""
        assert row[value] == pytest.approx(sums.sum() / tokens.sum(), abs=1e-5)
        assert (row[prefix + "low"], row[prefix + "high"]) == pytest.approx((low, high), abs=1e-5)
        assert low < high


def test_categories_split_the_rise():
    rows = by(capture(make_model(), make_batch())["interventions"], "intervention", "category")
    assert set(rows) == {(i, c) for i in ("none", *INTERVENTIONS) for c in ("all", *CATEGORIES)}
    for name in INTERVENTIONS:
        parts = [rows[name, category] for category in CATEGORIES]
        total = sum(row["rise"] * row["tokens"] for row in parts)
        assert total / rows[name, "all"]["tokens"] == pytest.approx(rows[name, "all"]["rise"], abs=1e-6)


@pytest.mark.parametrize("changes", [{}, {"loop_order": "layer"}, {"loop_count": 3}])
def test_shared_prefix_of_the_interventions_changes_nothing(changes):
    model, batch = make_model(**changes), make_batch()
    rows = by(capture(model, batch)["interventions"], "intervention", "category")
    with torch.inference_mode():
        walk = Pass(model, batch.inputs_bt, batch.segments_bt, batch.positions_bt)
        for name, parts in REUSE.items():
            losses = walk.losses(walk.final(Reuse(parts)), batch.targets_bt)
            mean = losses.sum() / (batch.targets_bt >= 0).sum()
            assert rows[name, "all"]["loss"] == pytest.approx(mean.item(), rel=1e-5)


def test_reusing_queries_and_keys_repeats_the_pattern():
    model, batch = make_model(), make_batch()
    with torch.inference_mode():
        walk = Pass(model, batch.inputs_bt, batch.segments_bt, batch.positions_bt)
        steps = {(s.execution.layer, s.execution.visit): s for s in walk.steps(Reuse(REUSE["pattern"]))}
        assert torch.equal(steps[2, 0].q_bthd, steps[2, 1].q_bthd)
        assert torch.equal(steps[2, 0].k_btgd, steps[2, 1].k_btgd)
        assert not torch.equal(steps[2, 0].v_btgd, steps[2, 1].v_btgd)
        steps = {(s.execution.layer, s.execution.visit): s for s in walk.steps(Reuse(REUSE["attention"]))}
        assert torch.equal(steps[2, 0].output_btd, steps[2, 1].output_btd)
        steps = {(s.execution.layer, s.execution.visit): s for s in walk.steps(Reuse(REUSE["routing"]))}
        assert torch.equal(steps[2, 0].experts_nk, steps[2, 1].experts_nk)


def test_batches_may_be_cut_anywhere():
    batch = make_batch(rows=6)
    parts = [
        type(batch)(*(getattr(batch, f)[i : i + 2] for f in batch.__dataclass_fields__)) for i in (0, 2, 4)
    ]
    whole, cut = capture(make_model(), batch), capture(make_model(), *parts)
    for name, rows in whole.items():
        for one, other in zip(rows, cut[name], strict=True):
            for column, value in one.items():
                if isinstance(value, float):
                    value = pytest.approx(value, rel=1e-3, abs=1e-5)
                assert other[column] == value, (name, column)
