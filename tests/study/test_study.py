"""Loading studies: every shipped one is good, every mistake is told in one sentence."""

from __future__ import annotations

import math
from dataclasses import fields, is_dataclass

import pytest
import yaml
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from smelt.errors import SmeltError
from smelt.files import ROOT
from smelt.study import load_study, run_points
from tests.study.conftest import SMOKE, changed

SHIPPED = sorted(path.stem for path in (ROOT / "config/studies").glob("*.yaml"))

MISTAKES = [
    ("name", "other", ["name", "'other'", "smoke"]),
    ("scales.xs.hidden", 0, ["scales.xs.hidden", "0", "minimum of 1"]),
    ("scales.xs.hidden", 30, ["scales.xs.hidden", "30", "divisible by 4"]),
    ("scales.xs.expert_dim", 14, ["scales.xs.expert_dim", "14", "divisible by 4"]),
    ("scales.xs.head_dim", 15, ["scales.xs.head_dim", "15", "even"]),
    ("scales.xs.heads", 3, ["scales.xs.heads", "3", "kv_heads = 2"]),
    ("scales.xs.hidden", "wide", ["scales.xs.hidden", "'wide'", "integer"]),
    ("scales.x;rm -rf", SMOKE["scales"]["xs"], ["x;rm -rf", "does not match"]),
    ("sparsities.85", 7, ["sparsities.85", "7", "top_k", "8"]),
    ("sparsities.850", 64, ["850", "does not match"]),
    ("loop.visits", 1, ["loop.visits", "1", "minimum of 2"]),
    ("loop.span", 1.5, ["loop.span", "1.5", "maximum of 1"]),
    ("loop.span", 0.1, ["loop.span", "0.1", "scales.xs", "no layer"]),
    ("loop.narrow", "depth", ["loop.narrow", "'depth'", "hidden"]),
    ("loop.align", 6, ["loop.align", "6", "multiple of 4"]),
    ("loop.configs", {"xs-s90": dict.fromkeys(
        ("hidden", "heads", "kv_heads", "head_dim", "experts", "expert_dim"), 8)},
     ["loop.configs.xs-s90", "no cell", "xs-s85"]),
    ("loop.configs", {"xs-s85": {"hidden": 32, "heads": 4, "kv_heads": 2, "head_dim": 16, "experts": 4,
                                 "expert_dim": 16}}, ["loop.configs.xs-s85.experts", "4", "top_k"]),
    ("training.horizons", [60, 30], ["training.horizons", "[60, 30]", "increasing"]),
    ("training.horizons", [5, 30], ["training.horizons", "5", "warm-up", "10"]),
    ("training.horizons", [], ["training.horizons", "[]"]),
    ("training.lr", math.nan, ["training.lr", "nan", "finite"]),
    ("training.lr", math.inf, ["training.lr", "inf", "finite"]),
    ("training.lr", -1, ["training.lr", "-1"]),
    ("training.batch", 10**40, ["training.batch", "1" + 40 * "0", "maximum"]),
    ("training.bacth", 8, ["training", "bacth", "allowed", "batch"]),
    ("training.precision", "fp16", ["training.precision", "'fp16'", "bf16"]),
    ("corpus.attended_context", 129, ["corpus.attended_context", "129", "128"]),
    ("ablations.scale", "m", ["ablations.scale", "'m'", "xs"]),
    ("ablations.span.layers", [0, 7], ["ablations.span.layers", "7", "6 layers"]),
    ("ablations.loops.sparsity", 90, ["ablations.loops", "90", "85"]),
    ("ablations.depth.looped", [1], ["loop.span", "ablations.depth.looped = 1"]),
    ("model", None, ["model", "required"]),
]  # fmt: skip


@pytest.mark.parametrize("name", SHIPPED)
def test_shipped_study_loads(name):
    study = load_study(name)
    points = run_points(study)
    assert study.name == name
    grid = [point for point in points.values() if point.group == "grid"]
    assert len(grid) == 2 * len(study.scales) * len(study.sparsities) * study.seeds
    assert all(point.baseline is None or point.baseline in points for point in points.values())


