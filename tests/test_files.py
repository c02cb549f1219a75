"""Files are whole or absent, and what a killed process left is cleared."""

import errno
import subprocess
import sys

import pytest

from smelt.errors import SmeltError
from smelt.files import atomic_path, canonical_json, read_json, write_json, write_text


def test_a_failure_leaves_the_old_file(tmp_path):
    path = tmp_path / "a.txt"
    write_text(path, "old")
    with pytest.raises(RuntimeError), atomic_path(path) as temporary:
        temporary.write_text("half")
        raise RuntimeError
    assert path.read_text() == "old"
    assert list(tmp_path.iterdir()) == [path]


def test_what_a_killed_process_left_is_cleared(tmp_path):
    gone = subprocess.Popen([sys.executable, "-c", ""])
    gone.wait()
    (tmp_path / f".a.txt.{gone.pid}.tmp").write_text("left")
    lasting = tmp_path / ".a.txt.1.tmp"  # process 1 always runs
    lasting.write_text("being written")
    write_text(tmp_path / "a.txt", "new")
    assert {path.name for path in tmp_path.iterdir()} == {"a.txt", lasting.name}


def test_an_error_names_the_file_itself(tmp_path):
    with pytest.raises(OSError) as caught, atomic_path(tmp_path / "a.txt"):
        raise OSError(errno.ENOSPC, "No space left on device")
    assert (caught.value.errno, caught.value.filename) == (errno.ENOSPC, str(tmp_path / "a.txt"))


def test_canonical_json_refuses_what_has_no_one_form():
    assert canonical_json({"b": 1, "a": [2]}) == '{"a":[2],"b":1}'
    with pytest.raises(ValueError, match="not JSON compliant"):
        canonical_json(float("nan"))


def test_a_sealed_file_reads_as_what_was_written(tmp_path):
    path = tmp_path / "a.json"
    value = {"flops": 1.5e21, "name": "é", "tasks": {"b": [1, None], "a": 0.1}}
    write_json(path, value, sealed=True)
    assert read_json(path) == value
    write_json(path, value)  # files of earlier versions have no seal
    assert read_json(path) == value


def test_a_flipped_bit_of_a_sealed_file_is_refused_or_changes_no_value(tmp_path):
    path = tmp_path / "a.json"
    value = {"flops": 1.5e21, "name": "é", "tasks": {"b": [1, None], "a": 0.1}}
    write_json(path, value, sealed=True)
    data = path.read_bytes()
    key = data.index(b'"seal"')
    for place in range(len(data)):
        for bit in range(8):
            flipped = bytearray(data)
            flipped[place] ^= 1 << bit
            path.write_bytes(flipped)
            try:
                read = read_json(path)
            except SmeltError as error:
                assert str(path) in str(error)
                continue
            # With the key itself flipped the hash is one more value, which a schema refuses.
            assert read == value or key < place < key + 6, (place, bit)


@pytest.mark.parametrize(
    "text", ["[" * 100_000, "1" * 10_000, '{"seal": NaN, "a": NaN}', '{"seal": "", "a": "\\ud800"}']
)
def test_json_that_breaks_a_parser_is_refused(tmp_path, text):
    path = tmp_path / "a.json"
    path.write_text(text)
    with pytest.raises(SmeltError, match="a.json is "):
        read_json(path)
