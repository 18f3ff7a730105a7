"""Corpora: sources of text, the task registry, the layout in slots, and compact batches.

Compact batches hold tensors and live in ``papa.corpora.compact``, so that reading text needs no torch.
"""

from papa.corpora.corpus import TOKENIZE_VERSION, TokenizedCorpus, load_corpus, tokenize_corpus
from papa.corpora.sources import Split, fingerprint, pinned, read_source
from papa.corpora.split import TokenizedSplit
from papa.corpora.table import SourceTable

__all__ = [
    "TOKENIZE_VERSION",
    "SourceTable",
    "Split",
    "TokenizedCorpus",
    "TokenizedSplit",
    "fingerprint",
    "load_corpus",
    "pinned",
    "read_source",
    "tokenize_corpus",
]
