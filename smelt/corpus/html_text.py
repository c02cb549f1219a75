"""HTML to plain text with lxml."""

from __future__ import annotations

import re

import lxml.html
from lxml.etree import ParserError

_BLOCKS = frozenset(
    (
        "address",
        "article",
        "aside",
        "blockquote",
        "dd",
        "details",
        "div",
        "dl",
        "dt",
        "figure",
        "footer",
        "form",
    )
    + ("h1", "h2", "h3", "h4", "h5", "h6", "header", "hr", "li", "main", "nav", "ol", "p", "pre", "section")
    + ("table", "tr", "ul")
)
_DROPPED = frozenset(("head", "script", "style", "noscript", "template", "svg", "nav", "button"))


def html_to_text(markup: str) -> str:
    """Return the text of a page or fragment: a blank line around blocks, a line end for `br`.

    `pre` keeps its white space; elsewhere white space is collapsed. Scripts, styles and navigation go.
    """
    if "<" not in markup and "&" not in markup:
        return " ".join(markup.split())
    try:
        root = lxml.html.fromstring(f"<div>{markup}</div>" if "<html" not in markup.lower() else markup)
    except (ParserError, ValueError):
        return ""
    parts: list[str] = []
    _walk(root, parts, keep=False)
    text = "".join(parts)
    text = re.sub(r" *\n *", "\n", text) if "<pre" not in markup.lower() else text
    return re.sub(r"\n{3,}", "\n\n", text).strip()


def _walk(root: lxml.html.HtmlElement, parts: list[str], keep: bool) -> None:
    """Append the text below `root` to `parts`; iterative, since nesting may be deep."""
    stack: list[tuple[str, object, bool]] = [("open", root, keep)]
    while stack:
        action, value, keep = stack.pop()
        if action == "text":
            parts.append(value if keep else re.sub(r"\s+", " ", value))
            continue
        tag = value.tag if isinstance(value.tag, str) else None
        if tag is None or tag in _DROPPED:
            continue
        block = "\n\n" if tag in _BLOCKS else ""
        inside = keep or tag == "pre"
        parts.append("\n" if tag == "br" else block)
        following: list[tuple[str, object, bool]] = []
        if value.text:
            following.append(("text", value.text, inside))
        for child in value:
            following.append(("open", child, inside))
            if child.tail:
                following.append(("text", child.tail, inside))
        if block:
            following.append(("text", block, True))
        stack.extend(reversed(following))
