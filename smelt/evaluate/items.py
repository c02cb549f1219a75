"""Read and check the items of a task from JSON lines.

Fields: multiple choice `query, choices, gold`; schema `context_options, continuation, gold`; language
modelling `context, continuation`; tasks split by category also `category`. Other fields are kept.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from smelt.errors import SmeltError
from smelt.evaluate.registry import CHOICE, COMPLETION, SCHEMA, Task

Item = dict[str, Any]

_FIELDS = {
    CHOICE: {"query": str, "choices": list, "gold": int},
    SCHEMA: {"context_options": list, "continuation": str, "gold": int},
    COMPLETION: {"context": str, "continuation": str},
}
_OPTIONS = {CHOICE: "choices", SCHEMA: "context_options"}


def read_items(path: Path | str, task: Task, unique: bool = True) -> list[Item]:
    """Return the items of a task's file in order; top-level texts are stripped, lists are left alone.

    Args:
        unique: refuse an item that occurs twice. Files of others are used as they are.

    Raises:
        SmeltError: naming the file, the line, the field and what is allowed.
    """
    path = Path(path)
    try:
        lines = path.read_bytes().splitlines()
    except FileNotFoundError:
        raise SmeltError(f"{path} does not exist") from None
    items: list[Item] = []
    first_line: dict[str, int] = {}
    for number, line in enumerate(lines, start=1):
        if not line.strip():
            continue
        where = f"{path}, line {number}"
        item = _parse(line, where)
        check_item(item, task, where)
        content = item_content(item, task)
        if unique and content in first_line:
            raise SmeltError(
                f"{where}: the item is the same as that of line {first_line[content]}; items must differ"
            )
        first_line[content] = number
        items.append(item)
    if not items:
        raise SmeltError(f"{path} has no items; task {task.name} needs at least one")
    return items


def _parse(line: bytes, where: str) -> Item:
    try:
        item = json.loads(line)
        json.dumps(item, ensure_ascii=False).encode()  # half a surrogate pair has no UTF-8 and no tokens
    except (ValueError, RecursionError) as error:  # also an endless number, endless nesting
        raise SmeltError(f"{where}: not valid JSON: {error}") from None
    if not isinstance(item, dict):
        raise SmeltError(f"{where}: {line[:40]!r} is not a JSON object")
    return {key: value.strip() if isinstance(value, str) else value for key, value in item.items()}


def check_item(item: Item, task: Task, where: str) -> None:
    """Raise SmeltError unless `item` has the fields of its kind with usable values."""
    fields = dict(_FIELDS[task.kind])
    if task.by_category:
        fields["category"] = str
    for name, kind in fields.items():
        if name not in item:
            raise SmeltError(f"{where}: {name!r} is missing; {task.kind} items have {', '.join(fields)}")
        if not isinstance(item[name], kind) or isinstance(item[name], bool):
            raise SmeltError(f"{where}: {name} is {item[name]!r}; it must be of type {kind.__name__}")
    if task.kind in _OPTIONS:
        _check_options(item, _OPTIONS[task.kind], where)
    if "continuation" in fields and not item["continuation"]:
        raise SmeltError(f"{where}: continuation is empty; there is nothing to score")


def _check_options(item: Item, field: str, where: str) -> None:
    options = item[field]
    if len(options) < 2:
        raise SmeltError(f"{where}: {field} has {len(options)} entries; at least 2 are needed")
    for option in options:
        if not isinstance(option, str) or not option.strip():
            raise SmeltError(f"{where}: {field} contains {option!r}; every entry must be a non-empty text")
    if not 0 <= item["gold"] < len(options):
        raise SmeltError(f"{where}: gold is {item['gold']}; it must be 0 to {len(options) - 1}")


def item_content(item: Item, task: Task) -> str:
    """Return a text that is equal for items that ask the same, their order of options included."""
    fields = [*_FIELDS[task.kind], *(["category"] if task.by_category else [])]
    return json.dumps([item[name] for name in fields])


def item_groups(items: list[Item], task: Task) -> dict[str, list[int]]:
    """Return item indices by group, groups sorted by name; one group "" unless split by category."""
    groups: dict[str, list[int]] = {}
    for index, item in enumerate(items):
        groups.setdefault(item["category"] if task.by_category else "", []).append(index)
    return dict(sorted(groups.items()))
