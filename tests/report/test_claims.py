"""The ledger on tables whose verdict is known: for, against, too wide, absent, doubted."""

from pathlib import Path

import pytest

from smelt.errors import SmeltError
from smelt.report.claims import CLAIMS, ledger, write_claims
from smelt.report.claims_rules import MODELS_RULE
from smelt.results.parquet import read_rows, write_table
from smelt.results.schemas import TABLES
from smelt.study import load_study, run_points

STUDY = str(Path(__file__).parents[1] / "laws" / "studies" / "tiny.yaml")
SCALES, LEVELS = ("xs", "s"), (85, 95)
RATIOS = ("update_ratio", "attention_ratio", "moe_ratio", "norm_ratio")
# The sign that supports the claim, by diagnostic.
DIAGNOSTICS = dict.fromkeys((*RATIOS, "expert_overlap", "update_cosine", "top8_overlap", "dyck_answers"), 1)
DIAGNOSTICS |= {"cosine_Q": 1, "cosine_K": 1, "cosine_V": -1, "sink": -1, "sink_depth": 1, "dyck_bos": -1}
# Contrasts of each claim: name -> threshold that must be exceeded.
CONTRASTS = {
    "C1": {f"loss_gap:{scale}-s{level}": 0.0 for scale in SCALES for level in LEVELS},
    "C2": {"span_margin:85:0": 0.0, "span_margin:85:2": 0.0},
    "C3": {"depth_shift:85": 0.0},
    "C4": {"loops_margin:85:1": 0.0, "loops_margin:85:3": 0.0},
    "C5": {"exponent:a": 0.0, "exponent:c": 0.0},
    "C6": {"gain_growth:85": 0.0, "gain_growth:95": 0.0},
    "C8": {"wins:completion": 0.5},
    "C9": {"wins:core": 0.5},
    "C10": {"wins:mmlu": 0.5},
    "C11": {
        f"residual:{metric}:{scale}": 0.0 for metric in ("completion", "core", "mmlu") for scale in SCALES
    },
    "C12": {"code_margin:Finance": 0.0, "code_margin:Web": 0.0},
    "C13": {"length_ratio:smelt": 1.0, "length_margin:experts": 0.0, "length_margin:parameters": 0.0},
    "C14": {"icl_gap:shots": 0.0, "icl_growth": 0.0},
    "C15": {"dyck_gap:4": 0.0},
}
MECHANISM = ("C16", "C17", "C18", "C19", "C20", "C21", "C22")


def row_of(table, **values):
    empty = {"s": "", "i": 1, "f": 1.0, "b": False}
    row = {c.name: None if c.nullable else empty[c.kind] for c in TABLES[table].columns}
    return row | values


