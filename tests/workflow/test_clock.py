"""Files that a wrong clock has dated."""

import os
import time

from smelt.workflow import redate

DAY = 86400


def test_only_files_of_the_future_are_dated_now(tmp_path, capsys):
    now = time.time()
    ages = {
        "a/past": -3650 * DAY,
        "a/b/future": 3650 * DAY,
        "a/b/skewed": 5,
        "tomorrow": DAY,
        "elsewhere": DAY,
    }
    for name, age in ages.items():
        path = tmp_path / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.touch()
        os.utime(path, (now + age, now + age))
    (tmp_path / "a/gone").symlink_to("nowhere")
    redate(tmp_path / "a", tmp_path / "tomorrow", tmp_path / "absent")
    found = {name: (tmp_path / name).stat().st_mtime for name in ages}
    for name in ("a/past", "a/b/skewed", "elsewhere"):
        assert found[name] == now + ages[name]
    assert found["a/b/future"] == found["tomorrow"]
    assert now <= found["tomorrow"] <= time.time()
    assert "2 files were dated in the future" in capsys.readouterr().err
    redate(tmp_path / "a", tmp_path / "tomorrow")
    assert not capsys.readouterr().err
