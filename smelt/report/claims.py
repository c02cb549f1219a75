"""The ledger: each claim of the paper (section 10), our estimate, a verdict by a fixed rule, the reason."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from smelt.report import claims_downstream as downstream
from smelt.report import claims_mechanism as mechanism
from smelt.report import claims_scaling as scaling
from smelt.report.claims_evidence import Evidence
from smelt.report.claims_power import power_sentence, scope_sentence
from smelt.report.claims_rules import MODELS_RULE, Finding, Unmeasured, not_measured
from smelt.results.parquet import write_table
from smelt.study import Study


@dataclass(frozen=True)
class Claim:
    """One claim; `test` applies its rule, whose docstring is printed as the rule."""

    claim: str
    statement: str
    paper_value: str
    unit: str
    test: Callable[[Evidence], Finding]


CLAIMS = (
    Claim(
        "C1",
        "SMELT has the lower validation loss in every cell",
        "16 of 16 cells",
        "nats",
        scaling.lower_loss,
    ),
    Claim(
        "C2",
        "The loss is lowest when half of the layers are looped",
        "best at 50% for S=85% and 95%",
        "nats",
        scaling.best_span,
    ),
    Claim(
        "C3",
        "The looped optimum lies at a larger effective depth than the Baseline's",
        "18 against 12 layers",
        "layers",
        scaling.deeper_optimum,
    ),
    Claim("C4", "Two visits are best", "1.9257 against 1.9385 and 1.9360 nats", "nats", scaling.two_visits),
    Claim(
        "C5",
        "SMELT's exponents a and c are larger",
        "a 0.3892 > 0.3703, c 0.7011 > 0.6594",
        "exponent",
        scaling.larger_exponents,
    ),
    Claim(
        "C6",
        "SMELT saves compute, and more of it at larger budgets",
        "6.8-10.0% at 1e20, 14.7-18.0% at 1e21 FLOPs",
        "fraction",
        scaling.compute_gain,
    ),
    Claim(
        "C7",
        "The optimal tokens per parameter of both are within 6%",
        "ratio 0.95-1.00",
        "ratio",
        scaling.equal_tpp,
    ),
    Claim(
        "C8",
        "SMELT has the lower Completion loss at every endpoint",
        "96 of 96",
        "share of endpoints",
        downstream.completion_wins,
    ),
    Claim(
        "C9",
        "SMELT has the higher Core score at most endpoints",
        "83 of 96",
        "share of endpoints",
        downstream.core_wins,
    ),
    Claim(
        "C10",
        "SMELT has the higher MMLU score where the Baseline is 10 points above chance",
        "29 of 30",
        "share of endpoints",
        downstream.mmlu_wins,
    ),
    Claim(
        "C11",
        "At equal loss SMELT is better on all three benchmarks at every scale",
        "all mean residuals positive",
        "in the benchmark's own unit",
        downstream.better_at_equal_loss,
    ),
    Claim("C12", "Code gains most", "20.4% against 14.8-16.8%", "fraction", downstream.code_gains_most),
    Claim(
        "C13",
        "Looping gains more on long documents, unlike more experts or parameters",
        "long/short 1.52 against 0.88 and 0.98",
        "ratio",
        downstream.longer_gains_more,
    ),
    Claim(
        "C14",
        "The accuracy gap grows with demonstrations",
        "0.9 to 1.9 points",
        "accuracy",
        downstream.in_context_gap,
    ),
    Claim(
        "C15",
        "SMELT is better on Dyck languages with many demonstrations",
        "29.8 against 26.4% at k=32",
        "accuracy",
        downstream.dyck_gap,
    ),
    Claim(
        "C16",
        "Both visits share more experts than chance at every sparsity",
        "2 to 8 of 8 shared",
        "share of models",
        mechanism.experts_reused,
    ),
    Claim(
        "C17",
        "Second-visit updates, writes and norm outputs are larger in every cell",
        "1.2 to 3.5 in 16 of 16",
        "share of models",
        mechanism.writes_grow,
    ),
    Claim(
        "C18",
        "A layer's two updates are alike, more than those of other pairs",
        "0.56 against 0.16",
        "cosine",
        mechanism.updates_align,
    ),
    Claim(
        "C19",
        "Queries and keys stay as alike as the input, values change more",
        "Q, K 0.89-0.93, X 0.84-0.93, V 0.65-0.74",
        "cosine",
        mechanism.keys_stay,
    ),
    Claim(
        "C20",
        "Both visits attend to the same tokens more than another head does",
        "56-66% against 28-34%",
        "share of tokens",
        mechanism.tokens_shared,
    ),
    Claim(
        "C21",
        "The attention sink is lower on the second visit and grows with depth in the Baseline",
        "as stated",
        "share of attention",
        mechanism.sink_recedes,
    ),
    Claim(
        "C22",
        "The Dyck head moves its mass from BOS to the demonstration answers",
        "BOS 0.60 to 0.02, answers 0.24 to 0.85",
        "share of attention",
        mechanism.dyck_head_moves,
    ),
)


def ledger(study: Study, results_dir: Path | str) -> list[dict[str, Any]]:
    """Return the rows of `claims`, one for each of C1 to C22."""
    evidence = Evidence(study, results_dir)
    scope = scope_sentence(evidence)
    rows = []
    for number, claim in enumerate(CLAIMS, start=1):
        try:
            finding = claim.test(evidence)
        except Unmeasured as reason:
            finding = not_measured(f"Not measured: {reason}.")
        part = finding.component
        # A number that is not identified is not printed.
        printed = part if part and not part.doubt else None
        rows.append(
            {
                "claim": claim.claim,
                "number": number,
                "statement": claim.statement,
                "paper_value": claim.paper_value,
                "value": printed.value if printed else None,
                "low": printed.low if printed else None,
                "high": printed.high if printed else None,
                "unit": claim.unit,
                "component": part.label if part else "",
                "basis": part.basis if part else "",
                "verdict": finding.verdict,
                "reason": finding.reason,
                "rule": _rule(claim),
                "scope": scope,
                "power": power_sentence(evidence, claim.claim),
            }
        )
    return rows


def _rule(claim: Claim) -> str:
    """Return the claim's own rule and, where it is about trained models, how their numbers are judged."""
    common = [MODELS_RULE] if claim.test.__module__ == mechanism.__name__ else []
    return " ".join([*claim.test.__doc__.split(), *common])


def write_claims(study: Study, results_dir: Path | str, out_dir: Path | str) -> Path:
    """Test every claim on the stage tables under `results_dir` and write `claims.parquet` to `out_dir`.

    Raises:
        SmeltError: a table exists but is damaged or has another schema.
    """
    return write_table(out_dir, "claims", ledger(study, results_dir))