class World:
    """Stage tables of a small study in which every claim's components have one value and one spread."""

    def __init__(self, folder, value=0.3, spread=0.1, note=""):
        self.folder, self.study = folder, load_study(STUDY)
        self.value, self.spread, self.note = value, spread, note
        self.contrasts = {name: floor for names in CONTRASTS.values() for name, floor in names.items()}
        self.tpp = {"tpp_ratio:85": (1.0, 0.01), "tpp_ratio:95": (0.98, 0.01)}
        self.notes, self.diagnostics = [], dict(DIAGNOSTICS)
        self.delta = (5.0, 3.0, 7.0)
        self.overrides, self.cosines = {}, {}

    def write(self):
        points = run_points(self.study, seeds=2)
        runs = []
        for run, point in points.items():
            row = row_of("runs", run=run, cell=point.cell, scale=point.scale, sparsity=point.sparsity)
            row |= {
                "arch": point.arch,
                "grouping": point.group,
                "seed": point.seed,
                "experts": 96,
                "top_k": 8,
            }
            runs.append(row)
        write_table(self.folder / "budget", "runs", runs)
        power = {"flops": 1e12, "tokens": 1e6, "gap_predicted": -0.004, "in_window": False}
        cells = [f"{scale}-s{level}" for scale in SCALES for level in LEVELS]
        write_table(self.folder / "budget", "power", [{"cell": c, "horizon": 60, **power} for c in cells])
        self.write_laws()
        for run, point in points.items():
            if point.group == "grid":
                self.write_run(run, point.arch)
        return self

    def write_laws(self):
        rows = [
            self.contrast(name, floor + self.value, self.spread) for name, floor in self.contrasts.items()
        ]
        rows += [self.contrast(name, *pair) for name, pair in self.tpp.items()]
        write_table(self.folder / "laws", "law_contrasts", rows)
        write_table(self.folder / "laws", "law_notes", self.notes)
        gains = []
        for budget in (1e12, 1e13, 1e14):
            for level in LEVELS:
                row = {"budget": budget, "sparsity": level, "subset": "all", "gain": self.value}
                # Outside of the window anything goes: the claim is about the two budgets inside.
                row["gain"] = self.value if budget < 1e14 else -9.0
                row |= {"low": row["gain"] - self.spread, "high": row["gain"] + self.spread}
                gains.append(row_of("ce_gain", note=self.note, **row))
        write_table(self.folder / "laws", "ce_gain", gains)

    def contrast(self, name, value, spread):
        value, spread = self.overrides.get(name, (value, spread))
        row = row_of("law_contrasts", contrast=name, value=value, n=96, note=self.note)
        return row | ({} if spread is None else {"low": value - spread, "high": value + spread})

    def write_run(self, run, arch):
        endpoint = row_of("endpoints", run=run, horizon=60, flops=1e12, val_loss=3.0, suite="local")
        write_table(self.folder / "evaluate" / run, "endpoints", [endpoint])
        rows = []
        for name, sign in self.diagnostics.items():
            if (arch == "baseline") == (name == "sink_depth"):
                value = self.cosines.get(name, sign * self.value)
                row = row_of(
                    "diagnostics", run=run, diagnostic=name, value=value, reference=0.0, difference=value
                )
                row |= {"low": value - self.spread, "high": value + self.spread}
                row |= {"difference_low": value - self.spread, "difference_high": value + self.spread}
                rows.append(row)
        folder = self.folder / "mechanism" / run
        write_table(folder, "diagnostics", rows)
        if arch == "smelt":
            delta, low, high = self.delta
            row = row_of(
                "dyck_heads", run=run, layer=2, head=1, delta=delta, low=low, high=high, selected=True
            )
            write_table(folder, "dyck_heads", [row])

    def verdicts(self):
        return {row["claim"]: row for row in ledger(self.study, self.folder)}


def test_the_ledger_has_each_claim_once_in_order_with_a_rule_and_a_paper_value():
    assert [claim.claim for claim in CLAIMS] == [f"C{number}" for number in range(1, 23)]
    for claim in CLAIMS:
        assert claim.test.__doc__.startswith(claim.claim + ":")
        assert claim.paper_value
        assert claim.statement


def test_the_rule_about_trained_models_is_printed_with_each_of_their_claims(tmp_path):
    found = World(tmp_path).verdicts()
    for name, row in found.items():
        assert row["rule"].endswith(MODELS_RULE) == (name in MECHANISM)
    assert MODELS_RULE.count(". ") == 1


def test_clear_evidence_for_every_claim_reproduces_every_claim(tmp_path):
    world = World(tmp_path)
    world.overrides = {"wins:completion": (0.9, 0.1), "wins:mmlu": (0.9, 0.1)}
    found = world.write().verdicts()
    assert {name: row["verdict"] for name, row in found.items()} == dict.fromkeys(found, "reproduced")
    assert found["C1"]["value"] == pytest.approx(0.3)
    assert (found["C1"]["low"], found["C1"]["high"]) == pytest.approx((0.2, 0.4))
    assert "4 of 4 parts hold" in found["C1"]["reason"]


def test_clear_evidence_against_contradicts_every_claim(tmp_path):
    world = World(tmp_path, value=-0.3, spread=0.1)
    world.tpp = {"tpp_ratio:85": (1.2, 0.01), "tpp_ratio:95": (1.0, 0.01)}
    found = world.write().verdicts()
    assert {name: row["verdict"] for name, row in found.items()} == dict.fromkeys(found, "contradicted")


@pytest.mark.parametrize("value", [0.3, -0.3, 0.0])
def test_wide_intervals_decide_nothing(tmp_path, value):
    world = World(tmp_path, value=value, spread=0.5)
    world.tpp = {"tpp_ratio:85": (1.0, 0.2)}
    found = world.write().verdicts()
    assert {name: row["verdict"] for name, row in found.items()} == dict.fromkeys(found, "inconclusive")


