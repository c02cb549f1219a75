"""Scaling laws for compute-matched looped mixture-of-experts transformers, as a workflow."""
