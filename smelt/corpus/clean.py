"""Clean one document: line ends, control characters, blanks, lines that are data and not text."""

from __future__ import annotations

import re

# A longer line is a blob (base64, minified code, a table in one line), not text.
MAX_LINE = 20_000
_CONTROL = re.compile("[\x00-\x08\x0b\x0c\x0e-\x1f\x7f-\x9f\ufeff\ufffe\uffff]")
_BLANK_LINES = re.compile(r"\n{3,}")
_BLANKS = re.compile("[ \t\u00a0]{2,}|[\t\u00a0]")


def decode(data: bytes) -> str | None:
    """Return UTF-8 text, or None where the bytes are not UTF-8."""
    try:
        return data.decode("utf-8-sig")
    except UnicodeDecodeError:
        return None


def clean(text: str, prose: bool) -> str:
    """Return the cleaned document, which ends without a newline; it may be empty.

    Args:
        text: any text.
        prose: collapse white space inside lines; otherwise (code, YAML, worked steps) keep indentation.
    """
    # A lone surrogate (an escape in somebody's JSON) has no UTF-8.
    text = text.encode("utf-8", "ignore").decode("utf-8").replace("\r\n", "\n").replace("\r", "\n")
    text = _CONTROL.sub("", text)
    if prose:
        text = _BLANKS.sub(" ", text)
    lines = (line.strip() if prose else line.rstrip() for line in text.split("\n"))
    text = "\n".join(line for line in lines if len(line) <= MAX_LINE)
    return _BLANK_LINES.sub("\n\n", text).strip("\n")
