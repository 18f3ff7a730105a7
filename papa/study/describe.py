"""What the heads of a finished study do, beside its constant matrices."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from papa.encoders.reference import load_tokenizer
from papa.errors import SpecError
from papa.study.average import Average
from papa.study.stored import StoredStudy
from papa.study.tokenise import open_corpus

if TYPE_CHECKING:
    import pandas as pd

    from papa.study.aggregate import Averaged


def describe_study(
    stored: StoredStudy, names: Sequence[str] | None, limit: int
) -> dict[str, pd.DataFrame]:
    """Descriptions of the first validation rows of every task, with the study's own average as the
    constant matrices: a data frame for each, with the columns ``encoder`` and ``task``.

    Args:
        names: of descriptions; None takes all.

    Raises:
        SpecError: there is no such description, or no finished average of an encoder.
    """
    import pandas as pd

    from papa.descriptions.table import chosen

    wanted = chosen(names)
    averages = [
        one
        for part in stored.steps.parts
        for one in part.averaged
        if one.constants in stored.found and not one.encoder.causal
    ]
    if not averages:
        raise SpecError(
            f"study '{stored.inputs.study.name}' has no finished average of an encoder to describe "
            "its heads with: run 'papa run' on it first, with average among its constants"
        )
    frames = [
        {
            name: frame.assign(encoder=one.label, task=one.task.name)
            for name, frame in _described(stored, one, wanted, limit).items()
        }
        for one in averages
    ]
    return {name: pd.concat([own[name] for own in frames], ignore_index=True) for name in wanted}


def _described(
    stored: StoredStudy, one: Averaged, names: Sequence[str], limit: int
) -> dict[str, pd.DataFrame]:
    from papa.attention.constants import ConstantMatrices
    from papa.corpora.batches import micro_batches
    from papa.corpora.tokens import special_tokens_of
    from papa.descriptions.table import described
    from papa.encoders.encoder import load_encoder

    assert isinstance(one.constants, Average)
    constants = ConstantMatrices.load(
        stored.found[one.constants].folder, encoder=one.encoder, slots=one.task.slots
    )
    split = open_corpus(stored.found[one.constants.corpus]).split("validation")
    encoder, rows = load_encoder(one.encoder), split.rows[:limit]
    batches = micro_batches(split, rows, encoder.tokens_per_batch(None))
    separator = special_tokens_of(load_tokenizer(one.encoder)).sep
    return described(encoder, constants, batches, separator, names)
