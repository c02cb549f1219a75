"""The Dyck head: the head of the span whose loss hurts bracket completion most (figure 18, claim C22)."""

from __future__ import annotations

import itertools
from collections import Counter
from collections.abc import Hashable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from torch import Tensor
from torch.nn import functional as F

from smelt.mechanism.attention import additive_mask, attention_rows
from smelt.mechanism.bootstrap import DocumentSums, diagnostic, fields
from smelt.mechanism.prompts import BOS, DEMONSTRATION_ANSWER, ROLES, Prompt
from smelt.mechanism.walk import Edit, Pass, Step, require_visits
from smelt.model import LoopedLM
from smelt.study import Execution


class WithoutHead(Edit):
    """One head of a physical layer writes nothing, at every visit."""

    def __init__(self, layer: int, head: int) -> None:
        self.layer, self.head = layer, head

    def heads(self, execution: Execution, pv_bthd: Tensor) -> Tensor:
        """Return the weighted values with the head's at zero."""
        if execution.layer != self.layer:
            return pv_bthd
        kept_h = torch.ones(pv_bthd.shape[2], dtype=pv_bthd.dtype, device=pv_bthd.device)
        kept_h[self.head] = 0
        return pv_bthd * kept_h[:, None]


@dataclass(frozen=True)
class PromptBatch:
    """Prompts as tensors, padded on the right; p prompts, j targets."""

    prompts: Sequence[Prompt]
    inputs_bt: Tensor
    targets_pj: Tensor

    @classmethod
    def of(cls, prompts: Sequence[Prompt], device: torch.device) -> PromptBatch:
        """Pad with BOS, which no earlier token can see."""
        length = max(len(prompt.ids) for prompt in prompts)
        rows = [[*prompt.ids, *[prompt.ids[0]] * (length - len(prompt.ids))] for prompt in prompts]
        targets = [prompt.targets for prompt in prompts]
        return cls(prompts, torch.tensor(rows, device=device), torch.tensor(targets, device=device))

    def target_losses(self, batch: Pass, stream_btd: Tensor) -> Tensor:
        """Return the cross entropy of each target token, `[p, j]`, nats."""
        rows_p1 = torch.arange(len(self.prompts), device=self.inputs_bt.device)[:, None]
        logits_pjv = batch.logits(stream_btd[rows_p1, self.targets_pj - 1]).float()
        ids_pj = self.inputs_bt[rows_p1, self.targets_pj]
        return F.cross_entropy(logits_pjv.flatten(0, 1), ids_pj.flatten(), reduction="none").view_as(ids_pj)


@torch.inference_mode()
def head_deltas(
    model: LoopedLM, prompts: Sequence[Prompt], draws: int, mixed: bool = False
) -> tuple[np.ndarray, np.ndarray]:
    """Return the intact perplexity `[w]` and its rise without each head of the span, `[w, layer, head]`.

    Perplexity is exp of the mean cross entropy of the prompts' target tokens; draws are over prompts.
    """
    geometry = model.config.geometry
    require_visits(geometry)
    batch = PromptBatch.of(prompts, model.embed.weight.device)
    intact = Pass(model, batch.inputs_bt, mixed=mixed)
    steps = list(intact.steps())
    losses = [batch.target_losses(intact, steps[-1].after_btd)]
    for layer in geometry.span:
        first = next(step for step in steps if step.execution.layer == layer)
        for head in range(geometry.heads):
            edit = WithoutHead(layer, head)
            final_btd = intact.final(edit, first.index, first.stream_btd)
            losses.append(batch.target_losses(intact, final_btd))
    losses_pjc = torch.stack(losses, dim=-1)
    sums = DocumentSums(draws)
    prompt_pj = torch.arange(len(prompts), device=losses_pjc.device)[:, None].expand(losses_pjc.shape[:2])
    sums.begin(prompt_pj.flatten())
    sums.add("dyck", losses_pjc)
    perplexity_wc = np.exp(sums.mean("dyck"))
    deltas_wc = perplexity_wc[:, 1:] - perplexity_wc[:, :1]
    return perplexity_wc[:, 0], deltas_wc.reshape(-1, geometry.loop_length, geometry.heads)


@torch.inference_mode()
def target_rows(
    model: LoopedLM, prompts: Sequence[Prompt], layer: int, head: int, mixed: bool = False
) -> Tensor:
    """Return the head's attention at the positions that predict the targets, `[visit, p, j, s]`."""
    batch = PromptBatch.of(prompts, model.embed.weight.device)
    rows_p1 = torch.arange(len(prompts), device=batch.inputs_bt.device)[:, None]
    visits = []
    for step in Pass(model, batch.inputs_bt, mixed=mixed).steps():
        if step.execution.layer == layer:
            visits.append(_head_rows(step, head, rows_p1, batch.targets_pj - 1))
    return torch.stack(visits)


def _head_rows(step: Step, head: int, rows_p1: Tensor, queries_pj: Tensor) -> Tensor:
    groups = step.q_bthd.shape[2] // step.k_btgd.shape[2]
    key_head = head // groups
    q_pj1d = step.q_bthd[rows_p1, queries_pj, head : head + 1]
    positions_s = torch.arange(step.k_btgd.shape[1], device=queries_pj.device)
    mask_pjs = additive_mask(positions_s <= queries_pj[..., None])
    return attention_rows(q_pj1d, step.k_btgd[:, :, key_head : key_head + 1], mask_pjs)[:, 0]


