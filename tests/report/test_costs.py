"""Where the time went: shares of the stages, their goals, and what no record covers."""

import pytest

from smelt.report.costs import cost_table, costs, shares


class Fake:
    """The database with other rows of costs."""

    def __init__(self, data, change):
        self.data, self.change, self.counts = data, change, data.counts

    def frame(self, sql, *parameters):
        frame = self.data.frame(sql, *parameters)
        return self.change(frame) if "stage_costs" in sql else frame


def test_core_seconds_are_those_of_steps_and_jobs(data):
    frame = costs(data).set_index("stage")
    steps = data.frame("SELECT sum(seconds) AS s FROM throughput")["s"].iloc[0]
    assert frame.at["Training: steps", "seconds"] == pytest.approx(steps)
    # A second each for 13 evaluations and 8 captures; the corpus takes 2 s on 4 cores.
    assert frame.at["Evaluation", "seconds"] == 13 and frame.at["Looking inside (mechanism)", "seconds"] == 8
    assert frame.at["Corpus", "seconds"] == 8
    # Invented jobs of training took less than their steps: they were started again.
    assert frame.at["Training: start, checkpoints", "seconds"] == 0
    assert (frame["jobs"] == frame["recorded"]).all()
    assert frame["share"].sum() == pytest.approx(1)
    assert frame.at["Evaluation", "share"] == pytest.approx(13 / frame["seconds"].sum())


def test_the_goals_stand_beside_the_shares(data, tmp_path):
    frame = costs(data)
    html = cost_table(data, tmp_path)
    evaluation = frame.set_index("stage").at["Evaluation", "share"]
    assert f"evaluation took {evaluation:.1%} (goal: at most 15%, met)" in html
    assert "(goal: at least 70%, met)" in html and "(goal: at most 8%, met)" in html
    turned = frame.assign(share=[0.2 if stage == "Evaluation" else 0.1 for stage in frame["stage"]])
    assert "evaluation took 20.0% (goal: at most 15%, missed)" in shares(turned)
    assert "the steps of training took 10.0% (goal: at least 70%, missed)" in shares(turned)


def test_time_of_a_training_outside_of_its_steps_is_told(data):
    longer = Fake(data, lambda f: f.assign(seconds=f["seconds"].where(f["stage"] != "train_run", 1000.0)))
    frame = costs(longer).set_index("stage")
    rest = frame.at["Training: start, checkpoints", "seconds"]
    assert rest == pytest.approx(13 * 1000 - frame.at["Training: steps", "seconds"])


def test_devices_are_counted_where_jobs_hold_them(data, tmp_path):
    held = Fake(data, lambda f: f.assign(devices=f["stage"].str.endswith("_run").astype(int) * 2))
    frame = costs(held).set_index("stage")
    assert set(frame["unit"]) == {"device"} and frame.at["Corpus", "seconds"] == 0
    assert frame.at["Evaluation", "seconds"] == 26
    assert "Device-seconds" in cost_table(held, tmp_path)


def test_shares_of_a_part_are_not_shown(data, tmp_path):
    gaps = Fake(data, lambda f: f[(f["stage"] != "evaluate_run") | (f["job"] > "xs-s85")])
    assert costs(gaps)["share"].isna().all()
    html = cost_table(gaps, tmp_path)
    assert "No shares: " in html and "Without a record: Evaluation (" in html


def test_what_restarted_trainings_took_beside_their_steps_is_called_unknown(data, tmp_path):
    assert "Of 13 trainings the last start was shorter than the steps of all" in cost_table(data, tmp_path)
    longer = Fake(data, lambda f: f.assign(seconds=f["seconds"].where(f["stage"] != "train_run", 1000.0)))
    assert "the last start was shorter" not in cost_table(longer, tmp_path)


def test_stages_without_a_record_show_no_number(data, tmp_path):
    html = cost_table(Fake(data, lambda f: f[f["stage"] != "laws_fit"]), tmp_path)
    row = html[html.index("Laws</td>") :].split("</tr>")[0]
    assert "Without a record: Laws (1 job)" in html and row.count("–") == 3


def test_a_study_without_records_says_so(data, monkeypatch, tmp_path):
    monkeypatch.setitem(data.counts, "stage_costs", 0)
    html = cost_table(data, tmp_path)
    assert "<table" not in html and "Not recorded: " in html and "The steps of training took " in html
