"""How the loss improvement is spread over document lengths (figure 11a)."""

from __future__ import annotations

from collections import defaultdict
from dataclasses import dataclass
from typing import Any

import numpy as np

from smelt.corpus import LENGTH_BOUNDS
from smelt.laws.inputs import Results
from smelt.laws.noise import Ends, contrast, t_ends

FAMILIES = ("smelt", "experts", "parameters")
BASIS = "t interval over the contrasts of a family, linearised"
# Fewer contrasts than this give no interval worth printing.
MIN_CONTRASTS = 3


def length_tables(results: Results) -> dict[str, list[dict[str, Any]]]:
    """Return `length_profile` and the contrasts `length_ratio:<family>` and `length_margin:<family>`.

    A contrast is a pair of runs at the last horizon: SMELT against its Baseline, a Baseline against that of
    the next lower sparsity (more experts) or of the next smaller scale (more parameters), averaged over
    training seeds. The profile is the mean of contrasts that are each divided by their mean over the buckets;
    contrasts that improve nothing on average have no profile and are counted. The ratio compares the mean
    improvement in the upper half of the buckets with that in the lower half, summed over all contrasts of the
    family before dividing.
    """
    losses = _bucket_losses(results)
    families = {name: _improvements(losses, pairs) for name, pairs in _contrasts(results).items()}
    buckets = _common_buckets(losses)
    if len(buckets) < 2:
        reason = "fewer than two length buckets hold validation tokens of every run"
        return {
            "law_notes": [{"analysis": analysis, "ok": False, "reason": reason} for analysis in _ANALYSES]
        }
    profile, ratios, rows = [], {}, []
    for name, values_pb in families.items():
        values_pb = values_pb[:, [LENGTH_BOUNDS.index(bucket) for bucket in buckets]]
        if not len(values_pb):
            continue
        profile.extend(_profile(name, buckets, values_pb))
        ratios[name] = _ratio(values_pb, len(buckets))
        rows.append(_row(f"length_ratio:{name}", ratios[name]))
    for name in FAMILIES[1:]:
        if "smelt" in ratios and name in ratios:
            rows.append(_row(f"length_margin:{name}", ratios["smelt"].minus(ratios[name])))
    notes = [
        {"analysis": analysis, "ok": any(row["contrast"].startswith(analysis) for row in rows), "reason": ""}
        for analysis in _ANALYSES
    ]
    for note in notes:
        note["reason"] = "" if note["ok"] else "the study has no such contrasts at its last horizon"
    return {"length_profile": profile, "law_contrasts": rows, "law_notes": notes}


_ANALYSES = ("length_ratio", "length_margin")


def _bucket_losses(results: Results) -> dict[str, np.ndarray]:
    """Return each grid run's loss in nats per token by bucket [8] at the last horizon; NaN where empty."""
    last = results.study.training.horizons[-1]
    losses = {}
    for arch in ("baseline", "smelt"):
        for row in results.grid_runs(arch):
            sums = np.zeros((2, len(LENGTH_BOUNDS)))
            for part in results.validation.get(row["run"], ()):
                if part["horizon"] == last and (row["run"], last) in results.endpoints:
                    sums[:, LENGTH_BOUNDS.index(part["length_bucket"])] += (part["loss_sum"], part["tokens"])
            if sums[1].any():
                with np.errstate(invalid="ignore"):
                    losses[row["run"]] = sums[0] / np.where(sums[1] > 0, sums[1], np.nan)
    return losses


def _contrasts(results: Results) -> dict[str, list[list[tuple[str, str]]]]:
    """Return each family's contrasts, each with its (reference, improved) runs, one pair a training seed."""
    study = results.study
    scales, levels = list(study.scales), sorted(study.sparsities)
    by_place = {
        (row["scale"], row["sparsity"], row["seed"]): row["run"] for row in results.grid_runs("baseline")
    }
    pairs: dict[tuple[str, str, int], list[tuple[str, str]]] = defaultdict(list)
    for row in results.grid_runs("smelt"):
        pairs["smelt", row["scale"], row["sparsity"]].append((row["baseline"], row["run"]))
    for (scale, level, seed), run in by_place.items():
        sparser = levels.index(level) + 1
        larger = scales.index(scale) + 1
        if sparser < len(levels):
            other = by_place.get((scale, levels[sparser], seed), "")
            pairs["experts", scale, level].append((run, other))
        if larger < len(scales):
            other = by_place.get((scales[larger], level, seed), "")
            pairs["parameters", scale, level].append((run, other))
    return {name: [runs for key, runs in pairs.items() if key[0] == name] for name in FAMILIES}


