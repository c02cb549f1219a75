"""Training of one run: a warmup-stable trunk, its decay branches, resuming and the log."""
