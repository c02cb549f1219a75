"""Check a mapping against a JSON schema and tell the first mistake in one sentence."""

from __future__ import annotations

import functools
import re
from pathlib import Path
from typing import Any

import jsonschema
import yaml

from smelt.errors import SmeltError

MAX_ENTRIES = 100_000
_NUMBER = re.compile(r"[+-]?[0-9.]+[eE][+-]?[0-9]+")


@functools.cache
def _validator(schema: Path) -> jsonschema.Draft202012Validator:
    draft = jsonschema.Draft202012Validator
    # JSON schema calls 32.0 an integer; sizes and counts must be written as such.
    types = draft.TYPE_CHECKER.redefine("integer", lambda _, value: type(value) is int)
    strict = jsonschema.validators.extend(draft, type_checker=types)
    return strict(yaml.safe_load(schema.read_text(encoding="utf-8")))


def check_schema(source: str, value: Any, schema: Path) -> None:
    """Raise a SmeltError naming `source`, the field, its value and what is allowed if `value` is invalid."""
    if value is None:
        raise SmeltError(f"{source}: the file is empty")
    check_size(source, value)
    error = jsonschema.exceptions.best_match(_validator(schema).iter_errors(_string_keys(value)))
    if error is None:
        return
    where = ".".join(str(part) for part in error.absolute_path)
    message = error.message.replace("\n", " ")
    if error.validator == "additionalProperties":
        message += "; allowed: " + ", ".join(sorted(error.schema.get("properties", {})))
    if error.validator == "type" and isinstance(error.instance, str) and _NUMBER.fullmatch(error.instance):
        message += "; YAML reads a number with an exponent only as 1.0e-3"
    raise SmeltError(f"{source}: {where}: {message}" if where else f"{source}: {message}")


def check_size(source: str, value: Any) -> None:
    """Refuse a mapping that its aliases blow up, or that holds itself, before anything walks it."""
    stack, seen = [value], 0
    while stack:
        item = stack.pop()
        seen += 1
        if seen > MAX_ENTRIES:
            raise SmeltError(f"{source}: more than {MAX_ENTRIES} entries; aliases may not multiply them")
        if isinstance(item, dict):
            stack.extend(item.values())
        elif isinstance(item, list):
            stack.extend(item)


def _string_keys(value: Any) -> Any:
    """YAML has integer keys, JSON schema knows only text."""
    if isinstance(value, dict):
        return {str(key): _string_keys(item) for key, item in value.items()}
    if isinstance(value, list):
        return [_string_keys(item) for item in value]
    return value
