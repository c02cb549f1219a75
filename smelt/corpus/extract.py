"""Turn members of archives into documents. One function a kind; each yields plain text, not yet cleaned."""

from __future__ import annotations

import email.parser
import email.policy
import json
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

from smelt.corpus import json_text, python_docs, rst_text, wiki_text, yaml_text
from smelt.errors import SmeltError

Documents = Iterator[str]


@dataclass(frozen=True)
class Extractor:
    """How a kind of member is read.

    Attributes:
        read: from (member name, text) to documents.
        prose: whether white space inside lines may be collapsed.
    """

    read: Callable[[str, str], Documents]
    prose: bool


def _whole(name: str, text: str) -> Documents:
    yield text


def _metadata(name: str, text: str) -> Documents:
    """Yield the description in a wheel's METADATA, which is the project's README."""
    message = email.parser.Parser(policy=email.policy.compat32).parsestr(text)
    body = message.get_payload()
    yield body if isinstance(body, str) and body.strip() else message.get("Description", "")


def _json(render: Callable[[Any], Documents]) -> Callable[[str, str], Documents]:
    def read(name: str, text: str) -> Documents:
        try:
            value = json.loads(text)
        except json.JSONDecodeError as error:
            raise SmeltError(f"member {name} is not valid JSON: {error}") from None
        try:
            yield from render(value)
        except (AttributeError, KeyError, TypeError) as error:
            raise SmeltError(f"member {name} has not the expected structure: {error!r}") from None

    return read


EXTRACTORS = {
    "text": Extractor(_whole, prose=True),
    "source": Extractor(_whole, prose=False),
    "docstrings": Extractor(python_docs.docstrings, prose=False),
    "fields": Extractor(python_docs.fields, prose=True),
    "chapters": Extractor(python_docs.chapters, prose=True),
    "rst": Extractor(rst_text.rst_to_text, prose=False),
    "wikitext": Extractor(wiki_text.wiki_to_text, prose=False),
    "yaml": Extractor(yaml_text.yaml_to_text, prose=False),
    "readme": Extractor(_metadata, prose=False),
    "recipes": Extractor(_json(json_text.recipes), prose=True),
    "definitions": Extractor(_json(json_text.definitions), prose=True),
    "summaries": Extractor(_json(json_text.summaries), prose=True),
    "operations": Extractor(_json(json_text.operations), prose=True),
    "factbook": Extractor(_json(json_text.factbook), prose=True),
    "factbook-economy": Extractor(_json(json_text.factbook_economy), prose=True),
}