def test_stronger_unlooped_models_stand_beside_the_loss_claim_and_decide_nothing(tmp_path):
    world = World(tmp_path)
    world.overrides = {"loss_gap_control:s-s85": (0.25, 0.05)}
    world.contrasts["loss_gap_control:s-s85"] = 0.0
    world.notes = [{"analysis": "loss_gap_best_depth", "ok": False, "reason": "no depth was measured"}]
    row = world.write().verdicts()["C1"]
    assert row["verdict"] == "reproduced"
    assert "4 of 4 parts hold" in row["reason"]
    assert (
        "is +0.2500 nats (+0.2000 to +0.3000) for the control with SMELT's experts in s-s85" in row["reason"]
    )
    assert "not measured for the Baseline of the best depth (no depth was measured)" in row["reason"]
    world.overrides = {"loss_gap_best_depth:s-s85": (-0.27, None)}
    world.contrasts["loss_gap_best_depth:s-s85"] = 0.0
    row = world.write().verdicts()["C1"]
    assert row["verdict"] == "reproduced"
    assert "-0.2700 nats (no interval) for the Baseline of the best depth in s-s85" in row["reason"]


def test_the_crossover_stands_beside_the_loss_claim_or_why_there_is_none(tmp_path):
    world = World(tmp_path).write()
    assert "No crossover: laws/crossovers.parquet has not been written." in world.verdicts()["C1"]["reason"]
    row = row_of("crossovers", subset="all", tokens=3e5, low=2e5, high=4e5, window_low=1e5, window_high=9e5)
    write_table(tmp_path / "laws", "crossovers", [row | {"changes": 1, "ahead_last": False, "basis": "t"}])
    found = world.verdicts()["C1"]
    assert "Over all cells SMELT falls behind at 3e5 tokens (from 2e5 to 4e5)." in found["reason"]
    assert found["verdict"] == "reproduced"
    write_table(tmp_path / "laws", "crossovers", [])
    reason = "a crossover needs pairs at two horizons or more"
    world.notes = [{"analysis": "crossover", "ok": False, "reason": reason}]
    world.write_laws()
    assert "No crossover: a crossover needs pairs" in world.verdicts()["C1"]["reason"]


def test_absent_tables_are_not_measured_with_the_reason(tmp_path):
    found = World(tmp_path).verdicts()
    assert {row["verdict"] for row in found.values()} == {"not measured"}
    assert "laws/law_contrasts.parquet has not been written" in found["C1"]["reason"]
    assert "budget/runs.parquet has not been written" in found["C17"]["reason"]
    assert found["C1"]["value"] is None


def test_numbers_whose_fit_is_not_believed_are_inconclusive_and_say_why(tmp_path):
    found = World(tmp_path, note="2 token horizons: E, K and c are not identified").write().verdicts()
    for name in CONTRASTS:
        assert found[name]["verdict"] == "inconclusive"
        assert "2 token horizons" in found[name]["reason"]
        # A number that is not identified is not printed.
        assert found[name]["value"] is found[name]["low"] is found[name]["high"] is None
    assert found["C7"]["verdict"] == "inconclusive"
    assert found["C16"]["verdict"] == "reproduced"


def test_missing_intervals_are_inconclusive(tmp_path):
    world = World(tmp_path)
    world.overrides = dict.fromkeys(CONTRASTS["C1"], (0.3, None))
    row = world.write().verdicts()["C1"]
    assert row["verdict"] == "inconclusive"
    assert "no interval" in row["reason"]
    assert row["value"] == pytest.approx(0.3)
    assert row["low"] is None


def test_one_undecided_part_keeps_the_claim_open_and_is_the_one_shown(tmp_path):
    world = World(tmp_path)
    world.overrides = {"loss_gap:s-s95": (0.01, 0.1)}
    row = world.write().verdicts()["C1"]
    assert row["verdict"] == "inconclusive"
    assert row["component"] == "the loss gap of cell s-s95"
    assert "3 of 4 parts hold" in row["reason"]


def test_one_clear_failure_contradicts_but_not_one_that_many_parts_explain(tmp_path):
    world = World(tmp_path)
    # Just outside of its own interval: among four parts that happens too often to count.
    world.overrides = {"loss_gap:s-s95": (-0.11, 0.10)}
    assert world.write().verdicts()["C1"]["verdict"] == "inconclusive"
    world.overrides = {"loss_gap:s-s95": (-0.2, 0.10)}
    row = world.write().verdicts()["C1"]
    assert row["verdict"] == "contradicted"
    assert row["component"] == "the loss gap of cell s-s95"


