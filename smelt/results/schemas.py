"""The result tables: columns, types and keys. A stage's file `<table>.parquet` holds rows of `<table>`.

Types: s text, i 64-bit integer, f 64-bit float, b boolean. A trailing `?` allows NULL.
"""

from __future__ import annotations

from dataclasses import dataclass

_TABLES = {
    # budget
    "runs": (
        "run:s | cell:s scale:s sparsity:i arch:s grouping:s seed:i baseline:s? spec_hash:s hidden:i "
        "layers:i effective_layers:i loop_start:i loop_length:i loop_count:i loop_order:s heads:i kv_heads:i "
        "head_dim:i experts:i top_k:i expert_dim:i params_total:i params_active:i params_attention:i "
        "params_experts:i params_router:i params_norms:i flops_per_token:f kv_bytes_per_token:i "
        "sparsity_measured:f sparsity_own_control:f? lr:f tokens_planned:i"
    ),
    "pairs": "run:s | cell:s baseline:s flops_ratio:f params_ratio:f kv_ratio:f source:s",
    "ablation_points": "ablation:s sparsity:i arch:s value:i | run:s",
    "power": "cell:s horizon:i | flops:f tokens:f gap_predicted:f? in_window:b",
    "published_configs": (
        "scale:s sparsity:i arch:s quantity:s | printed:f? ours:f? difference:f? matches:b? solver:f?"
    ),
    # corpus
    "corpus_sources": (
        "source:s | category:s licence:s documents:i train_tokens:i validation_tokens:i bytes:i "
        "bytes_per_token:f repeated_8grams:f sha256:s"
    ),
    # from the corpus's index of documents; a bucket is named by its bound in tokens, the last one has none
    "corpus_lengths": "source:s split:s length_bucket:i | category:s documents:i tokens:i",
    # train
    "train_log": (
        "run:s phase:s horizon:i step:i | tokens:i flops:f loss:f lr:f grad_norm:f balance_loss:f "
        "load_min:f load_max:f tokens_per_s:f mfu:f?"
    ),
    "throughput": "run:s phase:s | tokens_per_s:f mfu:f? peak_flops:f? device:s seconds:f",
    # evaluate
    "endpoints": (
        "run:s horizon:i | tokens:i flops:f val_loss:f suite:s core:f? completion:f? mmlu:f? "
        "baseline_version:s?"
    ),
    "validation": ("run:s horizon:i source:s category:s length_bucket:i | tokens:i loss_sum:f documents:i"),
    "task_scores": "run:s horizon:i task:s shots:i seed:i metric:s | category:s value:f n:i chance:f?",
    "items": (
        "run:s horizon:i task:s shots:i seed:i item:i option:i | part:s gold:b nll:f tokens:i bytes:i "
        "greedy:b truncated:b"
    ),
    # laws
    # SQL knows no upper and lower case: beside A the exponents a, b, c need longer names
    "law_fits": (
        "arch:s subset:s | E:f? A:f? K:f? exp_a:f? exp_b:f? exp_c:f? rmse:f? n:i condition:f? converged:b "
        "note:s"
    ),
    "law_draws": "arch:s draw:i | E:f A:f K:f exp_a:f exp_b:f exp_c:f degenerate:b",
    # low and high: 95% percentile interval of the cell bootstrap; the calibrated one covers 95% in simulation
    "ce_gain": (
        "budget:f sparsity:i subset:s | gain:f low:f? high:f? low_calibrated:f? high_calibrated:f? "
        "extrapolated:b note:s"
    ),
    "tpp": ("sparsity:i arch:s | budget:f tpp:f low:f? high:f? low_calibrated:f? high_calibrated:f? note:s"),
    "calibration": "metric:s | b:f a:f alpha:f tau:f direction:i r2:f n:i note:s",
    "residuals": "run:s horizon:i metric:s | residual:f",
    # one row a compared quantity, named `analysis` or `analysis:part`
    # `freedom` are the degrees of freedom of a t interval, `basis` says what the interval covers, `note` why
    # the number should not be believed
    "law_contrasts": (
        "contrast:s | value:f? low:f? high:f? low_calibrated:f? high_calibrated:f? freedom:i? unit:s n:i "
        "basis:s note:s"
    ),
    "law_notes": "analysis:s | ok:b reason:s",
    # Baseline minus SMELT in nats, mean over the cells of a subset (`all`, `scale:<scale>`)
    "gap_curves": ("subset:s horizon:i | tokens:f gap:f low:f? high:f? freedom:i? cells:i seeds:i basis:s"),
    # last change of sign of that gap, in tokens, NULL without one; low to high is where zero is not excluded
    "crossovers": (
        "subset:s | tokens:f? low:f? high:f? window_low:f window_high:f changes:i ahead_first:b ahead_last:b "
        "cells:i seeds:i basis:s"
    ),
    "law_profiles": "arch:s exponent:s value:f | objective:f statistic:f inside:b",
    # simulations: share of 95% bootstrap intervals that hold the truth, and how far to stretch their arms
    "law_coverage": (
        "design:s noise:s quantity:s | truth:f median:f bias:f spread:f coverage:f factor:f positive:f "
        "repeats:i draws:i"
    ),
    "law_signs": "exponent:s noise:s | printed:f spread:f right:f p_value:f repeats:i",
    # tables 3 to 5; standard errors over training seeds and over evaluation seeds, NULL with one of them
    "ablation_results": (
        "ablation:s sparsity:i arch:s value:i | run:s effective_layers:i seeds:i val_loss:f "
        "val_loss_se_training:f? core:f? core_se_training:f? core_se_evaluation:f? completion:f? "
        "completion_se_training:f?"
    ),
    # figure 11: `normalised` has mean 1 within a contrast, low and high are its interval
    "length_profile": (
        "family:s bucket:i | improvement:f normalised:f? low:f? high:f? contrasts:i excluded:i"
    ),
    "shot_curves": "arch:s task:s shots:i | accuracy:f low:f? high:f? seeds:i cells:i",
    "shot_tests": ("task:s | shots:i gain:f p_value:f p_holm:f smallest_p:f seeds:i significant:b"),
    # mechanism: layers are 0-based physical layers; visits are 0-based, later ones are compared with visit 0;
    # low and high are the 2.5% and 97.5% points of a bootstrap over documents
    "diagnostics": (
        "run:s diagnostic:s | value:f low:f? high:f? reference:f? reference_low:f? reference_high:f? "
        "difference:f? difference_low:f? difference_high:f?"
    ),
    "routing_overlap": (
        "run:s layer:i visit:i shared:i | fraction:f low:f? high:f? chance:f chance_mean:f chance_low:i "
        "chance_high:i"
    ),
    "residual_flow": (
        "run:s layer:i visit:i component:s | rms:f low:f? high:f? relative:f relative_low:f? relative_high:f?"
    ),
    "norm_ratios": "run:s layer:i visit:i component:s | ratio:f low:f? high:f?",
    "update_cosine": ("run:s i:i j:i | layer_i:i visit_i:i layer_j:i visit_j:i cosine:f low:f? high:f?"),
    "visit_cosine": "run:s layer:i visit:i stage:s | cosine:f low:f? high:f?",
    "token_overlap": (
        "run:s layer:i visit:i head:i kind:s | value:f low:f? high:f? control:f? control_low:f? "
        "control_high:f? chance:f?"
    ),
    "sink": "run:s layer:i visit:i head:i | mass:f low:f? high:f?",
    "dyck_heads": (
        "run:s layer:i head:i | delta:f low:f? high:f? delta_choice:f delta_choice_low:f? "
        "delta_choice_high:f? perplexity:f perplexity_low:f? perplexity_high:f? selected:b"
    ),
    # `mass` is that of one prompt; `part` numbers the runs of one role, whose mass is a mean over prompts
    "dyck_map": (
        "run:s visit:i target:i position:i | mass:f token:s role:s layer:i head:i part:i part_mass:f "
        "part_low:f? part_high:f? change:f? change_low:f? change_high:f?"
    ),
    "dyck_mass": "run:s visit:i role:s | mass:f low:f? high:f?",
    "interventions": (
        "run:s intervention:s category:s | rise:f low:f? high:f? loss:f loss_low:f? loss_high:f? tokens:i"
    ),
    # report and results
    # value, low and high are those of `component`, the part of the claim that is hardest to establish
    "claims": (
        "claim:s | number:i statement:s paper_value:s value:f? low:f? high:f? unit:s component:s basis:s "
        "verdict:s reason:s rule:s scope:s power:s"
    ),
    "provenance": "key:s | value:s",
    # from Snakemake's benchmark records; `job` is a run, or `all` where a stage has one job
    "stage_costs": "stage:s job:s | seconds:f cores:i devices:i",
}

SQL_TYPES = {"s": "VARCHAR", "i": "BIGINT", "f": "DOUBLE", "b": "BOOLEAN"}


@dataclass(frozen=True)
class Column:
    """One column: `kind` is a key of `SQL_TYPES`."""

    name: str
    kind: str
    nullable: bool


@dataclass(frozen=True)
class Table:
    """One result table; its first `keys` columns identify a row."""

    name: str
    columns: tuple[Column, ...]
    keys: int

    @property
    def key_names(self) -> tuple[str, ...]:
        """Names of the key columns."""
        return tuple(column.name for column in self.columns[: self.keys])


def _column(text: str) -> Column:
    name, kind = text.split(":")
    return Column(name, kind[0], kind.endswith("?"))


def _table(name: str, text: str) -> Table:
    keys, others = (part.split() for part in text.split("|"))
    return Table(name, tuple(_column(part) for part in keys + others), len(keys))


TABLES = {name: _table(name, text) for name, text in _TABLES.items()}
