"""reStructuredText to plain text with docutils."""

from __future__ import annotations

from collections.abc import Iterator

import docutils.core
import docutils.nodes

# Nothing outside the text is read or run; mistakes in the markup are left to docutils' best effort.
_SETTINGS = {
    "report_level": 5,
    "halt_level": 6,
    "file_insertion_enabled": False,
    "raw_enabled": False,
    "_disable_config": True,
    "smart_quotes": False,
    "syntax_highlight": "none",
}


def rst_to_text(name: str, markup: str) -> Iterator[str]:
    """Yield the document without its markup; literal blocks keep their lines and indentation."""
    tree = docutils.core.publish_doctree(markup, source_path=name, settings_overrides=_SETTINGS)
    for node in list(tree.findall(docutils.nodes.system_message)):
        node.parent.remove(node)
    yield tree.astext()
