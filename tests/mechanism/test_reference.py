"""Every table against a slow computation, token by token, of an ordinary model."""

import numpy as np
import pytest
import torch

from smelt.mechanism.attention import attention_rows, query_blocks
from smelt.mechanism.capture import Capture
from smelt.mechanism.walk import Pass
from tests.mechanism.conftest import make_batch, make_model


@pytest.fixture(scope="module", params=[{}, {"heads": 3, "kv_heads": 1}], ids=["even heads", "odd heads"])
def case(request):
    """Return the tables of a model and its steps by (layer, visit), with the attention rows of each."""
    model = make_model(seed=5, init_std=0.3, **request.param)
    batch = make_batch(rows=2, length=40, document=20, seed=9)
    capture = Capture(model, ["a", "b"], 0)
    capture.add(batch)
    with torch.inference_mode():
        steps = list(Pass(model, batch.inputs_bt, batch.segments_bt, batch.positions_bt).steps())
        (block,) = query_blocks(batch.segments_bt)
        rows = [attention_rows(step.q_bthd, step.k_btgd, block.mask_bts) for step in steps]
    keys = [(step.execution.layer, step.execution.visit) for step in steps]
    return capture.tables("run"), dict(zip(keys, steps, strict=True)), dict(zip(keys, rows, strict=True))


def queries(least):
    """Yield row, position and visible positions of every query that sees at least `least`."""
    for row in range(2):
        for position in range(40):
            visible = range(position // 20 * 20, position + 1)
            if len(visible) >= least:
                yield row, position, visible


def value(a, b, kind, visible):
    a, b = a[list(visible)].numpy(), b[list(visible)].numpy()
    if kind == "top1":
        return float(a.argmax() == b.argmax())
    if kind == "top8":
        return len(set(np.argsort(-a)[:8]) & set(np.argsort(-b)[:8])) / 8
    return np.minimum(a, b).sum()


@pytest.mark.parametrize(("kind", "least"), [("top1", 2), ("top8", 9), ("mass", 2)])
def test_token_overlap_and_its_control(case, kind, least):
    tables, _, rows = case
    found = [row for row in tables["token_overlap"] if row["kind"] == kind]
    heads = rows[1, 0].shape[1]
    assert len(found) == 2 * heads
    for row in found:
        layer, head, other = row["layer"], row["head"], (row["head"] + heads // 2) % heads
        first, later = rows[layer, 0], rows[layer, 1]
        across, control = [], []
        for r, t, visible in queries(least):
            across.append(value(first[r, head, t], later[r, head, t], kind, visible))
            control += [
                value(visit[r, head, t], visit[r, other, t], kind, visible) for visit in (first, later)
            ]
        assert row["value"] == pytest.approx(np.mean(across), abs=1e-5)
        assert row["control"] == pytest.approx(np.mean(control), abs=1e-5)
    (diagnostic,) = (row for row in tables["diagnostics"] if row["diagnostic"] == f"{kind}_overlap")
    assert diagnostic["value"] == pytest.approx(np.mean([row["value"] for row in found]))
    assert diagnostic["difference"] == pytest.approx(
        np.mean([row["value"] - row["control"] for row in found])
    )


def test_sink_mass(case):
    tables, _, rows = case
    for row in tables["sink"]:
        masses = rows[row["layer"], row["visit"]][:, row["head"]]
        expected = np.mean([masses[r, t, visible[0]].item() for r, t, visible in queries(2)])
        assert row["mass"] == pytest.approx(expected, abs=1e-6)


def test_sink_slope_is_the_least_squares_line(case):
    tables, _, _ = case
    layers = [[row["mass"] for row in tables["sink"] if row["layer"] == layer] for layer in range(4)]
    slope = np.polyfit(np.linspace(0, 1, 4), [np.mean(masses) for masses in layers], 1)[0]
    (row,) = (row for row in tables["diagnostics"] if row["diagnostic"] == "sink_depth")
    assert row["value"] == pytest.approx(slope, abs=1e-6)


def test_visit_cosines(case):
    tables, steps, _ = case
    stages = {
        "X": "normed_btd",
        "Q": "q_bthd",
        "K": "k_btgd",
        "V": "v_btgd",
        "PV": "pv_bthd",
        "O": "output_btd",
    }
    assert len(tables["visit_cosine"]) == 2 * len(stages)
    for row in tables["visit_cosine"]:
        a, b = (
            getattr(steps[row["layer"], visit], stages[row["stage"]]).reshape(80, -1).double()
            for visit in (0, 1)
        )
        cosines = [(x @ y / (x.norm() * y.norm())).item() for x, y in zip(a, b, strict=True)]
        assert row["cosine"] == pytest.approx(np.mean(cosines), abs=1e-5)


def test_update_cosines_and_their_summary(case):
    tables, steps, _ = case
    order = list(steps)
    updates = [(s.after_btd - s.stream_btd).reshape(80, -1).double() for s in steps.values()]
    cosines = {}
    for row in tables["update_cosine"]:
        a, b = updates[row["i"]], updates[row["j"]]
        expected = ((a * b).sum(1) / (a.norm(dim=1) * b.norm(dim=1))).mean().item()
        assert row["cosine"] == pytest.approx(expected, abs=1e-5)
        assert (row["layer_i"], row["visit_i"]) == order[row["i"]]
        cosines[order[row["i"]], order[row["j"]]] = row["cosine"]
    (summary,) = (row for row in tables["diagnostics"] if row["diagnostic"] == "update_cosine")
    same = [cosines[(layer, 0), (layer, 1)] for layer in (1, 2)]
    other = [cosines[(1, 0), (2, 1)], cosines[(2, 0), (1, 1)]]
    assert summary["value"] == pytest.approx(np.mean(same))
    assert summary["reference"] == pytest.approx(np.mean(other))


def test_residual_flow_and_ratios(case):
    tables, steps, _ = case
    flow = {(row["layer"], row["visit"], row["component"]): row for row in tables["residual_flow"]}
    for (layer, visit), step in steps.items():
        update = (step.after_btd - step.stream_btd).reshape(80, -1)
        expected = np.mean([np.sqrt((x**2).mean().item()) for x in update])
        row = flow[layer, visit, "update"]
        assert row["rms"] == pytest.approx(expected, rel=1e-4)
        stream = np.mean([np.sqrt((x**2).mean().item()) for x in step.stream_btd.reshape(80, -1)])
        assert row["relative"] == pytest.approx(expected / stream, rel=1e-4)
    for row in tables["norm_ratios"]:
        first, later = (flow[row["layer"], visit, row["component"]]["rms"] for visit in (0, 1))
        assert row["ratio"] == pytest.approx(later / first, rel=1e-6)


def test_routing_overlap(case):
    tables, steps, _ = case
    counts = {layer: np.zeros(5) for layer in (1, 2)}
    for layer in counts:
        pairs = zip(steps[layer, 0].experts_nk.tolist(), steps[layer, 1].experts_nk.tolist(), strict=True)
        for a, b in pairs:
            counts[layer][len(set(a) & set(b))] += 1 / 80
    for row in tables["routing_overlap"]:
        assert row["fraction"] == pytest.approx(counts[row["layer"]][row["shared"]])
    (summary,) = (row for row in tables["diagnostics"] if row["diagnostic"] == "expert_overlap")
    assert summary["value"] == pytest.approx(np.mean([c @ np.arange(5) / 4 for c in counts.values()]))
