"""The supported encoder families, found by a configuration's ``model_type``."""

from __future__ import annotations

from papa.encoders.bert import BERT, ELECTRA, ROBERTA
from papa.encoders.family import Family

FAMILIES: tuple[Family, ...] = (BERT, ROBERTA, ELECTRA)


def family_of(model_type: str) -> Family | None:
    """The family whose configurations carry ``model_type``; None where no family does."""
    return next((family for family in FAMILIES if model_type in family.model_types), None)