def part_labels(prompt: Prompt) -> list[tuple[str, int]]:
    """Return for each token its role and which run of that role it is in, such as the second answer."""
    labels = []
    seen = Counter()
    for role, tokens in itertools.groupby(prompt.roles):
        seen[role] += 1
        labels += [(role, seen[role]) for _ in tokens]
    return labels


def label_masses(
    rows_vpjs: Tensor, labels: Sequence[Sequence[Hashable]], names: Sequence[Hashable], draws: int
) -> np.ndarray:
    """Return the mass on the tokens of each label, averaged over prompts, `[w, visit, target, label]`.

    `labels` has one label a token for every prompt; `names` says of which labels the mass is asked.
    """
    visits, count, targets, length = rows_vpjs.shape
    member_lps = torch.zeros(len(names), count, length, device=rows_vpjs.device)
    for index, of_prompt in enumerate(labels):
        for position, label in enumerate(of_prompt):
            if label in names:
                member_lps[names.index(label), index, position] = 1
    sums = DocumentSums(draws)
    sums.begin(torch.arange(count, device=rows_vpjs.device))
    sums.add("mass", torch.einsum("vpjs,lps->pvjl", rows_vpjs, member_lps))
    return sums.mean("mass").reshape(-1, visits, targets, len(names))


def dyck_tables(
    run: str,
    model: LoopedLM,
    choice: Sequence[Prompt],
    shown: Sequence[Prompt],
    draws: int,
    mixed: bool = False,
) -> dict[str, list[dict[str, Any]]]:
    """Return the rows of the three Dyck tables and the diagnostics `dyck_bos` and `dyck_answers`.

    The head is chosen by `delta_choice`, its rise of perplexity on the prompts `choice`. Everything else is
    measured on the prompts `shown`, so that the choice does not flatter it: `delta`, the masses, and the map
    of the first of them. Intervals are over the prompts, which stand for documents here; the map of a
    single one has none, so that the mass on the same part of all of them stands beside it. The diagnostics
    compare the mean of the later visits with visit 0.
    """
    geometry = model.config.geometry
    _, choice_wlh = head_deltas(model, choice, draws, mixed)
    perplexity_w, deltas_wlh = head_deltas(model, shown, draws, mixed)
    best, head = np.unravel_index(np.argmax(choice_wlh[0]), choice_wlh.shape[1:])
    layer, head = geometry.span[int(best)], int(head)
    heads = [
        {
            "run": run,
            "layer": span_layer,
            "head": h,
            **fields(deltas_wlh[:, index, h], "delta"),
            **fields(choice_wlh[:, index, h], "delta_choice", "delta_choice_"),
            **fields(perplexity_w, "perplexity", "perplexity_"),
            "selected": (span_layer, h) == (layer, head),
        }
        for index, span_layer in enumerate(geometry.span)
        for h in range(geometry.heads)
    ]
    rows_vpjs = target_rows(model, shown, layer, head, mixed)
    masses_wvr = label_masses(rows_vpjs, [prompt.roles for prompt in shown], ROLES, draws).mean(2)
    masses = [
        {"run": run, "visit": visit, "role": role, **fields(masses_wvr[:, visit, index], "mass")}
        for visit in range(geometry.loop_count)
        for index, role in enumerate(ROLES)
    ]
    diagnostics = [
        diagnostic(run, name, masses_wvr[:, 1:, index].mean(1), masses_wvr[:, 0, index])
        for name, index in (
            ("dyck_bos", ROLES.index(BOS)),
            ("dyck_answers", ROLES.index(DEMONSTRATION_ANSWER)),
        )
    ]
    shown_map = [
        {"run": run, **row, "layer": layer, "head": head} for row in _map_rows(rows_vpjs, shown, draws)
    ]
    return {"dyck_heads": heads, "dyck_map": shown_map, "dyck_mass": masses, "diagnostics": diagnostics}


def _map_rows(rows_vpjs: Tensor, shown: Sequence[Prompt], draws: int) -> Iterator[dict[str, Any]]:
    """Yield the map of the first prompt, with the mass on a position's part averaged over all prompts."""
    prompt, labels = shown[0], [part_labels(prompt) for prompt in shown]
    names = list(dict.fromkeys(labels[0]))
    parts_wvjl = label_masses(rows_vpjs, labels, names, draws)
    values = rows_vpjs[:, 0].tolist()
    for visit, target in itertools.product(range(len(values)), range(len(prompt.targets))):
        parts = [_part(parts_wvjl[:, :, target, part], visit) for part in range(len(names))]
        # A rectangle: the mass on what a target cannot see is exactly 0.
        for position in range(prompt.targets[-1]):
            part = names.index(labels[0][position])
            yield {
                "visit": visit,
                "target": target,
                "position": position,
                "mass": values[visit][target][position],
                "token": prompt.tokens[position],
                "role": prompt.roles[position],
                "part": part,
                **parts[part],
            }


def _part(mass_wv: np.ndarray, visit: int) -> dict[str, float | None]:
    """Return a part's mass at a visit and, at a later one, how it differs from visit 0's."""
    mass = fields(mass_wv[:, visit], "part_mass", "part_")
    if not visit:
        return mass | {"change": None, "change_low": None, "change_high": None}
    return mass | fields(mass_wv[:, visit] - mass_wv[:, 0], "change", "change_")
