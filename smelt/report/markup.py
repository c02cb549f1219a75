"""Small pieces of HTML that notebooks and site share."""

from __future__ import annotations

from html import escape


def missing_html(name: str, label: str, title: str, reason: str) -> str:
    """Return the sentence that stands where something was not measured."""
    return (
        f'<p class="missing" id="{escape(name)}"><strong>{escape(label)}. {escape(title)}.</strong> '
        f"{escape(reason.replace('`', ''))}</p>"
    )


def caption_html(label: str, title: str, caption: str, note: str = "") -> str:
    """Return a caption: bold label and title, the text, and a remark on the data."""
    remark = f' <span class="note">{escape(note)}</span>' if note else ""
    text = f"<strong>{escape(label)}. {escape(title)}.</strong> {escape(caption)}{remark}"
    return f"<figcaption>{text}</figcaption>"
