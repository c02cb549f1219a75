"""The database as the figures see it, read-only."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import duckdb
import pandas as pd

from smelt.errors import SmeltError
from smelt.results.schemas import TABLES
from smelt.study import Study

# What a table holds and which stage measures it, for the sentence that stands in for a figure.
_WRITTEN_BY = {
    "runs": ("sizes of the runs", "budget tables"),
    "pairs": ("matched pairs", "budget tables"),
    "ablation_points": ("ablations", "budget tables"),
    "power": ("power analysis", "budget tables"),
    "published_configs": ("published configurations", "budget tables"),
    "corpus_sources": ("text sources", "corpus build"),
    "corpus_lengths": ("lengths of documents", "corpus build"),
    "train_log": ("training log", "train"),
    "throughput": ("training speed", "train"),
    "endpoints": ("validation loss of the endpoints", "evaluate run"),
    "validation": ("loss by source and length", "evaluate run"),
    "task_scores": ("task scores", "evaluate run"),
    "law_fits": ("fitted law", "laws"),
    "law_draws": ("bootstrap draws of the law", "laws"),
    "ce_gain": ("compute-efficiency gain", "laws"),
    "tpp": ("tokens per parameter", "laws"),
    "calibration": ("calibration of benchmarks on loss", "laws"),
    "residuals": ("residuals at equal loss", "laws"),
    "law_contrasts": ("contrasts", "laws"),
    "gap_curves": ("pairs of endpoints", "laws"),
    "crossovers": ("crossover", "laws"),
    "law_signs": ("simulated signs", "laws"),
    "law_coverage": ("coverage of the intervals", "laws"),
    "ablation_results": ("measured ablations", "laws"),
    "length_profile": ("loss improvement by document length", "laws"),
    "shot_curves": ("accuracy by number of demonstrations", "laws"),
    "claims": ("verdicts on the claims", "report claims"),
}
# Pairs of endpoints on the same tokens; `gap` is SMELT's validation loss minus its Baseline's in nats.
PAIRS = """
    WITH pairs AS (
      SELECT s.cell, s.scale, s.sparsity, a.horizon, a.tokens, a.flops, a.val_loss - b.val_loss AS gap
      FROM endpoints a JOIN runs s USING (run)
      JOIN endpoints b ON b.run = s.baseline AND b.horizon = a.horizon
      WHERE s.grouping = 'grid' AND s.arch = 'smelt')
"""


class NotMeasured(Exception):
    """What a figure shows was not measured; the message says what and why, in one sentence."""


class Data:
    """A study with its database.

    Attributes:
        study: the study.
        scales: its scales, smallest first, in the study's order.
        sparsities: its sparsities in percent, ascending.
        lowest_sparse: the lowest of them above 0, the paper's S = 85%.
    """

    def __init__(self, study: Study, path: Path) -> None:
        if not Path(path).is_file():
            raise SmeltError(f"{path} does not exist; `python -m smelt.results build` writes it")
        try:
            self._connection = duckdb.connect(str(path), read_only=True)
            self.counts = {name: self._count(name) for name in TABLES}
        except duckdb.Error as error:
            first = str(error).splitlines()[0]
            raise SmeltError(f"{path} is not a database of this version ({first}); build it again") from None
        self.study = study
        self.scales = list(study.scales)
        self.sparsities = sorted(study.sparsities)
        self.lowest_sparse = next((s for s in self.sparsities if s), self.sparsities[0])
        self._check_study(path)

    def _check_study(self, path: Path) -> None:
        named = self.frame("SELECT value FROM provenance WHERE key = 'study'")["value"].tolist()
        if named != [self.study.name]:
            raise SmeltError(
                f"{path} belongs to study {', '.join(named) or 'unknown'}, not to {self.study.name}"
            )

    def _count(self, table: str) -> int:
        return self._connection.execute(f'SELECT count(*) FROM "{table}"').fetchone()[0]

    def close(self) -> None:
        """Close the database."""
        self._connection.close()

    def frame(self, sql: str, *parameters: Any) -> pd.DataFrame:
        """Return the rows of a query; `?` in `sql` are bound to `parameters`."""
        return self._connection.execute(sql, parameters).df()

    def need(self, *tables: str) -> None:
        """Raise NotMeasured where one of `tables` is empty."""
        for table in tables:
            if not self.counts[table]:
                what, stage = _WRITTEN_BY.get(table, (table.replace("_", " "), "mechanism"))
                because = self._law_problem() if stage == "laws" else ""
                because = because or f"`python -m smelt.{stage}` has not been run or had nothing to measure"
                raise NotMeasured(f"Not measured: study {self.study.name} has no {what}, because {because}.")

    def _law_problem(self) -> str:
        """Return why no law of the study can be believed, or an empty string."""
        return self.unsound("surface").get("surface", "")

    def law_doubt(self) -> str:
        """Return a sentence on why the ledger trusts no number of the fitted law, or an empty string."""
        reason = self._law_problem()
        return f"Doubtful: {reason}, so no claim is decided by numbers of the fitted law." if reason else ""

    def interval_note(self, contrast: str, what: str) -> str:
        """Return a sentence with half of the widest 95% interval, in nats, of contrasts like `contrast:`."""
        half = self.frame(
            "SELECT max(high - low) / 2 AS half FROM law_contrasts WHERE starts_with(contrast, ? || ':')",
            contrast,
        )["half"].iloc[0]
        return f"The ledger's 95% interval of {what} is ±{half:.2f} nats." if half == half else ""

    def unsound(self, pattern: str) -> dict[str, str]:
        """Return the reasons of the analyses like `pattern` (SQL) that left a note against themselves."""
        found = self.frame(
            "SELECT analysis, reason FROM law_notes WHERE analysis LIKE ? AND NOT ok ORDER BY analysis",
            pattern,
        )
        return dict(zip(found["analysis"], found["reason"], strict=True))

    def rows(self, what: str, sql: str, *parameters: Any) -> pd.DataFrame:
        """Return the rows of a query; raise NotMeasured where there are none, calling them `what`."""
        frame = self.frame(sql, *parameters)
        if frame.empty:
            raise NotMeasured(f"Not measured: the study {self.study.name} has no {what}.")
        return frame

    def endpoints(self) -> pd.DataFrame:
        """Return the grid's endpoints with the sizes of their runs, in the study's order."""
        self.need("endpoints")
        frame = self.rows(
            "endpoints of grid runs",
            """
            SELECT r.cell, r.scale, r.sparsity, r.arch, r.seed, e.*
              FROM endpoints e JOIN runs r USING (run)
              WHERE r.grouping = 'grid' ORDER BY r.sparsity, r.arch, r.seed, e.tokens, r.run
            """,
        )
        return self.ordered(frame)

    def ordered(self, frame: pd.DataFrame) -> pd.DataFrame:
        """Return `frame` with its scales in the study's order, otherwise as it was."""
        order = {scale: i for i, scale in enumerate(self.scales)}
        return frame.sort_values("scale", key=lambda column: column.map(order), kind="stable")
