"""A run that is killed and started again ends with the very bytes of one that was not."""

import shutil
import signal
import time

import pytest

from smelt.files import read_json, write_json
from smelt.results.parquet import read_rows
from smelt.train.schedule import Itinerary
from tests.train.tiny import digest, errors, run_tiny, tiny_spec

# Updates of the tiny run: 1-4 trunk, 5-7 branch, 8-10 trunk, 11-13 branch.
FORK, IN_BRANCH, BRANCH_END, TRUNK_AGAIN, LAST_FORK, END = 4, 6, 7, 9, 10, 13
WALL_CLOCK = ("tokens_per_s", "mfu")


def log(out):
    return [
        {key: value for key, value in row.items() if key not in WALL_CLOCK}
        for row in read_rows(out / "train_log.parquet")
    ]


@pytest.mark.parametrize("update", [FORK, IN_BRANCH, BRANCH_END, TRUNK_AGAIN, END])
def test_resuming_after_a_kill_is_bitwise(update, finished, tmp_path):
    out = tmp_path / "run"
    assert run_tiny(out, die_after=update) == -signal.SIGKILL
    assert not (out / "manifest.json").exists()
    assert run_tiny(out) == 0
    assert digest(out) == digest(finished)
    assert log(out) == log(finished)
    assert not (out / "resume").exists()


@pytest.mark.parametrize("update", [FORK, BRANCH_END])
def test_a_kill_inside_a_checkpoint_goes_back_to_the_one_before(update, finished, tmp_path):
    out = tmp_path / "run"
    assert run_tiny(out, die_after=update, where="commit") == -signal.SIGKILL
    assert run_tiny(out) == 0
    assert digest(out) == digest(finished)


def test_a_kill_before_the_first_checkpoint_starts_over(finished, tmp_path):
    out = tmp_path / "run"
    assert run_tiny(out, die_after=3, interval=1e9) == -signal.SIGKILL
    assert not (out / "resume").exists()
    assert run_tiny(out) == 0
    assert digest(out) == digest(finished)


def test_a_run_that_is_killed_again_and_again_ends_the_same(finished, tmp_path):
    out = tmp_path / "run"
    for update in (3, IN_BRANCH, 8, LAST_FORK + 1):
        assert run_tiny(out, die_after=update) == -signal.SIGKILL
    assert run_tiny(out) == 0
    assert digest(out) == digest(finished)
    assert log(out) == log(finished)


def test_sigterm_saves_the_state_and_asks_for_another_start(finished, tmp_path):
    out = tmp_path / "run"
    assert run_tiny(out, die_after=5, kind=signal.SIGTERM, interval=1e9) == 75
    # The signal came between updates 5 and 6; update 6 is finished, saved and the last.
    assert sorted(path.stem for path in (out / "resume").glob("*.json")) == ["000000004", "000000006"]
    assert run_tiny(out, interval=1e9) == 0
    assert digest(out) == digest(finished)


def test_sigterm_before_the_first_update_is_not_lost(finished, tmp_path):
    out = tmp_path / "run"
    assert run_tiny(out, die_after=0, kind=signal.SIGTERM, where="start", interval=1e9) == 75
    assert not (out / "manifest.json").exists()
    assert run_tiny(out) == 0
    assert digest(out) == digest(finished)


def test_a_signal_after_the_last_update_changes_nothing(finished, tmp_path):
    out = tmp_path / "run"
    assert run_tiny(out, die_after=END - 1, kind=signal.SIGTERM, interval=1e9) == 0
    assert digest(out) == digest(finished)


def test_the_last_two_checkpoints_and_the_fork_are_kept(killed):
    assert sorted(path.stem for path in (killed / "resume").glob("*.json")) == [
        "000000004",
        "000000005",
        "000000006",
    ]


