"""Endpoints measured: validation loss, in-context tasks, and the scores computed from their items."""
