"""Every description by its name. To add one: its file, and its line here."""

from __future__ import annotations

from collections.abc import Callable

from papa.descriptions.outliers import Outliers
from papa.descriptions.seen import Description
from papa.descriptions.separators import Separators
from papa.descriptions.similarity import Similarity

DESCRIPTIONS: dict[str, Callable[[], Description]] = {
    "similarity": Similarity,
    "separators": Separators,
    "outliers": Outliers,
}
