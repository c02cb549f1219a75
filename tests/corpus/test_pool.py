from __future__ import annotations

import pytest

from smelt.corpus.pool import Pool
from smelt.corpus.split import split_documents
from smelt.corpus.tokenizer import load_tokenizer
from smelt.errors import SmeltError

TASKS = [([size] * 8, [str(n) for n in range(8)], 0.25, 0.5) for size in (10, 1000, 50)]


@pytest.mark.parametrize("jobs", [1, 2])
def test_results_come_in_the_order_of_the_tasks(jobs, capsys):
    with Pool(jobs) as pool:
        assert pool.run(split_documents, TASKS, [1, 3, 2], "split") == [split_documents(*t) for t in TASKS]
    assert "split: 0.0 MB in" in capsys.readouterr().err


def test_a_mistake_in_a_process_arrives_as_it_was_raised(tmp_path):
    with Pool(2) as pool, pytest.raises(SmeltError, match=r"none\.json does not exist"):
        pool.run(load_tokenizer, [(tmp_path / "none.json",)] * 4, [1] * 4, "load")
