"""Files are whole or absent, and what a killed process left is cleared."""

import errno
import subprocess
import sys

import pytest

from smelt.files import atomic_path, canonical_json, write_text


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