def test_more_wins_than_not_but_fewer_than_in_the_paper_is_inconclusive(tmp_path):
    world = World(tmp_path)
    world.overrides = {"wins:completion": (0.7, 0.1), "wins:core": (0.7, 0.1)}
    found = world.write().verdicts()
    assert found["C8"]["verdict"] == "inconclusive"
    assert "less often than in the paper (100%)" in found["C8"]["reason"]
    # The paper's own share on Core is 86%, which is outside of 60 to 80%.
    assert found["C9"]["verdict"] == "inconclusive"
    world.overrides = {"wins:core": (0.8, 0.1)}
    assert world.write().verdicts()["C9"]["verdict"] == "reproduced"


@pytest.mark.parametrize(
    ("pair", "verdict"),
    [((1.0, 0.05), "reproduced"), ((1.0, 0.07), "inconclusive"), ((0.8, 0.05), "contradicted")],
)
def test_equal_tpp_is_an_equivalence_test(tmp_path, pair, verdict):
    world = World(tmp_path)
    world.tpp = {"tpp_ratio:85": pair}
    assert world.write().verdicts()["C7"]["verdict"] == verdict


def test_a_suite_without_mmlu_says_so(tmp_path):
    world = World(tmp_path)
    del world.contrasts["wins:mmlu"]
    world.notes = [{"analysis": "wins:mmlu", "ok": False, "reason": "the suite has no mmlu score"}]
    row = world.write().verdicts()["C10"]
    assert row["verdict"] == "not measured"
    assert row["reason"] == "Not measured: the suite has no mmlu score."


def test_two_of_three_benchmarks_cannot_reproduce_a_claim_about_three(tmp_path):
    world = World(tmp_path)
    world.contrasts = {name: floor for name, floor in world.contrasts.items() if "residual:mmlu" not in name}
    row = world.write().verdicts()["C11"]
    assert row["verdict"] == "inconclusive"
    assert row["reason"].endswith("would be called reproduced, but mmlu is not measured.")
    world.overrides = {"residual:core:xs": (-0.3, 0.1)}
    assert world.write().verdicts()["C11"]["verdict"] == "contradicted"


def test_a_missing_family_of_length_contrasts_is_not_measured(tmp_path):
    world = World(tmp_path)
    del world.contrasts["length_margin:experts"]
    assert world.write().verdicts()["C13"]["verdict"] == "not measured"


def test_a_head_that_does_not_matter_is_no_dyck_head(tmp_path):
    world = World(tmp_path)
    world.delta = (0.1, -0.2, 0.4)
    row = world.write().verdicts()["C22"]
    assert row["verdict"] == "inconclusive"
    assert "In no model" in row["reason"]


@pytest.mark.parametrize("value", [0.3, -0.3])
def test_models_without_a_dyck_head_count_against_the_whole_in_both_directions(tmp_path, value):
    world = World(tmp_path, value=value).write()
    folder = tmp_path / "mechanism" / "xs-s85-smelt"
    rows = read_rows(folder / "dyck_heads.parquet")
    write_table(folder, "dyck_heads", [row | {"low": -1.0} for row in rows])
    assert world.verdicts()["C22"]["verdict"] == "inconclusive"


@pytest.mark.parametrize("value", [0.3, -0.3])
def test_models_without_a_reference_leave_the_claim_open_in_both_directions(tmp_path, value):
    world = World(tmp_path, value=value).write()
    for run in ("xs-s85-smelt", "xs-s95-smelt"):
        rows = read_rows(tmp_path / "mechanism" / run / "diagnostics.parquet")
        for row in rows:
            if row["diagnostic"] == "top8_overlap":
                row |= dict.fromkeys(k for k in row if k.startswith(("reference", "difference")))
        write_table(tmp_path / "mechanism" / run, "diagnostics", rows)
    row = world.verdicts()["C20"]
    assert row["verdict"] == "inconclusive"
    assert "only 6 of 8 models" in row["reason"]


