"""The one exception that a user is meant to read."""

from __future__ import annotations


class SmeltError(Exception):
    """A mistake in the input, told in one sentence: file, field, value and what is allowed."""
