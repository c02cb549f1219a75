"""The original's behaviour, written once more from its description and sharing no code with the product.

It works on one item at a time, with lists, and asks a model for the logits of one sequence after the other.
"""

from __future__ import annotations

import math
import random


def load(rows: list[dict]) -> list[dict]:
    return [{k: v.strip() if type(v) is str else v for k, v in row.items()} for row in rows]


def few_shot(n: int, k: int, seed: int) -> list[list[int]]:
    """Shots of items 0 to n - 1, drawn one item after the other from one generator."""
    rng, table = random.Random(seed), []
    for i in range(n):
        drawn = rng.sample(range(n), min(k, n - 1))
        shots = set(drawn)
        if i in shots:
            shots.discard(i)
            if len(shots) < n - 1:
                while True:
                    j = rng.choice(range(n))
                    if j != i and j not in shots:
                        shots.add(j)
                        break
        table.append(list(shots))
    return table


def prompt_options(kind: str, item: dict, delimiter: str, few: bool) -> list[tuple[str, str]]:
    if kind == "multiple_choice":
        return [((("\n" if few else "") + item["query"] + delimiter).rstrip(), c) for c in item["choices"]]
    if kind == "language_modeling":
        return [((("\n" if few else "") + item["context"] + delimiter).rstrip(), item["continuation"])]
    if few:
        return [
            ("\n" + option + delimiter.rstrip(), item["continuation"]) for option in item["context_options"]
        ]
    return [(option, item["continuation"]) for option in item["context_options"]]


def shot_text(kind: str, item: dict, delimiter: str) -> str:
    if kind == "multiple_choice":
        return f"{item['query']}{delimiter}{item['choices'][item['gold']]}"
    question = item["context"] if kind == "language_modeling" else item["context_options"][item["gold"]]
    return f"{question}{delimiter}{item['continuation']}"


def sequences(kind, items, index, shots, delimiter, encode, bos, limit, keep_bos):
    """Return (ids, first answer index) for each option of an item."""
    preamble_text = "\n".join(shot_text(kind, items[j], delimiter) for j in shots)
    preamble = ([] if bos is None else [bos]) + encode(preamble_text)
    blank = len(encode(" a")) == 1
    result = []
    for context, answer in prompt_options(kind, items[index], delimiter, bool(shots)):
        if blank and answer[0] != " ":
            answer = " " + answer
        before, scored = preamble + encode(context), encode(answer)
        while len(before) + len(scored) > limit:
            before.pop(1 if keep_bos and bos is not None and before[0] == bos else 0)
        result.append((before + scored, len(before)))
    return result


def losses(ids: list[int], start: int, logits: list[list[float]]) -> tuple[list[float], bool]:
    """Return the loss of each answer token and whether each is the most likely one."""
    result, greedy = [], True
    for place in range(start, len(ids)):
        row = logits[place - 1]
        top = max(row)
        result.append(top + math.log(sum(math.exp(x - top) for x in row)) - row[ids[place]])
        greedy = greedy and row.index(top) == ids[place]
    return result, greedy
