"""Check a mapping against a JSON schema and tell the first mistake in one sentence."""

from __future__ import annotations

import functools
from pathlib import Path
from typing import Any

import jsonschema
import yaml

from smelt.errors import SmeltError


@functools.cache
def _validator(schema: Path) -> jsonschema.Draft202012Validator:
    return jsonschema.Draft202012Validator(yaml.safe_load(schema.read_text(encoding="utf-8")))


def check_schema(source: str, value: Any, schema: Path) -> None:
    """Raise a SmeltError naming `source`, the field, its value and what is allowed if `value` is invalid."""
    error = jsonschema.exceptions.best_match(_validator(schema).iter_errors(_string_keys(value)))
    if error is None:
        return
    where = ".".join(str(part) for part in error.absolute_path)
    message = error.message.replace("\n", " ")
    if error.validator == "additionalProperties":
        message += "; allowed: " + ", ".join(sorted(error.schema.get("properties", {})))
    raise SmeltError(f"{source}: {where}: {message}" if where else f"{source}: {message}")


def _string_keys(value: Any) -> Any:
    """YAML has integer keys, JSON schema knows only text."""
    if isinstance(value, dict):
        return {str(key): _string_keys(item) for key, item in value.items()}
    if isinstance(value, list):
        return [_string_keys(item) for item in value]
    return value
