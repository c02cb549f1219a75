"""Exported models: a Baseline in HF transformers, a looped model by its own layout; generation."""

from __future__ import annotations

import json

import pytest
import torch
from safetensors.torch import load_file

from smelt.errors import SmeltError
from smelt.model import LoopedLM, ModelConfig
from smelt.model.export import LOOPED_FORMAT, export_model
from smelt.model.generate import generate
from tests.model.conftest import LOOP, build


@pytest.fixture(scope="module")
def hf(tmp_path_factory):
    """Return a Baseline and what HF transformers makes of its export."""
    transformers = pytest.importorskip("transformers")
    model, folder = build(), tmp_path_factory.mktemp("baseline")
    export_model(folder, model.config, model.state_dict(), 64, None)
    other, report = transformers.AutoModelForCausalLM.from_pretrained(folder, output_loading_info=True)
    assert not report["missing_keys"] and not report["unexpected_keys"] and not report["mismatched_keys"]
    return model, other.eval()


def test_logits_equal_those_of_hf(hf, tokens_bt):
    model, other = hf
    with torch.no_grad():
        torch.testing.assert_close(model(tokens_bt), other(tokens_bt).logits, rtol=1e-4, atol=1e-4)


def test_gradients_equal_those_of_hf(hf, tokens_bt):
    model, other = hf
    model.loss(tokens_bt[:, :-1], tokens_bt[:, 1:]).ce.backward()
    other(tokens_bt, labels=tokens_bt).loss.backward()
    pairs = {
        "embed.weight": "model.embed_tokens.weight",
        "layers.1.attention.k.weight": "model.layers.1.self_attn.k_proj.weight",
        "layers.2.attention.q_norm.weight": "model.layers.2.self_attn.q_norm.weight",
        "layers.0.moe.router.weight": "model.layers.0.mlp.gate.weight",
        "layers.3.moe.w13": "model.layers.3.mlp.experts.gate_up_proj",
        "layers.3.moe.w2": "model.layers.3.mlp.experts.down_proj",
    }
    for ours, theirs in pairs.items():
        found, wanted = model.get_parameter(ours).grad, other.get_parameter(theirs).grad
        torch.testing.assert_close(found, wanted, rtol=1e-3, atol=1e-5)


def test_generation_equals_that_of_hf(hf, tokens_bt):
    model, other = hf
    wanted = other.generate(
        tokens_bt[:, :9], max_new_tokens=12, do_sample=False, attention_mask=torch.ones(3, 9), pad_token_id=0
    )
    assert generate(model, tokens_bt[:, :9].tolist(), 12) == wanted[:, 9:].tolist()


@pytest.mark.parametrize("loop", [{}, LOOP], ids=["baseline", "looped"])
def test_generation_takes_the_most_probable_token(tokens_bt, loop):
    model = build(**loop)
    prompts = [tokens_bt[0, :9].tolist(), tokens_bt[1, :3].tolist()]
    together = generate(model, prompts, 6)
    for prompt, added in zip(prompts, together, strict=True):
        ids = torch.tensor([prompt + added])
        assert model(ids)[0, len(prompt) - 1 : -1].argmax(-1).tolist() == added
        stop = added[3]
        assert generate(model, [prompt], 6, stop=stop) == [added[: added.index(stop)]]


def test_generation_refuses_nothing_to_continue(looped):
    with pytest.raises(SmeltError, match="at least one token"):
        generate(looped, [[]], 3)
    with pytest.raises(SmeltError, match="tokens is 0"):
        generate(looped, [[1]], 0)


def test_looped_export_is_complete(looped, tokens_bt, tmp_path):
    tokenizer = tmp_path / "tokenizer.json"
    tokenizer.write_text("{}")
    export_model(tmp_path / "out", looped.config, looped.state_dict(), 64, tokenizer)
    settings = json.loads((tmp_path / "out/config.json").read_text())
    assert settings["format"] == LOOPED_FORMAT
    assert (tmp_path / "out/tokenizer.json").read_text() == "{}"
    assert [step["layer"] for step in settings["schedule"]] == [0, 1, 2, 1, 2, 3]
    names = ("geometry", "vocab", "qk_norm", "rope_base", "init_std")
    model = LoopedLM(ModelConfig.from_dict({name: settings[name] for name in names}), seed=9)
    model.load_state_dict(load_file(tmp_path / "out/model.safetensors"))
    assert torch.equal(model(tokens_bt), looped(tokens_bt))


def test_unnormalised_baseline_is_refused(tmp_path):
    model = build(qk_norm=False)
    with pytest.raises(SmeltError, match="qk_norm is false"):
        export_model(tmp_path, model.config, model.state_dict(), 64, None)
