"""Text out of JSON files: recipes, country profiles."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from smelt.corpus.html_text import html_to_text


def recipes(value: dict[str, dict[str, Any]]) -> Iterator[str]:
    """Yield one document a recipe: title, facts, ingredients, numbered steps."""
    for recipe in value.values():
        facts = [
            f"{label}: {recipe[key]}"
            for label, key in (("Category", "category"), ("Serves", "servings"), ("Time", "time"))
            if recipe.get(key)
        ]
        ingredients = [f"- {item}" for item in recipe.get("ingredients") or []]
        steps = [f"{number}. {step}" for number, step in enumerate(recipe.get("steps") or [], 1)]
        if steps:
            parts = [recipe["title"], "\n".join(facts), "\n".join(ingredients), "\n".join(steps)]
            yield "\n\n".join(part for part in parts if part)


def factbook(value: dict[str, Any]) -> Iterator[str]:
    """Yield one document a section of a country's profile, without the economy."""
    for section, content in value.items():
        if section != "Economy":
            yield _section(section, content)


def factbook_economy(value: dict[str, Any]) -> Iterator[str]:
    """Yield the economy section of a country's profile."""
    if "Economy" in value:
        yield _section("Economy", value["Economy"])


def _section(title: str, content: dict[str, Any]) -> str:
    return "\n\n".join([title, *_lines(content)])


def _lines(content: Any, label: str = "") -> Iterator[str]:
    if isinstance(content, str):
        text = html_to_text(content)
        if text:
            yield f"{label}: {text}" if label else text
        return
    for key, inner in content.items():
        # "text" and "note" are the profile's own words for a value and a remark on it.
        yield from _lines(inner, label if key in ("text", "note") else key)