@pytest.mark.parametrize("victim", ["6-0.safetensors", "6-rows.safetensors", "6.json"])
def test_a_damaged_checkpoint_is_skipped_with_a_warning(victim, killed, finished):
    path = killed / "resume" / f"00000000{victim}"
    content = bytearray(path.read_bytes())
    content[len(content) // 2] ^= 1
    path.write_bytes(bytes(content[:-1]))
    assert run_tiny(killed) == 0
    warnings = [line for line in errors(killed).splitlines() if line.startswith("warning")]
    assert len(warnings) == 1
    assert "000000006" in warnings[0]
    assert "skipped" in warnings[0]
    assert digest(killed) == digest(finished)


def test_a_branch_without_its_fork_is_of_no_use(killed, finished):
    (killed / "resume" / "000000004-0.safetensors").unlink()
    assert run_tiny(killed) == 0
    assert errors(killed).count("warning") == 3
    assert digest(killed) == digest(finished)


def test_a_checkpoint_whose_endpoint_is_gone_is_not_used(finished, tmp_path):
    out = tmp_path / "run"
    assert run_tiny(out, die_after=TRUNK_AGAIN) == -signal.SIGKILL
    (out / "endpoints" / "h4.safetensors").unlink()
    assert run_tiny(out) == 0
    assert "h4.safetensors does not exist" in errors(out)
    assert digest(out) == digest(finished)


def test_checkpoints_of_another_specification_are_not_used(killed, finished):
    for path in (killed / "resume").glob("*.json"):
        record = read_json(path)
        record["identity"]["spec_hash"] = "0" * 64
        write_json(path, record, sealed=True)
    assert run_tiny(killed) == 0
    assert "another specification" in errors(killed)
    assert digest(killed) == digest(finished)


def test_a_complete_run_is_left_alone_unless_an_endpoint_is_damaged(finished, tmp_path):
    before = (finished / "manifest.json").stat().st_mtime_ns
    started = time.time_ns()
    assert run_tiny(finished) == 0
    assert (finished / "manifest.json").stat().st_mtime_ns == before < started
    content = digest(finished)
    (finished / "endpoints" / "h7.safetensors").write_bytes(b"damaged")
    assert run_tiny(finished) == 0
    assert digest(finished) == content


OUTPUTS = ["manifest.json", "train_log.parquet", "throughput.parquet"]


@pytest.mark.parametrize("harmed", [*([name] for name in OUTPUTS), OUTPUTS])
@pytest.mark.parametrize("harm", ["gone", "flipped"])
def test_outputs_of_a_complete_run_come_back_without_training(finished, tmp_path, harmed, harm):
    """What Snakemake deletes before it starts a job again, or a disk damages."""
    out = shutil.copytree(finished, tmp_path / "run")
    expected = {name: (out / name).read_bytes() for name in OUTPUTS}
    for name in harmed:
        (out / name).unlink()
        if harm == "flipped":
            (out / name).write_bytes(flipped(expected[name]))
    assert run_tiny(out, die_after=1) == 0  # a run that trains would die
    assert {name: (out / name).read_bytes() for name in OUTPUTS} == expected


def flipped(data):
    """Return `data` with one bit flipped; in a manifest, that of a number."""
    text = b'"tokens": '
    place = data.index(text) + len(text) if text in data else len(data) // 2
    return data[:place] + bytes([data[place] ^ 1]) + data[place + 1 :]


@pytest.mark.parametrize("name", OUTPUTS)
def test_without_both_copies_a_run_is_trained_again_and_ends_the_same(finished, tmp_path, name):
    out = shutil.copytree(finished, tmp_path / "run")
    rows = log(out)
    (out / name).unlink()
    copy = out / "complete" / name
    copy.write_bytes(flipped(copy.read_bytes()))
    assert run_tiny(out) == 0
    assert digest(out) == digest(finished)
    assert log(out) == rows


def test_a_complete_run_of_another_specification_is_trained_again(finished, tmp_path):
    out = shutil.copytree(finished, tmp_path / "run")
    for folder in (out, out / "complete"):
        manifest = read_json(folder / "manifest.json")
        write_json(folder / "manifest.json", manifest | {"spec_hash": "0" * 64}, sealed=True)
    assert run_tiny(out) == 0
    assert digest(out) == digest(finished)
    assert (out / "complete" / "manifest.json").read_bytes() == digest(finished)


def test_a_complete_run_of_before_there_were_copies_is_left_alone(finished, tmp_path):
    out = shutil.copytree(finished, tmp_path / "run")
    shutil.rmtree(out / "complete")
    write_json(out / "manifest.json", read_json(out / "manifest.json"))
    assert run_tiny(out, die_after=1) == 0


def test_a_damaged_specification_of_a_complete_run_is_written_anew(finished, tmp_path):
    out = shutil.copytree(finished, tmp_path / "run")
    (out / "spec.json").write_text("{}")
    before = (out / "manifest.json").stat().st_mtime_ns
    assert run_tiny(out) == 0
    assert (out / "spec.json").read_bytes() == (finished / "spec.json").read_bytes()
    assert (out / "manifest.json").stat().st_mtime_ns == before


def test_the_log_has_a_row_for_every_update(finished):
    rows = log(finished)
    itinerary = Itinerary(tiny_spec())
    expected = {(u.phase, u.horizon, u.step): (u.tokens, u.lr) for u in itinerary}
    assert {(r["phase"], r["horizon"], r["step"]): (r["tokens"], r["lr"]) for r in rows} == expected
    assert all(r["load_min"] <= 1 <= r["load_max"] for r in rows)
    flops = rows[0]["flops"] / rows[0]["tokens"]
    assert all(r["flops"] == r["tokens"] * flops for r in rows)
    losses = {(r["phase"], r["horizon"], r["step"]): r["loss"] for r in rows}
    assert losses["decay", 7, 10] < losses["trunk", 0, 1] - 1
