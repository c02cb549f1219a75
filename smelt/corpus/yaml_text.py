"""YAML records to plain text with PyYAML: what a record is called and says, then its fields."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Any

import yaml

from smelt.errors import SmeltError
from smelt.schema import check_size

# Scalars stay text, so that nothing is built from a tag and a date of year 0 is no error.
_Loader = getattr(yaml, "CBaseLoader", yaml.BaseLoader)
_GROUPED = re.compile(r"(?<=\d)_(?=\d{3})")
_ADDRESSES = ("href",)
# An alias costs a file a few characters and may stand for a long text.
_MAX_GROWTH = 10


def yaml_to_text(name: str, text: str) -> Iterator[str]:
    """Yield the record as a paragraph (its label and description) and an indented line a field.

    Raises:
        SmeltError: `text` is not valid YAML, or its aliases multiply its entries or its text beyond reason.
    """
    try:
        value = yaml.load(text, Loader=_Loader)
    except (yaml.YAMLError, RecursionError) as error:
        reason = " ".join(str(error).split())
        raise SmeltError(f"member {name} is not valid YAML: {reason}") from None
    check_size(f"member {name}", value)
    if _characters(value) > _MAX_GROWTH * len(text):
        raise SmeltError(f"member {name}: its aliases make it more than {_MAX_GROWTH} times as long")
    head, fields = [], value
    if isinstance(value, dict):
        fields = dict(value)
        if isinstance(metadata := fields.get("metadata"), dict):
            fields["metadata"] = {key: item for key, item in metadata.items() if key != "label"}
            head.append(metadata.get("label"))
        head.append(fields.pop("description", None))
    said = "\n".join(_words(item) for item in head if isinstance(item, str) and item)
    yield f"{said}\n\n{_render(fields)}".strip("\n")


def _characters(value: Any) -> int:
    """Count the characters of all scalars, those behind an alias each time."""
    stack, count = [value], 0
    while stack:
        item = stack.pop()
        if isinstance(item, dict):
            stack.extend(item)
            stack.extend(item.values())
        elif isinstance(item, list):
            stack.extend(item)
        elif item:
            count += len(item)
    return count


def _words(text: str) -> str:
    return " ".join(_GROUPED.sub("", text).split())


def _render(value: Any, indent: str = "") -> str:
    """Return mappings as `key: value` lines and lists as `-` lines, what is nested further in."""
    lines = []
    if isinstance(value, dict):
        for key, item in value.items():
            if item in ("", [], {}) or key in _ADDRESSES:
                continue
            name = key.replace("_", " ") if isinstance(key, str) else _words(str(key))
            if isinstance(item, dict | list):
                lines += [f"{indent}{name}:", _render(item, indent + "  ")]
            else:
                lines.append(f"{indent}{name}: {_words(item)}")
    elif isinstance(value, list):
        for item in value:
            inner = _render(item, indent + "  ")
            lines.append(f"{indent}- {inner.lstrip(' ')}")
    elif value:
        return f"{indent}{_words(value)}"
    return "\n".join(line for line in lines if line.strip(" -"))
