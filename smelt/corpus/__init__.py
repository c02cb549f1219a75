"""Text: fetched by hash, cleaned, held out by document, tokenised, packed into batches."""

from smelt.corpus.batches import IGNORE, Batch
from smelt.corpus.corpus import Corpus
from smelt.corpus.finish import check_epochs
from smelt.corpus.split import LENGTH_BOUNDS, length_bucket

__all__ = ["IGNORE", "LENGTH_BOUNDS", "Batch", "Corpus", "check_epochs", "length_bucket"]
