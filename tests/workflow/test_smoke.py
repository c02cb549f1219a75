"""What the finished smoke study holds: tables, provenance, notebooks, pages."""

import json
from html.parser import HTMLParser
from urllib.parse import unquote, urlsplit

import duckdb
import nbformat
import pytest

from smelt.budget import resolve_run
from smelt.results.schemas import TABLES
from smelt.study import load_study, run_points

pytestmark = pytest.mark.workflow
STUDY = load_study("smoke")
RUNS = run_points(STUDY)


@pytest.fixture(scope="module")
def results(smoke):
    return smoke.folder / "results" / "smoke"


@pytest.fixture(scope="module")
def database(results):
    with duckdb.connect(str(results / "results.duckdb"), read_only=True) as connection:
        yield connection


def rows(database, sql):
    return database.execute(sql).fetchall()


def test_every_declared_table_exists_with_its_columns(database):
    for name, table in TABLES.items():
        columns = [row[0] for row in rows(database, f"DESCRIBE {name}")]
        assert columns == [column.name for column in table.columns], name


@pytest.mark.parametrize(
    "table",
    [
        "runs pairs ablation_points corpus_sources train_log throughput endpoints validation task_scores",
        "routing_overlap residual_flow update_cosine visit_cosine token_overlap sink claims provenance power",
    ],
)
def test_measured_tables_are_not_empty(database, table):
    for name in table.split():
        assert rows(database, f"SELECT count(*) FROM {name}")[0][0] > 0, name


def test_every_row_traces_to_a_specification(database):
    hashes = dict(rows(database, "SELECT run, spec_hash FROM runs"))
    assert hashes == {run: resolve_run(STUDY, run).spec_hash for run in RUNS}
    for name, table in TABLES.items():
        if "run" in table.key_names:
            orphans = rows(
                database, f"SELECT DISTINCT run FROM {name} WHERE run NOT IN (SELECT run FROM runs)"
            )
            assert orphans == [], name


def test_every_run_has_every_endpoint(database):
    expected = {(run, horizon) for run in RUNS for horizon in STUDY.training.horizons}
    assert set(rows(database, "SELECT run, horizon FROM endpoints")) == expected


def test_endpoint_tokens_are_trunk_plus_branch(database):
    per_step = STUDY.training.batch * STUDY.corpus.context
    for horizon, tokens in rows(database, "SELECT DISTINCT horizon, tokens FROM endpoints"):
        assert tokens == (horizon + STUDY.training.decay_steps) * per_step


def test_training_learns(database):
    """Every trunk ends at a lower loss than it began with."""
    for run, first, last in rows(
        database,
        "SELECT run, arg_min(loss, step), arg_max(loss, step)"
        " FROM train_log WHERE phase = 'trunk' GROUP BY run",
    ):
        assert last < first, run


def test_validation_loss_is_the_mean_over_sources(database):
    wrong = rows(
        database,
        """
        WITH sources AS (SELECT run, horizon, source, sum(loss_sum) / sum(tokens) AS loss
                         FROM validation GROUP BY ALL)
        SELECT e.run, e.horizon, e.val_loss, avg(s.loss) FROM endpoints e JOIN sources s USING (run, horizon)
        GROUP BY ALL HAVING abs(e.val_loss - avg(s.loss)) > 1e-9
        """,
    )
    assert wrong == []


def test_five_categories_are_validated(database):
    assert rows(database, "SELECT count(DISTINCT category) FROM validation") == [(5,)]


def test_budgets_are_matched(database):
    """As close as the plan of these sizes says; the solver alone would let 10% pass."""
    for budget, bound in (("flops", 0.02), ("params", 0.02), ("kv", 0.035)):
        pairs = rows(database, f"SELECT run, {budget}_ratio FROM pairs")
        assert len(pairs) == len([point for point in RUNS.values() if point.baseline])
        assert [pair for pair in pairs if abs(pair[1] - 1) > bound] == [], budget


def test_provenance_names_what_a_referee_asks_for(database):
    keys = " ".join(key for (key,) in rows(database, "SELECT key FROM provenance")).lower()
    for word in ("python", "torch", "corpus", "seed", "processor", "spec"):
        assert word in keys, word


def test_claims_all_have_a_verdict(database):
    found = rows(database, "SELECT claim, verdict FROM claims")
    assert {claim for claim, _ in found} == {f"C{number}" for number in range(1, 23)}
    assert {verdict for _, verdict in found} <= {"reproduced", "contradicted", "inconclusive", "not measured"}


def test_notebooks_ran_to_the_end(results, smoke):
    sources = sorted((smoke.folder / "notebooks").glob("*.ipynb"))
    assert len(sources) == 9
    for source in sources:
        notebook = nbformat.read(results / "notebooks" / source.name, as_version=4)
        cells = [cell for cell in notebook.cells if cell.cell_type == "code" and cell.source.strip()]
        assert cells and all(cell.execution_count for cell in cells), source.name


class Links(HTMLParser):
    def __init__(self):
        super().__init__()
        self.targets, self.anchors, self.images_without_alt = [], set(), 0

    def handle_starttag(self, tag, attrs):
        values = dict(attrs)
        self.targets += [values[name] for name in ("href", "src") if values.get(name)]
        self.anchors |= {values[name] for name in ("id", "name") if values.get(name)}
        self.images_without_alt += tag == "img" and not values.get("alt")


def test_every_link_and_image_of_the_site_works(results):
    pages = {path: Links() for path in (results / "report").rglob("*.html")}
    for path, page in pages.items():
        page.feed(path.read_text(encoding="utf-8"))
    assert results / "report" / "index.html" in pages
    for path, page in pages.items():
        assert page.images_without_alt == 0, path
        for target in page.targets:
            parts = urlsplit(target)
            if parts.scheme in ("data", "https", "mailto"):
                continue
            assert not parts.scheme, f"{path}: {target[:80]}"
            file = (path.parent / unquote(parts.path)).resolve() if parts.path else path
            assert file.exists(), f"{path}: {target}"
            if parts.fragment and file in pages:
                assert parts.fragment in pages[file].anchors, f"{path}: {target}"


def test_manifests_hold_no_clock(results):
    for path in results.glob("runs/*/manifest.json"):
        assert not {"time", "date", "created"} & set(json.loads(path.read_text())), path


@pytest.mark.parametrize(
    "stage", ["budget", "laws", "claims", "mechanism/s-s85-smelt", "evaluate/s-s85-smelt"]
)
def test_the_workflow_knows_every_table_that_a_stage_writes(results, smoke, stage):
    """What a rule does not list as an output is not made again when it is deleted."""
    known = smoke.listed_outputs()
    written = {f"results/smoke/{stage}/{path.name}" for path in (results / stage).glob("*.parquet")}
    assert written and written <= known
