"""Corpora: sources of text, the task registry, the layout in slots, and micro-batches.

Micro-batches hold tensors and live in ``papa.corpora.batches``, so that reading text needs no
torch.
"""

from papa.corpora.corpus import TOKENISE_VERSION, TokenisedCorpus, load_corpus, tokenise_corpus
from papa.corpora.sources import Split, fingerprint, pinned, read_source
from papa.corpora.split import TokenisedSplit
from papa.corpora.table import SourceTable

__all__ = [
    "TOKENISE_VERSION",
    "SourceTable",
    "Split",
    "TokenisedCorpus",
    "TokenisedSplit",
    "fingerprint",
    "load_corpus",
    "pinned",
    "read_source",
    "tokenise_corpus",
]
