"""Every description by its name, and what they tell of texts. To add one: its file, and its line
here.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence

import pandas as pd

from papa.attention.constants import ConstantMatrices
from papa.corpora.batches import MicroBatch
from papa.descriptions.outliers import Outliers
from papa.descriptions.seen import Description, seen_in
from papa.descriptions.separators import Separators
from papa.descriptions.similarity import Similarity
from papa.encoders.encoder import Encoder
from papa.errors import SpecError, meant

DESCRIPTIONS: dict[str, Callable[[], Description]] = {
    "similarity": Similarity,
    "separators": Separators,
    "outliers": Outliers,
}


def chosen(names: Sequence[str] | None) -> list[str]:
    """The names of descriptions; None takes all.

    Raises:
        SpecError: there is no such description.
    """
    for name in names or ():
        if name not in DESCRIPTIONS:
            raise SpecError(
                f"there is no description '{name}'{meant(name, DESCRIPTIONS)}: give one of "
                f"{', '.join(DESCRIPTIONS)}"
            )
    return list(DESCRIPTIONS if names is None else names)


def described(
    encoder: Encoder,
    constants: ConstantMatrices,
    batches: Iterable[MicroBatch],
    separator: int,
    names: Sequence[str],
    seen_rows: Callable[[int], object] = lambda done: None,
) -> dict[str, pd.DataFrame]:
    """A data frame for each description of some texts.

    Args:
        encoder: as it is, without rules.
        constants: C of every head.
        batches: the texts.
        separator: its token id.
        names: of descriptions.
        seen_rows: called with the number of texts seen so far.

    Raises:
        ArtifactError: the matrices do not fit the encoder.
        NumbersError: there is NaN or infinity among the hidden states.
    """
    found, done = {name: DESCRIPTIONS[name]() for name in names}, 0
    for batch in batches:
        for seen in seen_in(encoder, constants, batch, separator):
            for description in found.values():
                description.see(seen)
        done += len(batch.rows)
        seen_rows(done)
    return {name: description.frame() for name, description in found.items()}
