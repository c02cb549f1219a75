"""A few hundred of the inputs that `python -m bench.fuzz` makes, for every reader."""

import pytest

from bench.fuzz import READERS, fuzz


@pytest.mark.parametrize("reader", sorted(READERS))
def test_every_input_is_read_or_refused(reader):
    outcome = fuzz(reader, 150)
    assert outcome.failures == []
    assert outcome.counts["inputs"] >= 100
    assert outcome.counts["refused"] > 0 and outcome.counts["read"] > 0
