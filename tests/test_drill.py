"""How the fault drill judges what a fault did; the drill itself takes minutes (`make drill`)."""

from pathlib import Path
from types import SimpleNamespace

import pytest

from bench.drill import advice, kinds, settle
from bench.faults import FAULTS, Ended, Struck
from smelt.errors import SmeltError
from smelt.results.parquet import read_rows, write_table
from smelt.study.records import make_anew

FINE, BROKEN = Ended(0, ""), Ended(1, "error: No space left on device: trial/a")


@pytest.mark.parametrize("number", [9, 20])
def test_every_kind_of_fault_comes_up_before_one_comes_twice(number):
    planned = kinds(number, seed=3)
    assert len(planned) == number and set(planned[:9]) == set(FAULTS) == set(planned[9:18] or FAULTS)
    assert planned == kinds(number, seed=3) != kinds(number, seed=4)


def test_advice_is_read_from_the_errors_that_the_stages_write(tmp_path):
    path = tmp_path / "corpus" / "manifest.json"
    assert advice(f"error: shard a.bin is damaged: its SHA-256 differs; {make_anew(path)}\n") == str(path)
    table = write_table(tmp_path, "law_notes", [])
    table.write_bytes(table.read_bytes()[:-9])
    with pytest.raises(SmeltError) as caught:
        read_rows(table)
    assert advice(f"error: {caught.value}\n") == str(table)
    assert advice(BROKEN.text) == ""


class Scripted:
    """A drill whose repeated runs end as given."""

    def __init__(self, folder, *ends, differing=""):
        self.folder, self.ends, self.found = folder, list(ends), differing
        self.runs = 0

    def start(self, results):
        self.runs += 1

    def end(self, process):
        return self.ends.pop(0)

    def differing(self, results):
        return self.found


def judged(drill, ended, harmed=None):
    healed = []
    struck = Struck("a fault", ended, harmed, lambda: healed.append(True))
    right, story = settle(drill, drill.folder / "trial", struck)
    return SimpleNamespace(right=right, story=story, healed=bool(healed), runs=drill.runs)


def told(path):
    return Ended(1, f"error: {path} is damaged: its SHA-256 differs; {make_anew(path)}")


def test_a_fault_that_changed_nothing_is_well(tmp_path):
    found = judged(Scripted(tmp_path), FINE)
    assert found.right and not found.runs


def test_other_tables_are_a_failure_however_they_came_about(tmp_path):
    for ends in ((FINE,), (BROKEN, FINE)):
        found = judged(Scripted(tmp_path, *ends[1:], differing="endpoints"), ends[0])
        assert not found.right and "endpoints" in found.story


def test_one_repetition_is_allowed_after_the_owner_has_made_room(tmp_path):
    found = judged(Scripted(tmp_path, FINE), BROKEN)
    assert found.right and found.healed and found.runs == 1
    assert not judged(Scripted(tmp_path, BROKEN, FINE), BROKEN).right


@pytest.mark.parametrize("repeated", [0, 1])
def test_what_an_error_says_is_done(tmp_path, repeated):
    victim = tmp_path / "trial" / "corpus" / "manifest.json"
    victim.parent.mkdir(parents=True)
    victim.touch()
    damage = told(victim.relative_to(tmp_path))
    first, *rest = [*([BROKEN] * repeated), damage, FINE]
    found = judged(Scripted(tmp_path, *rest), first, victim)
    assert found.right and not victim.exists() and found.runs == 1 + repeated


def test_an_error_must_name_the_damaged_file(tmp_path):
    other = told(Path("trial/other"))
    found = judged(Scripted(tmp_path, FINE), other, tmp_path / "trial" / "harmed")
    assert not found.right and "does not name" in found.story


def test_a_run_that_hangs_is_a_failure(tmp_path):
    assert not judged(Scripted(tmp_path), Ended(None, "")).right
