"""The supported encoder families, found by a configuration's ``model_type``."""

from __future__ import annotations

from papa.encoders.bert import ALBERT, BERT, DISTILBERT, ELECTRA, ROBERTA
from papa.encoders.deberta import DEBERTA, DEBERTA_V2
from papa.encoders.family import Family
from papa.encoders.modernbert import MODERNBERT
from papa.encoders.mpnet import MPNET

FAMILIES: tuple[Family, ...] = (
    BERT,
    ROBERTA,
    ELECTRA,
    DISTILBERT,
    ALBERT,
    MPNET,
    DEBERTA,
    DEBERTA_V2,
    MODERNBERT,
)


def family_of(model_type: str) -> Family | None:
    """Return the family whose configurations carry ``model_type``; None where no family does."""
    return next((family for family in FAMILIES if model_type in family.model_types), None)
