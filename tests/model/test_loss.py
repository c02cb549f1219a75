"""Cross entropy in chunks and the router's losses, in one process and in two."""

from __future__ import annotations

import pytest
import torch
from torch import distributed, multiprocessing
from torch.nn import functional as F

from smelt.model import loss
from smelt.model.context import RouterRecord
from smelt.model.loss import auxiliary_losses, cross_entropy, token_losses
from smelt.model.moe import record
from tests.model.conftest import LOOP, build


@pytest.fixture(params=[1, 200, 1 << 20], ids=["rows of 64", "some rows", "one chunk"])
def chunk(request, monkeypatch):
    monkeypatch.setitem(loss.CHUNK_ELEMENTS, "cpu", request.param * 60)


@pytest.fixture
def operands():
    generator = torch.Generator().manual_seed(2)
    x_nd = torch.randn(500, 16, generator=generator)
    weight_vd = torch.randn(60, 16, generator=generator)
    targets_n = torch.randint(0, 60, (500,), generator=generator)
    targets_n[::7] = -100
    return x_nd, weight_vd, targets_n


def test_cross_entropy_and_its_gradient(operands, chunk):
    x_nd, weight_vd, targets_n = operands
    leaves = [tensor.clone().requires_grad_() for tensor in (x_nd, weight_vd)]
    exact = [tensor.double().requires_grad_() for tensor in (x_nd, weight_vd)]
    found = cross_entropy(*leaves, targets_n)
    wanted = F.cross_entropy(exact[0] @ exact[1].T, targets_n)
    torch.testing.assert_close(found.double(), wanted, rtol=1e-5, atol=1e-5)
    (3 * found).backward()
    (3 * wanted).backward()
    for ours, theirs in zip(leaves, exact, strict=True):
        torch.testing.assert_close(ours.grad.double(), theirs.grad, rtol=1e-4, atol=1e-6)


def test_token_losses(operands, chunk):
    x_nd, weight_vd, targets_n = operands
    wanted = F.cross_entropy(x_nd @ weight_vd.T, targets_n, reduction="none")
    torch.testing.assert_close(token_losses(x_nd, weight_vd, targets_n), wanted)


def test_operation_is_registered_completely(operands):
    x_nd, weight_vd, targets_n = operands
    leaves = x_nd.requires_grad_(), weight_vd.requires_grad_()
    torch.library.opcheck(loss._cross_entropy, (*leaves, targets_n))


def test_no_target_at_all(operands):
    x_nd, weight_vd, _ = operands
    x_nd.requires_grad_()
    found = cross_entropy(x_nd, weight_vd, torch.full((500,), -100))
    found.backward()
    assert found == 0
    assert not x_nd.grad.any()


def test_logits_are_never_whole(operands, monkeypatch):
    x_nd, weight_vd, targets_n = operands
    monkeypatch.setitem(loss.CHUNK_ELEMENTS, "cpu", 64 * 60)
    sizes = []

    def pack(tensor):
        sizes.append(tensor.numel())
        return tensor

    with torch.autograd.graph.saved_tensors_hooks(pack, lambda tensor: tensor):
        cross_entropy(x_nd.requires_grad_(), weight_vd.requires_grad_(), targets_n)
    assert sum(sizes) < 2 * (x_nd.numel() + weight_vd.numel())


def test_balance_loss_by_hand():
    geometry = build().config.geometry
    mean_e, count_e = torch.full((12,), 1 / 12), torch.full((12,), 5)
    even = RouterRecord(mean_e, count_e, torch.tensor(2.0))
    skewed_mean, skewed_count = torch.zeros(12), torch.zeros(12, dtype=torch.int64)
    skewed_mean[0], skewed_count[0] = 1.0, 60
    skewed = RouterRecord(skewed_mean, skewed_count, torch.tensor(4.0))
    balance, z, counts_xe = auxiliary_losses([even, skewed], geometry)
    assert balance.item() == pytest.approx((1 + 12) / 2)
    assert z.item() == pytest.approx(3)
    assert counts_xe.tolist() == [[5] * 12, [60] + [0] * 11]


def test_record_of_a_routing_decision():
    logits_ne = torch.randn(30, 6, dtype=torch.float64, requires_grad=True)
    ids_nk = logits_ne.topk(2).indices
    found = record(logits_ne, ids_nk)
    torch.testing.assert_close(found.mean_e, logits_ne.softmax(-1).mean(0))
    torch.testing.assert_close(found.z, logits_ne.exp().sum(-1).log().square().mean())
    assert found.count_e.tolist() == [(ids_nk == e).sum().item() for e in range(6)]
    torch.autograd.gradcheck(lambda x: record(x, ids_nk).mean_e, logits_ne)
    torch.autograd.gradcheck(lambda x: record(x, ids_nk).z, logits_ne)


def test_training_on_the_balance_loss_evens_the_load(tokens_bt):
    model = build(experts=24, top_k=2, **LOOP)
    optimiser = torch.optim.Adam([layer.moe.router.weight for layer in model.layers], lr=0.01)
    spread = []
    for _ in range(40):
        out = model.loss(tokens_bt, tokens_bt)
        optimiser.zero_grad()
        out.balance.backward()
        optimiser.step()
        spread.append(out.counts_xe.double().std(1).mean().item())
    assert spread[-1] < 0.6 * spread[0]


def _rank(rank: int, world: int, store: str, queue) -> None:
    torch.set_num_threads(1)
    distributed.init_process_group("gloo", init_method=f"file://{store}", rank=rank, world_size=world)
    try:
        model, inputs = build(**LOOP), _inputs()
        out = model.loss(inputs[rank : rank + 1, :-1], inputs[rank : rank + 1, 1:])
        out.balance.backward()
        grads = [layer.moe.router.weight.grad for layer in model.layers]
        queue.put((rank, out.balance.item(), out.counts_xe.tolist(), [grad.tolist() for grad in grads]))
    finally:
        distributed.destroy_process_group()


def _inputs() -> torch.Tensor:
    # The second row repeats one token, so that most experts get nothing on the second rank.
    first = torch.randint(0, 64, (1, 21), generator=torch.Generator().manual_seed(1))
    return torch.cat([first, torch.full((1, 21), 9)])


def test_two_ranks_balance_as_one_process_does(tmp_path):
    model, inputs = build(**LOOP), _inputs()
    whole = model.loss(inputs[:, :-1], inputs[:, 1:])
    whole.balance.backward()
    context = multiprocessing.get_context("spawn")
    queue = context.SimpleQueue()
    ranks = [
        context.Process(target=_rank, args=(rank, 2, str(tmp_path / "store"), queue)) for rank in range(2)
    ]
    for process in ranks:
        process.start()
    results = sorted(queue.get() for _ in ranks)
    for process in ranks:
        process.join()
    for _, _, counts, _ in results:
        assert counts == whole.counts_xe.tolist()
    assert sum(result[1] for result in results) / 2 == pytest.approx(whole.balance.item(), rel=1e-5)
    for number, layer in enumerate(model.layers):
        mean = torch.tensor([result[3][number] for result in results]).mean(0)
        torch.testing.assert_close(mean, layer.moe.router.weight.grad, rtol=1e-4, atol=1e-7)
