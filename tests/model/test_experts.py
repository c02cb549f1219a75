"""Every backend of the experts against a loop in float64, gradients included."""

from __future__ import annotations

import pytest
import torch
from torch._dynamo.testing import CompileCounterWithBackend

from smelt.errors import SmeltError
from smelt.model import experts, products
from smelt.model.experts import moe_experts, reference

CASES = {
    "plain": (40, 16, 8, 6, 2),
    "one token": (1, 16, 8, 6, 2),
    "tiny": (3, 3, 2, 3, 2),
    "odd": (37, 20, 12, 7, 3),
    "every expert": (11, 8, 8, 4, 4),
    "one of one": (9, 8, 4, 1, 1),
    "many experts": (50, 16, 8, 504, 8),
    "several chunks": (700, 8, 4, 5, 3),
}


@pytest.fixture(autouse=True)
def filled_memory():
    """Fill what PyTorch would leave uninitialised with NaN."""
    torch.use_deterministic_algorithms(True)
    yield
    torch.use_deterministic_algorithms(False)


def operands(case: str, dtype=torch.float64):
    n, hidden, inner, count, k = CASES[case]
    generator = torch.Generator().manual_seed(3)

    def normal(*shape):
        return torch.randn(*shape, generator=generator, dtype=torch.float64).to(dtype)

    _, ids_nk = normal(n, count).topk(k, dim=-1)
    weights_nk = normal(n, k).double().softmax(-1).to(dtype)
    return (
        normal(n, hidden),
        normal(count, 2 * inner, hidden),
        normal(count, hidden, inner),
        weights_nk,
        ids_nk,
    )


def run(function, tensors, ids_nk, grad):
    leaves = [tensor.detach().clone().requires_grad_() for tensor in tensors]
    out = function(*leaves, ids_nk)
    return [out.detach(), *torch.autograd.grad(out, leaves, grad)]


@pytest.fixture(params=[1, 1 << 13, 1 << 20], ids=lambda size: f"chunks of {size} bytes")
def chunks(request, monkeypatch):
    monkeypatch.setattr(products, "CHUNK_BYTES", request.param)


def check(backend, tensors, ids_nk, tolerance=1e-5):
    grad = torch.randn(tensors[0].shape, generator=torch.Generator().manual_seed(5), dtype=tensors[0].dtype)
    wanted = run(reference, [tensor.double() for tensor in tensors], ids_nk, grad.double())
    found = run(lambda *args: moe_experts(*args, backend=backend), tensors, ids_nk, grad)
    for ours, exact in zip(found, wanted, strict=True):
        assert ours.dtype == tensors[0].dtype
        error = (ours.double() - exact).abs().max() / exact.abs().max().clamp(min=1e-12)
        assert error < tolerance


@pytest.mark.parametrize("case", [case for case in CASES if case != "tiny"])
@pytest.mark.parametrize("backend", ["grouped", "cpu"])
def test_backends_agree_with_float64(case, backend):
    *tensors, ids_nk = operands(case, torch.float32)
    check(backend, tensors, ids_nk)


@pytest.mark.parametrize("case", ["odd", "several chunks"])
def test_chunking_changes_nothing(case, chunks):
    *tensors, ids_nk = operands(case, torch.float32)
    check("cpu", tensors, ids_nk)


@pytest.mark.parametrize("used", [[0, 1], [5, 4], [2, 3]], ids=["first", "last", "middle"])
def test_experts_without_tokens(used, chunks):
    x_nd, w13, w2, weights_nk, ids_nk = operands("plain", torch.float32)
    ids_nk = torch.tensor(used).expand_as(ids_nk)
    for backend in ("grouped", "cpu"):
        check(backend, [x_nd, w13, w2, weights_nk], ids_nk)


@pytest.mark.parametrize("backend", ["grouped", "cpu"])
def test_skewed_load(backend, chunks):
    x_nd, w13, w2, weights_nk, ids_nk = operands("several chunks", torch.float32)
    ids_nk = torch.where(torch.arange(700)[:, None] < 690, torch.tensor([0, 1, 2]), ids_nk)
    check(backend, [x_nd, w13, w2, weights_nk], ids_nk)


@pytest.mark.parametrize("backend", ["grouped", "cpu"])
def test_bfloat16(backend):
    *tensors, ids_nk = operands("plain", torch.bfloat16)
    check(backend, tensors, ids_nk, tolerance=0.03)


def test_gradient_of_the_fused_operation():
    *tensors, ids_nk = operands("tiny")
    leaves = [tensor.requires_grad_() for tensor in tensors]
    torch.autograd.gradcheck(lambda *args: moe_experts(*args, ids_nk, backend="cpu"), leaves)
    torch.autograd.gradcheck(lambda *args: reference(*args, ids_nk), leaves)