def _improvements(losses: dict[str, np.ndarray], contrasts: list[list[tuple[str, str]]]) -> np.ndarray:
    """Return the improvements [contrasts, 8] in nats: seeds of a contrast are no units, so their mean."""
    rows = []
    for pairs in contrasts:
        known = [
            losses[first] - losses[second] for first, second in pairs if {first, second} <= losses.keys()
        ]
        if known:
            rows.append(np.mean(known, axis=0))
    return np.array(rows).reshape(-1, len(LENGTH_BOUNDS))


def _common_buckets(losses: dict[str, np.ndarray]) -> list[int]:
    if not losses:
        return []
    filled = np.isfinite(np.array(list(losses.values()))).all(axis=0)
    return [bucket for bucket, full in zip(LENGTH_BOUNDS, filled, strict=True) if full]


def _profile(family: str, buckets: list[int], values_pb: np.ndarray) -> list[dict[str, Any]]:
    means = values_pb.mean(axis=1)
    kept = values_pb[means > 0] / means[means > 0, None]
    rows = []
    for index, bucket in enumerate(buckets):
        row = {
            "family": family,
            "bucket": bucket,
            "contrasts": len(kept),
            "excluded": int((means <= 0).sum()),
        }
        row |= {
            "improvement": float(values_pb[:, index].mean()),
            "normalised": None,
            "low": None,
            "high": None,
        }
        if len(kept):
            row["normalised"] = float(kept[:, index].mean())
        if len(kept) >= MIN_CONTRASTS:
            error = float(kept[:, index].std(ddof=1) / np.sqrt(len(kept)))
            ends = t_ends(row["normalised"], error, len(kept) - 1)
            row |= {"low": ends.low, "high": ends.high}
        rows.append(row)
    return rows


@dataclass(frozen=True)
class _Ratio:
    """A long/short ratio, its standard error, degrees of freedom and why it should not be believed."""

    value: float | None
    error: float
    freedom: int
    note: str = ""

    def minus(self, other: _Ratio) -> _Ratio:
        """Return the difference of two ratios; the fewer degrees of freedom count."""
        note = self.note or other.note
        freedom = min(self.freedom, other.freedom)
        if self.value is None or other.value is None:
            return _Ratio(None, 0.0, freedom, note)
        return _Ratio(self.value - other.value, float(np.hypot(self.error, other.error)), freedom, note)


def _ratio(values_pb: np.ndarray, buckets: int) -> _Ratio:
    """Return the ratio of summed improvements, long over short, with its linearised standard error."""
    count = len(values_pb)
    short = values_pb[:, : buckets // 2].mean(axis=1)
    long = values_pb[:, buckets - buckets // 2 :].mean(axis=1)
    if short.sum() <= 0:
        note = "short documents do not improve on average: a long/short ratio has no meaning"
        return _Ratio(None, 0.0, count - 1, note)
    value = float(long.sum() / short.sum())
    if count < MIN_CONTRASTS:
        return _Ratio(value, 0.0, count - 1)
    error = float(np.sqrt(count * (long - value * short).var(ddof=1)) / short.sum())
    # Fieller: where the denominator cannot be told from zero, the ratio has no limit on one side.
    lowest = t_ends(float(short.mean()), float(short.std(ddof=1) / np.sqrt(count)), count - 1).low
    note = "" if lowest > 0 else "short documents do not clearly improve: the ratio has no upper limit"
    return _Ratio(value, error, count - 1, note)


def _row(name: str, ratio: _Ratio) -> dict[str, Any]:
    ends = Ends()
    if ratio.value is not None and ratio.freedom >= MIN_CONTRASTS - 1:
        ends = t_ends(ratio.value, ratio.error, ratio.freedom)
    return contrast(name, ratio.value, ends, "ratio", ratio.freedom + 1, BASIS, ratio.note)
