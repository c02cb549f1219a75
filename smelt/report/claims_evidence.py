"""The stage tables as the claims see them."""

from __future__ import annotations

import functools
from pathlib import Path
from typing import Any

from smelt.report.claims_rules import Component, Unmeasured
from smelt.results.parquet import read_rows
from smelt.study import Study

Row = dict[str, Any]


class Evidence:
    """Lazily read tables of one study; a missing table is `Unmeasured`, a damaged one an error."""

    def __init__(self, study: Study, results: Path | str) -> None:
        self.study, self.results = study, Path(results)

    @functools.cached_property
    def runs(self) -> dict[str, Row]:
        """Rows of `runs` by run."""
        return {row["run"]: row for row in self._rows("budget", "runs")}

    @functools.cached_property
    def contrasts(self) -> dict[str, Row]:
        """Rows of `law_contrasts` by name."""
        return {row["contrast"]: row for row in self._rows("laws", "law_contrasts")}

    @functools.cached_property
    def notes(self) -> dict[str, Row]:
        """Rows of `law_notes` by analysis."""
        return {row["analysis"]: row for row in self._rows("laws", "law_notes")}

    def laws(self, table: str) -> list[Row]:
        """Return a table of the laws stage."""
        return self._rows("laws", table)

    def budget(self, table: str) -> list[Row]:
        """Return a table of the budget stage."""
        return self._rows("budget", table)

    def mechanism(self, table: str, run: str) -> list[Row]:
        """Return a table of the mechanism stage for one run."""
        return self._rows(f"mechanism/{run}", table)

    def evaluated(self, run: str) -> bool:
        """Return whether a run has been evaluated."""
        return (self.results / "evaluate" / run / "endpoints.parquet").exists()

    def endpoints(self, run: str) -> list[Row]:
        """Return the endpoints of one run."""
        return self._rows(f"evaluate/{run}", "endpoints")

    def _rows(self, folder: str, table: str) -> list[Row]:
        path = self.results / folder / f"{table}.parquet"
        if not path.exists():
            raise Unmeasured(f"{folder}/{table}.parquet has not been written")
        return read_rows(path)

    def grid(self, arch: str) -> list[Row]:
        """Return the grid's runs of one architecture in the study's order."""
        order = list(self.study.scales)
        rows = [row for row in self.runs.values() if row["grouping"] == "grid" and row["arch"] == arch]
        return sorted(rows, key=lambda row: (order.index(row["scale"]), row["sparsity"], row["seed"]))

    def contrast_components(self, prefix: str, label: str, **options: Any) -> list[Component]:
        """Return the contrasts whose name is `prefix` or starts with `prefix:` as components.

        `label` is formatted with the rest of the name, split at its colons.

        Raises:
            Unmeasured: there is none; the reason is the note of that analysis where it left one.
        """
        names = [name for name in self.contrasts if name == prefix or name.startswith(prefix + ":")]
        if not names:
            raise Unmeasured(self.reason(prefix))
        parts = []
        for name in names:
            rest = name[len(prefix) + 1 :]
            row = self.contrasts[name]
            if row["value"] is None:
                raise Unmeasured(row["note"])
            parts.append(component(label.format(*rest.split(":")), row, "value", **options))
        return parts

    def reason(self, analysis: str) -> str:
        """Return why an analysis has no numbers."""
        for name in (analysis, analysis.split(":")[0]):
            note = self.notes.get(name)
            if note and not note["ok"]:
                return note["reason"]
        return f"the study has no data for {analysis}"

    def incomplete(self, analysis: str) -> str:
        """Return what an analysis could not cover, or an empty string."""
        note = self.notes.get(analysis)
        return note["reason"] if note and not note["ok"] else ""

    def diagnostic(self, name: str, runs: list[Row]) -> list[tuple[Row, Row]]:
        """Return (run, diagnostic row) of the runs; every run must have it.

        Raises:
            Unmeasured: a run lacks the diagnostic.
        """
        found = []
        for run in runs:
            rows = [row for row in self.mechanism("diagnostics", run["run"]) if row["diagnostic"] == name]
            if not rows:
                raise Unmeasured(f"run {run['run']} has no diagnostic {name}")
            found.append((run, rows[0]))
        return found


def component(label: str, row: Row, column: str, threshold: float = 0.0, sign: int = 1) -> Component:
    """Return a component from a row of the laws stage, with its calibrated interval where it has one."""
    low, high = row["low"], row["high"]
    if row["low_calibrated"] is not None:
        low, high = row["low_calibrated"], row["high_calibrated"]
    basis = row.get("basis", "cell bootstrap")
    if row["low_calibrated"] is not None:
        basis += ", stretched to cover 95% in simulation"
    freedom = row.get("freedom")
    return Component(label, row[column], low, high, threshold, sign, row["note"], basis, freedom)


MODEL_BASIS = "bootstrap over documents of one trained model"


def difference_component(label: str, row: Row, sign: int = 1, threshold: float = 0.0) -> Component:
    """Return a component for the difference of a diagnostic from its reference in one trained model."""
    ends = (row["difference_low"], row["difference_high"])
    return Component(label, row["difference"], *ends, threshold, sign, basis=MODEL_BASIS)


def value_component(label: str, row: Row) -> Component:
    """Return a component for a diagnostic itself in one trained model, which must be positive."""
    return Component(label, row["value"], row["low"], row["high"], basis=MODEL_BASIS)
