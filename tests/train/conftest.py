import shutil

import pytest

from tests.train.tiny import run_tiny


@pytest.fixture(scope="session")
def finished(tmp_path_factory):
    """The folder of the tiny run, trained without an interruption and without timed checkpoints."""
    out = tmp_path_factory.mktemp("finished") / "run"
    assert run_tiny(out, interval=1e9) == 0
    return out


@pytest.fixture
def killed(tmp_path_factory, tmp_path):
    """A copy of the tiny run's folder as a kill two updates into the first branch leaves it."""
    out = tmp_path / "run"
    assert run_tiny(out, die_after=6) == -9
    yield out
    shutil.rmtree(out)
