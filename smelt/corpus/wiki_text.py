"""Wiki pages to plain text: markup with mwparserfromhell, and what Trac and Moin write in their own way."""

from __future__ import annotations

import re
from collections.abc import Iterator

import mwparserfromhell

from smelt.corpus.clean import clean

# Processors of Trac and Moin whose block holds wiki text again; that of any other is code.
_LAYOUT = frozenset(("td", "th", "tr", "table", "div", "span", "p", "wiki"))
_DEEPEST = 20  # layout in layout; further in it is kept as it is
_BRACES = re.compile(r"\{\{\{|\}\}\}")
_TICKS = re.compile(r"`([^`\n]+)`")
_KEPT = re.compile("\ue000(\\d+)\ue001")
_BEFORE = [
    (re.compile(r"^(?:##.*|#(?:format|pragma|language|acl|refresh|redirect)\b.*)\n?", re.M | re.I), ""),
    (re.compile(r"^[ \t]*\[\[\w+(?:\([^\]\n]*\))?\]\][ \t]*\n?", re.M), ""),  # a macro of Trac
    (re.compile(r"<<BR>>|\[\[BR\]\]", re.I), " "),
    (re.compile(r"<<\w+(?:\([^>\n]*\))?>>"), ""),  # a macro of Moin
    (re.compile(r"^[ \t]*(=+)[ \t]+(.*?)(?:[ \t]+=+)?(?:[ \t]+#\S+)?[ \t]*$", re.M), r"\1\2\1"),
    (
        re.compile(r"\[(?!\[)(?:[\w/#:.?=&-]+)[ \t]+\"?([^\]\n]+?)\"?\](?!\])"),
        r"\1",
    ),  # a link inside the wiki
    (re.compile(r"\[(?:trac|wiki):([^\]\s]+)\]"), r"\1"),
    (re.compile(r"^\|-+[ \t]*$\n?|^-{4,}[ \t]*$\n?|\\$", re.M), ""),  # rules, and line ends in a table
]
_AFTER = [
    (re.compile(r"=?\|\|(?:[ \t]*<[^>\n]*>)?=?"), " | "),
    (re.compile(r"^(?:[ \t]*\|)+[ \t]*|[ \t]*(?:\|[ \t]*)+$", re.M), ""),
    (re.compile(r"\*\*(\S.*?)\*\*|(?<![:/\w])//(\S.*?)//(?!\w)"), lambda found: found[1] or found[2]),
    (re.compile(r"(?<![\w!])!(?=[A-Z\[{/#])"), ""),  # what keeps a word from being a link
]


def wiki_to_text(name: str, markup: str) -> Iterator[str]:
    """Yield the page without its markup and macros; code blocks and code words stay literally."""
    kept: list[str] = []
    markup = clean(markup, prose=False).replace("\ue000", "").replace("\ue001", "")
    text = _TICKS.sub(lambda found: _keep(kept, found[1]), _blocks(markup, kept))
    for pattern, new in _BEFORE:
        text = pattern.sub(new, text)
    text = str(mwparserfromhell.parse(text).strip_code(normalize=True, collapse=False))
    for pattern, new in _AFTER:
        text = pattern.sub(new, text)
    while _KEPT.search(text):
        text = _KEPT.sub(lambda found: "".join(kept[int(found[1]) :][:1]), text)
    yield text


def _keep(kept: list[str], code: str) -> str:
    kept.append(code)
    return f"\ue000{len(kept) - 1}\ue001"


def _blocks(markup: str, kept: list[str], level: int = 0) -> str:
    """Return `markup` with the code in triple braces taken out to `kept`; layout loses its braces only."""
    parts, depth, begin, end = [], 0, 0, 0
    for brace in _BRACES.finditer(markup):
        if brace[0] == "{{{":
            depth += 1
            if depth == 1:
                parts.append(markup[end : brace.start()])
                begin = brace.end()
        elif depth:
            depth -= 1
            if depth == 0:
                parts.append(_block(markup[begin : brace.start()], kept, level))
                end = brace.end()
    return "".join([*parts, markup[begin if depth else end :]])


def _block(inside: str, kept: list[str], level: int) -> str:
    processor = re.match(r"\s*#!(\S+)[^\n]*\n?", inside)
    if processor is None:
        return _keep(kept, inside.strip("\n"))
    rest = inside[processor.end() :]
    if processor[1] == "comment":
        return ""
    if processor[1] in _LAYOUT and level < _DEEPEST:
        return f"\n{_blocks(rest, kept, level + 1)}\n"
    return _keep(kept, rest.strip("\n"))
