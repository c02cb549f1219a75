"""Text out of JSON files: recipes, country profiles, a dictionary, article leads, service interfaces."""

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
            yield _section(value, section, content)


def factbook_economy(value: dict[str, Any]) -> Iterator[str]:
    """Yield the economy section of a country's profile."""
    if "Economy" in value:
        yield _section(value, "Economy", value["Economy"])


def _section(profile: dict[str, Any], title: str, content: dict[str, Any]) -> str:
    names = profile.get("Government", {}).get("Country name", {})
    forms = [
        html_to_text(names.get(f"conventional {form} form", {}).get("text", "")) for form in ("short", "long")
    ]
    country = next((name for name in forms if name and name != "none"), "")
    return "\n\n".join([f"{country}: {title}" if country else title, *_lines(content)])


def _lines(content: Any, label: str = "") -> Iterator[str]:
    if isinstance(content, str):
        text = html_to_text(content)
        if text:
            yield f"{label}: {text}" if label else text
        return
    for key, inner in content.items():
        # "text" and "note" are the profile's own words for a value and a remark on it. A finer label often
        # repeats the coarser one.
        key = key.strip()
        finer = label if key in ("text", "note") else key if not label or label in key else f"{label}, {key}"
        yield from _lines(inner, finer)


def definitions(value: dict[str, dict[str, Any]]) -> Iterator[str]:
    """Yield pages of a dictionary: 1, 2, 4, ... 64 neighbouring words, then 1 again.

    The etymologies of this source belong to other words; only definitions and examples are taken.
    """
    page: list[str] = []
    size = 1
    for entry in value.values():
        page += _entry(entry)
        if len(page) >= size:
            yield "\n".join(page)
            page, size = [], size * 2 if size < 64 else 1
    if page:
        yield "\n".join(page)


def _entry(entry: dict[str, Any]) -> Iterator[str]:
    for part in entry["pos"]:
        said = [" ".join([d["text"], *d.get("examples", [])]) for d in part["definitions"] if d["text"]]
        if said:
            yield f"{entry['entry']} ({part['part_of_speech'] or 'word'}) {' '.join(said)}"


def summaries(value: dict[str, dict[str, str]]) -> Iterator[str]:
    """Yield one document an encyclopedia article: title and lead."""
    for article in value.values():
        yield f"{article['title']}\n\n{article['extract']}"


def operations(value: dict[str, Any]) -> Iterator[str]:
    """Yield the texts of a service interface: about it, each operation with its input, each structure."""
    shapes, inputs = value["shapes"], set()
    yield html_to_text(value.get("documentation", ""))
    for name, operation in value["operations"].items():
        inputs.add(operation.get("input", {}).get("shape"))
        parts = [name, html_to_text(operation.get("documentation", ""))]
        parts += _members(shapes.get(operation.get("input", {}).get("shape"), {}))
        yield "\n\n".join(part for part in parts if part)
    for name, shape in shapes.items():
        if name not in inputs:
            members = list(_members(shape))
            if members:
                yield "\n\n".join([name, html_to_text(shape.get("documentation", "")), *members])


def _members(shape: dict[str, Any]) -> Iterator[str]:
    for name, member in shape.get("members", {}).items():
        text = html_to_text(member.get("documentation", ""))
        if text:
            yield f"{name}: {text}"
