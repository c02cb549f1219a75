"""The tasks: table 11."""

from __future__ import annotations

from smelt.report.data import Data
from smelt.report.output import Column, TableView
from smelt.report.suite import suite_note
from smelt.report.tables.formats import fixed, integer, joined, text


def tasks(data: Data) -> TableView:
    """Table 11: every task of the suite with its setting, its chance level and what was measured."""
    data.need("task_scores")
    frame = data.frame(
        """
        WITH last AS (SELECT run, max(horizon) AS horizon FROM task_scores GROUP BY run),
        scored AS (
          SELECT t.*, r.arch FROM task_scores t JOIN last USING (run, horizon) JOIN runs r USING (run)
          WHERE r.grouping = 'grid')
        SELECT category, task, list(DISTINCT shots ORDER BY shots) AS shots,
          any_value(n) FILTER (metric = 'accuracy') AS n, 100 * any_value(chance) AS chance,
          100 * avg(value) FILTER (metric = 'accuracy' AND arch = 'baseline') AS baseline,
          100 * avg(value) FILTER (metric = 'accuracy' AND arch = 'smelt') AS smelt
        FROM scored GROUP BY category, task ORDER BY category, task
        """
    )
    frame["shots"] = [", ".join(str(count) for count in counts) for counts in frame["shots"]]
    columns = (
        Column("category", "Category", text, numeric=False),
        Column("task", "Task", text, numeric=False),
        Column("shots", "Demonstrations", text),
        Column("n", "Items", integer),
        Column("chance", "Chance (%)", fixed(1)),
        Column("baseline", "Baseline (%)", fixed(1)),
        Column("smelt", "SMELT (%)", fixed(1)),
    )
    note = "Accuracy: mean over cells, demonstrations and seeds at the last endpoint."
    suite = suite_note(data, "accuracies are raw, chance is that of random baselines {}")
    return TableView(columns, frame, joined(note, suite))