def test_a_cell_without_a_pair_keeps_every_cell_open_unless_another_contradicts(tmp_path):
    world = World(tmp_path)
    world.notes = [{"analysis": "loss_gap", "ok": False, "reason": "no pair at the last horizon in m-s85"}]
    row = world.write().verdicts()["C1"]
    assert row["verdict"] == "inconclusive"
    assert "m-s85" in row["reason"]
    world.overrides = {"loss_gap:s-s85": (-0.3, 0.1)}
    assert world.write().verdicts()["C1"]["verdict"] == "contradicted"


def test_a_category_that_could_not_be_fitted_keeps_it_open_which_gains_most(tmp_path):
    world = World(tmp_path)
    world.notes = [{"analysis": "code_margin", "ok": False, "reason": "category:Web lacks endpoints"}]
    row = world.write().verdicts()["C12"]
    assert row["verdict"] == "inconclusive"
    assert "category:Web" in row["reason"]


@pytest.mark.parametrize(
    ("gap", "verdict"), [(0.01, "reproduced"), (-0.01, "reproduced"), (-0.3, "contradicted")]
)
def test_keys_may_be_at_the_input_s_cosine_but_not_below_it(tmp_path, gap, verdict):
    world = World(tmp_path, spread=0.005)
    world.cosines = {"cosine_Q": gap, "cosine_K": gap}
    assert world.write().verdicts()["C19"]["verdict"] == verdict


def test_an_interval_without_width_decides_nothing(tmp_path):
    world = World(tmp_path)
    world.overrides = {"dyck_gap:4": (0.3, 0.0)}
    row = world.write().verdicts()["C15"]
    assert row["verdict"] == "inconclusive"
    assert "no width" in row["reason"]


def test_a_missing_diagnostic_is_not_measured(tmp_path):
    world = World(tmp_path)
    del world.diagnostics["cosine_V"]
    found = world.write().verdicts()
    assert found["C19"]["verdict"] == "not measured"
    assert "cosine_V" in found["C19"]["reason"]
    assert found["C20"]["verdict"] == "reproduced"


def test_the_calibrated_interval_is_used_where_there_is_one(tmp_path):
    world = World(tmp_path).write()
    rows = read_rows(tmp_path / "laws" / "law_contrasts.parquet")
    for row in rows:
        if row["contrast"] == "exponent:a":
            row |= {"low_calibrated": -0.1, "high_calibrated": 0.7}
    write_table(tmp_path / "laws", "law_contrasts", rows)
    found = world.verdicts()["C5"]
    assert found["verdict"] == "inconclusive"
    assert found["low"] == pytest.approx(-0.1)


def test_scope_and_power_name_window_seeds_and_chance(tmp_path):
    row = World(tmp_path).write().verdicts()["C1"]
    assert "4 cells, 2 training seeds, 1.0e12 to 1.0e12 training FLOPs" in row["scope"]
    assert "1.3e19 to 2.2e21" in row["scope"]
    assert "predicts nothing for this study" in row["power"]
    # Intervals of 0.2 nats: a standard error of 0.051 nats, 2.8 of which are needed.
    assert "a gap of 0.1429 nats" in row["power"]


def test_power_inside_the_window_is_the_chance_to_find_the_predicted_gap(tmp_path):
    world = World(tmp_path).write()
    rows = read_rows(tmp_path / "budget" / "power.parquet")
    write_table(tmp_path / "budget", "power", [row | {"in_window": True} for row in rows])
    power = world.verdicts()["C1"]["power"]
    assert "predicts gaps of 0.0040 to 0.0040 nats" in power
    # 0.004 nats against 0.051: hardly more than the one-sided level.
    assert "chance to find the predicted one is 3%" in power


def test_a_vocabulary_for_which_the_law_says_nothing_has_no_power_analysis(tmp_path):
    world = World(tmp_path).write()
    rows = read_rows(tmp_path / "budget" / "power.parquet")
    rows = [row | {"in_window": True, "gap_predicted": None} for row in rows]
    write_table(tmp_path / "budget", "power", rows)
    assert "predicts nothing for this study" in world.verdicts()["C1"]["power"]


def test_the_command_writes_the_declared_table_and_refuses_damage(tmp_path):
    World(tmp_path).write()
    path = write_claims(load_study(STUDY), tmp_path, tmp_path / "claims")
    assert len(read_rows(path)) == 22
    (tmp_path / "laws" / "law_contrasts.parquet").write_bytes(b"broken")
    with pytest.raises(SmeltError, match="law_contrasts.parquet is damaged"):
        write_claims(load_study(STUDY), tmp_path, tmp_path / "claims")