def test_gradient_without_own_storage():
    *tensors, ids_nk = operands("plain", torch.float32)
    leaves = [tensor.requires_grad_() for tensor in tensors]
    moe_experts(*leaves, ids_nk, backend="grouped").sum().backward()
    expected = run(reference, [t.double() for t in tensors], ids_nk, torch.ones_like(tensors[0]).double())
    for leaf, exact in zip(leaves, expected[1:], strict=True):
        torch.testing.assert_close(leaf.grad.double(), exact, rtol=1e-4, atol=1e-4)


def test_operation_is_registered_completely():
    *tensors, ids_nk = operands("odd", torch.float32)
    leaves = [tensor.requires_grad_() for tensor in tensors]
    for chunked in (False, True):
        torch.library.opcheck(experts._experts, (*leaves, ids_nk, chunked))


def test_order_of_the_experts_changes_nothing():
    x_nd, w13, w2, weights_nk, ids_nk = operands("plain", torch.float32)
    order = torch.randperm(6, generator=torch.Generator().manual_seed(1))
    wanted = moe_experts(x_nd, w13, w2, weights_nk, ids_nk)
    found = moe_experts(x_nd, w13[order], w2[order], weights_nk, order.argsort()[ids_nk])
    torch.testing.assert_close(found, wanted)


def test_all_experts_is_the_dense_sum():
    x_nd, w13, w2, weights_nk, ids_nk = operands("every expert", torch.float32)
    gate, up = torch.einsum("nd,efd->enf", x_nd, w13).chunk(2, dim=-1)
    dense_end = torch.einsum("eni,edi->end", torch.nn.functional.silu(gate) * up, w2)
    by_expert_ne = torch.zeros(11, 4).scatter(1, ids_nk, weights_nk)
    wanted = torch.einsum("ne,end->nd", by_expert_ne, dense_end)
    torch.testing.assert_close(moe_experts(x_nd, w13, w2, weights_nk, ids_nk), wanted, rtol=1e-4, atol=1e-4)


def test_compiles_to_one_graph_without_recompiling():
    torch._dynamo.reset()
    counter = CompileCounterWithBackend("aot_eager")
    compiled = torch.compile(lambda *args: moe_experts(*args), backend=counter, fullgraph=True)
    *tensors, ids_nk = operands("plain", torch.float32)
    wanted = moe_experts(*tensors, ids_nk)
    for shift in range(3):  # other loads, same shapes
        found = compiled(*tensors, (ids_nk + shift) % 6)
        if shift == 0:
            torch.testing.assert_close(found, wanted)
    assert counter.frame_count == 1


def test_saved_bytes_stay_in_the_budget():
    """What is kept for the backward pass, a token and layer, beside the parameters and the input itself."""
    n, hidden, inner, count, k = 256, 64, 24, 64, 8
    x_nd = torch.randn(n, hidden, requires_grad=True)
    w13 = torch.randn(count, 2 * inner, hidden, requires_grad=True)
    w2 = torch.randn(count, hidden, inner, requires_grad=True)
    weights_nk, ids_nk = torch.randn(n, count).softmax(-1).topk(k)
    known = {tensor.untyped_storage().data_ptr() for tensor in (x_nd, w13, w2)}
    kept = {}

    def pack(tensor):
        kept[tensor.untyped_storage().data_ptr()] = tensor.untyped_storage().nbytes()
        return tensor

    with torch.autograd.graph.saved_tensors_hooks(pack, lambda tensor: tensor):
        moe_experts(x_nd, w13, w2, weights_nk.requires_grad_(), ids_nk)
    saved = sum(size for pointer, size in kept.items() if pointer not in known)
    ends = 4 * count
    assert (saved - ends) / n == 4 * k * 2 * inner + 8 * k  # pre-activation; order and weight of each slot
    assert saved / n <= 1760


def test_misaligned_sizes_are_refused():
    w13, w2 = torch.randn(4, 12, 10), torch.randn(4, 10, 6)
    ids_nk, weights_nk = torch.zeros(3, 1, dtype=torch.int64), torch.ones(3, 1)
    with pytest.raises(
        SmeltError, match="hidden is 10; grouped products in torch.float32 need a multiple of 4"
    ):
        moe_experts(torch.randn(3, 10), w13, w2, weights_nk, ids_nk)
    with pytest.raises(SmeltError, match="backend is 'fast'; it must be one of"):
        moe_experts(torch.randn(3, 10), w13, w2, weights_nk, ids_nk, backend="fast")
