"""What jobs ask of a cluster follows from the plan."""

from dataclasses import replace

import pytest

from smelt.budget import resolve_run
from smelt.budget.plan import STATE_BYTES, choose_machine, make_plan, stored_parameters
from smelt.cluster import MEGA, START_MINUTES, Share, reading_share, training_share
from smelt.errors import SmeltError
from smelt.study import load_study

PAPER = load_study("paper")
NODES = {"device": "h200", "node_devices": 8, "launcher": "srun"}


def share(run, **cluster):
    return training_share(PAPER, resolve_run(PAPER, run), {**NODES, **cluster})


def stored(run):
    return stored_parameters(resolve_run(PAPER, run).geometry, PAPER.corpus.vocab)


def test_every_run_of_the_paper_takes_the_devices_and_hours_of_the_plan():
    for row in make_plan(PAPER, None, choose_machine(PAPER, "h200", None))["runs"]:
        found = share(row["run"])
        assert found.devices == row["devices"]
        assert found.nodes * found.local == found.devices
        assert found.minutes > 60 * row["device_hours"] / row["devices"]


@pytest.mark.parametrize("run", ["100M-s0-baseline", "600M-s97-smelt", "1.6B-s97-smelt"])
def test_fewer_hours_take_more_devices_but_no_more_than_it_needs(run):
    longest = share(run, hours=48)
    assert longest.minutes <= 48 * 60
    halved = replace(longest, devices=longest.devices // 2)
    assert (
        halved.devices < share(run).devices or 2 * (longest.minutes - START_MINUTES) > 48 * 60 - START_MINUTES
    )


def test_a_limit_that_no_number_of_devices_meets_is_asked_for_all_the_same():
    found = share("1.6B-s97-smelt", hours=1)
    assert found.devices == PAPER.training.batch
    assert found.minutes == 60


def test_nodes_are_filled_with_a_power_of_two():
    assert [
        (s.nodes, s.local) for s in (share("1.6B-s97-smelt", node_devices=n) for n in (1, 4, 6, 8, 64))
    ] == [
        (16, 1),
        (4, 4),
        (4, 4),
        (2, 8),
        (1, 16),
    ]


def test_host_memory_holds_the_state_that_passes_through_a_node():
    large, small = share("1.6B-s97-smelt"), share("100M-s0-baseline")
    part = STATE_BYTES * stored("1.6B-s97-smelt") * large.local / large.devices / MEGA
    assert part < large.memory_mb < 4 * part
    assert small.memory_mb > STATE_BYTES * stored("100M-s0-baseline") / MEGA


def test_several_nodes_need_a_launcher():
    with pytest.raises(
        SmeltError, match=r"1.6B-s97-smelt needs 16 devices, but a node has 8 .*cluster.launcher"
    ):
        training_share(PAPER, resolve_run(PAPER, "1.6B-s97-smelt"), {"device": "h200", "node_devices": 8})


def test_without_a_launcher_one_process_gets_the_cores_of_all():
    found = training_share(
        PAPER, resolve_run(PAPER, "1.6B-s97-smelt"), {"device": "h200", "node_devices": 16}
    )
    launched = share("1.6B-s97-smelt", node_devices=16)
    assert (found.local, found.threads, found.launch(1)) == (1, 16 * launched.threads, "")


def test_a_batch_that_cannot_be_divided_is_refused():
    spec = resolve_run(PAPER, "1.6B-s97-smelt")
    odd = replace(spec, training=replace(spec.training, batch=252))
    with pytest.raises(
        SmeltError, match="needs 16 devices, so training.batch must be a multiple of them; it is 252"
    ):
        training_share(PAPER, odd, NODES)


def test_processors_take_no_device_whatever_the_nodes_have():
    study = load_study("smoke")
    spec = resolve_run(study, "s-s95-smelt")
    assert training_share(study, spec, {**NODES, "device": "core"}).devices == 0
    # The device of the plan for single precision.
    assert training_share(study, spec, {}) == training_share(study, spec, {"device": "core"})
    assert reading_share(study, spec, {}, 5).devices == 0
    assert reading_share(study, spec, {"device": "a100"}, 5).devices == 1


@pytest.mark.parametrize(
    ("nodes", "local", "expected"),
    [
        (1, 1, (None, None, None, None)),
        (1, 8, ("srun", 8, None, None)),
        (2, 8, ("srun", 8, None, None)),
        # One task on each node cannot be asked for by node, and tasks alone would be those of a device.
        (2, 1, ("srun", None, 2, 0)),
    ],
)
def test_resources_of_the_executor(nodes, local, expected):
    found = Share(nodes * local, nodes, local, 4, 1000, 60)
    assert (found.mpi, found.tasks_per_node, found.tasks, found.tasks_per_gpu) == expected
    words = found.launch(3).split()
    assert bool(words) == (found.mpi is not None)
    assert not words or {
        f"--nodes={nodes}",
        f"--ntasks={nodes * local}",
        f"--ntasks-per-node={local}",
    } <= set(words)