@pytest.mark.parametrize(("path", "value", "words"), MISTAKES, ids=lambda item: str(item)[:30])
def test_mistake_is_one_sentence(write, path, value, words):
    file = write(changed(path, value))
    with pytest.raises(SmeltError) as caught:
        load_study(file)
    message = str(caught.value)
    assert message.startswith(str(file))
    assert "\n" not in message
    for word in words:
        assert word in message


def test_unknown_study_lists_the_shipped():
    with pytest.raises(SmeltError, match=f"no study 'nan0'; shipped studies: {', '.join(SHIPPED)}"):
        load_study("nan0")


@pytest.mark.parametrize(
    ("text", "word"),
    [
        ("name: [", "not valid YAML"),
        ("a: 1\na: 2\n", "'a' is set twice, line 2"),
        ("? [a, b]\n: 1\n", "not valid YAML"),
        ("d: 2001-99-99\n", "not valid YAML"),
        ("- 1\n", "is not of type 'object'"),
        ("", "the file is empty"),
        ("[" * 5000, "not valid YAML"),
        ("x: &x {y: *x}\n", "more than 100000 entries"),
        ("5: 1\n05: 2\n", "'05' is set twice, line 2"),
        ("!!python/object/apply:os.getpid []", "not valid YAML"),
    ],
)
def test_broken_yaml_is_refused(write, text, word):
    with pytest.raises(SmeltError, match="smoke.yaml") as caught:
        load_study(write(text))
    assert word in str(caught.value)
    assert "\n" not in str(caught.value)


def test_latin1_file_is_refused(tmp_path):
    path = tmp_path / "smoke.yaml"
    path.write_bytes("name: caf\xe9\n".encode("latin-1"))
    with pytest.raises(SmeltError, match="not valid YAML"):
        load_study(path)


def test_merge_keys_are_not_duplicates(write):
    sizes = "hidden: 32, heads: 2, kv_heads: 1, head_dim: 16, expert_dim: 16"
    scales = f"scales:\n  a: &a {{<<: {{layers: 4}}, {sizes}}}\n  b: {{<<: *a, hidden: 64}}\n"
    study = load_study(write(yaml.safe_dump(SMOKE).replace("scales:\n", scales)))
    assert (study.scales["b"].hidden, study.scales["b"].layers) == (64, 4)


def test_absurd_token_counts_are_refused(write):
    raw = changed("training.decay_steps", 10**12, changed("training.batch", 10**12))
    with pytest.raises(SmeltError, match=r"asks for 2\.6e\+26 tokens a run"):
        load_study(write(raw))


def test_bf16_needs_multiples_of_eight(write):
    raw = changed("training.precision", "bf16", changed("loop.align", 8))
    load_study(write(raw))
    with pytest.raises(SmeltError, match="scales.s.hidden is 52; it must be divisible by 8"):
        load_study(write(changed("scales.s.hidden", 52, raw)))
    with pytest.raises(SmeltError, match="loop.align is 4; .* multiple of 8"):
        load_study(write(changed("loop.align", 4, raw)))


def test_floats_are_floats_however_written(write):
    for name in SHIPPED:
        study = load_study(name)
        for section in (study.corpus, study.model, study.loop, study.training):
            assert is_dataclass(section)
            for item in fields(section):
                if item.type == "float":
                    assert isinstance(getattr(section, item.name), float), (name, item.name)


_JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=8),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=8), inner, max_size=3),
    max_leaves=6,
)
_FIELDS = sorted(
    f"{section}.{name}" for section, values in SMOKE.items() if isinstance(values, dict) for name in values
) + list(SMOKE)


@settings(max_examples=100, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(field=st.sampled_from(_FIELDS), value=_JSON)
def test_any_value_is_taken_or_refused(write, field, value):
    raw = changed(field, value) if value is not None else changed(field, {})
    try:
        study = load_study(write(raw))
    except SmeltError as error:
        assert "smoke.yaml" in str(error)
    else:
        assert run_points(study)
