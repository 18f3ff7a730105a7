"""What the heads of a finished study do, beside its constant matrices."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from papa.encoders.reference import load_tokenizer
from papa.errors import SpecError
from papa.study.average import Average
from papa.study.kept import digests, keep
from papa.study.stored import StoredStudy
from papa.study.tokenise import open_corpus

if TYPE_CHECKING:
    import pandas as pd

    from papa.corpora.treebank import Tree
    from papa.study.average import Averaged


def describe_study(
    stored: StoredStudy,
    names: Sequence[str] | None,
    limit: int,
    trees: Sequence[Tree] | None = None,
) -> dict[str, pd.DataFrame]:
    """Descriptions of the first validation rows of every task, with the study's own average as the
    constant matrices, and of sentences with gold trees: a data frame for each, with the columns
    ``encoder`` and ``task``.
    """
    import pandas as pd

    from papa.descriptions.table import chosen

    wanted = chosen(names, trees is not None)
    averages = [
        averaged
        for part in stored.steps.parts
        for averaged in part.averaged
        if averaged.constants in stored.found and not averaged.encoder.causal
    ]
    if not averages:
        raise SpecError(
            f"study '{stored.inputs.study.name}' has no finished average of an encoder to describe "
            "its heads with: run 'papa run' on it first, with average among its constants"
        )
    frames = [
        {
            name: frame.assign(encoder=averaged.label, task=averaged.task.name)
            for name, frame in _described(stored, averaged, wanted, limit, trees).items()
        }
        for averaged in averages
    ]
    return {name: pd.concat([own[name] for own in frames], ignore_index=True) for name in wanted}


def _described(
    stored: StoredStudy,
    averaged: Averaged,
    names: Sequence[str],
    limit: int,
    trees: Sequence[Tree] | None,
) -> dict[str, pd.DataFrame]:
    from papa.attention.constants import ConstantMatrices
    from papa.corpora.batches import micro_batches
    from papa.corpora.tokens import special_tokens_of
    from papa.corpora.treebank import lay_out
    from papa.descriptions.table import OF_TREES, described
    from papa.encoders.encoder import load_encoder

    assert isinstance(averaged.constants, Average)
    slots, tokenizer = averaged.task.slots, load_tokenizer(averaged.encoder)
    constants = ConstantMatrices.load(
        stored.found[averaged.constants].folder, encoder=averaged.encoder, slots=slots
    )
    special_tokens = special_tokens_of(tokenizer)
    laid = None if trees is None else lay_out(trees, tokenizer, special_tokens, slots)
    split = open_corpus(stored.found[averaged.constants.corpus]).split("validation")
    encoder = load_encoder(averaged.encoder)
    rows = micro_batches(split, split.rows[:limit], encoder.tokens_per_batch(None))
    of_rows = [name for name in names if name not in OF_TREES]
    of_trees = [name for name in names if name in OF_TREES]
    found = described(encoder, constants, rows, special_tokens.sep, of_rows) if of_rows else {}
    if laid is not None and of_trees:
        batches = laid.batches(encoder.tokens_per_batch(None))
        found |= described(encoder, constants, batches, special_tokens.sep, of_trees, laid=laid)
    return found


def keep_described(stored: StoredStudy, frames: Mapping[str, pd.DataFrame]) -> Path:
    """Keep what ``describe_study`` told beside the study's results; returns the folder."""
    averages = [averaged for part in stored.steps.parts for averaged in part.averaged]
    return keep(stored.store, stored.inputs.study.name, digests(averages, stored.found), frames)
