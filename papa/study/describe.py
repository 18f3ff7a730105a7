"""What the heads of a finished study do, beside its constant matrices."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

from papa.encoders.reference import load_tokenizer
from papa.errors import SpecError
from papa.spec.cells import Cell
from papa.study.average import Average
from papa.study.kept import digests, keep
from papa.study.probe import read_scores
from papa.study.stored import StoredStudy
from papa.study.tokenise import open_corpus

if TYPE_CHECKING:
    import pandas as pd

    from papa.corpora.treebank import LaidTrees, Tree
    from papa.spec.orders import Head
    from papa.study.average import Averaged


def describe_study(
    stored: StoredStudy,
    names: Sequence[str] | None,
    limit: int,
    trees: Path | None = None,
    fraction: float = 0.0,
) -> dict[str, pd.DataFrame]:
    """Descriptions of the first validation rows of every task, with the study's own average as the
    constant matrices, and of sentences with gold trees: a data frame for each, with the columns
    ``encoder`` and ``task``.

    In the replaced model ``fraction`` of the heads stay input-dependent: those of the study's cell
    with its average and its first head order; 0 needs no such cell.
    """
    from papa.corpora.treebank import read_trees
    from papa.descriptions.seen import TEXTS
    from papa.descriptions.table import OF_TREES, chosen

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
    needed = trees if set(wanted) & set(OF_TREES) else None
    sentences = None if needed is None else read_trees(needed)[:limit]
    # All that can be wrong is found before the first is described.
    prepared = [
        (averaged, _laid(averaged, sentences), _constant_heads(stored, averaged, fraction))
        for averaged in averages
    ]
    parts: dict[str, list[pd.DataFrame]] = {name: [] for name in wanted}
    for averaged, laid, heads in prepared:
        of: dict[str, object] = {"encoder": averaged.label, "task": averaged.task.name}
        if heads is not None:
            of |= {"order": stored.inputs.study.orders[0], "fraction": fraction}
        for name, frame in _described(stored, averaged, wanted, limit, laid, heads).items():
            source = needed.name if needed and name in OF_TREES else "validation rows"
            frame.attrs[TEXTS] = [of | {"source": source} | frame.attrs[TEXTS][0]]
            parts[name].append(frame.assign(encoder=averaged.label, task=averaged.task.name))
    return {name: _joined(own) for name, own in parts.items()}


def _joined(frames: Sequence[pd.DataFrame]) -> pd.DataFrame:
    import pandas as pd

    from papa.descriptions.seen import TEXTS

    joined = pd.concat(frames, ignore_index=True)
    joined.attrs[TEXTS] = [record for frame in frames for record in frame.attrs[TEXTS]]
    return joined


def _laid(averaged: Averaged, sentences: Sequence[Tree] | None) -> LaidTrees | None:
    from papa.corpora.tokens import special_tokens_of
    from papa.corpora.treebank import lay_out

    if sentences is None:
        return None
    tokenizer = load_tokenizer(averaged.encoder)
    return lay_out(sentences, tokenizer, special_tokens_of(tokenizer), averaged.task.slots)


def _constant_heads(
    stored: StoredStudy, averaged: Averaged, fraction: float
) -> Sequence[Head] | None:
    """The constant heads of the cell of a fraction; None where all are."""
    if fraction == 0:
        return None
    order = stored.inputs.study.orders[0]
    wanted = Cell(averaged.label, averaged.task.name, "average", order, fraction)
    alike = {
        cell.fraction: steps
        for cell, steps in stored.steps.cells.items()
        if replace(cell, fraction=fraction) == wanted
    }
    steps = next((own for at, own in alike.items() if abs(at - fraction) < 1e-6), ())
    if len(steps) > 1:
        raise SpecError(
            f"order '{order}' makes other heads constant for each seed of study "
            f"'{stored.inputs.study.name}': give another with --set, such as --set "
            "'orders=[first_to_last]', or leave --fraction out, which makes all heads constant"
        )
    if not steps or steps[0] not in stored.found:
        finished = [f"{at:g}" for at, (first, *_) in alike.items() if first in stored.found]
        raise SpecError(
            f"study '{stored.inputs.study.name}' has no finished cell of {wanted.encoder} on "
            f"{wanted.task} with average, order '{order}' and fraction {fraction:g}: give "
            f"--fraction {' or '.join(finished) or '0'}"
        )
    return read_scores(stored.found[steps[0]].folder).constant_heads


def _described(
    stored: StoredStudy,
    averaged: Averaged,
    names: Sequence[str],
    limit: int,
    laid: LaidTrees | None,
    heads: Sequence[Head] | None,
) -> dict[str, pd.DataFrame]:
    from papa.attention.constants import ConstantMatrices
    from papa.corpora.batches import micro_batches
    from papa.corpora.tokens import special_tokens_of
    from papa.descriptions.table import OF_TREES, described
    from papa.encoders.encoder import load_encoder

    assert isinstance(averaged.constants, Average)
    constants = ConstantMatrices.load(
        stored.found[averaged.constants].folder,
        encoder=averaged.encoder,
        slots=averaged.task.slots,
    )
    separator = special_tokens_of(load_tokenizer(averaged.encoder)).sep
    split = open_corpus(stored.found[averaged.constants.corpus]).split("validation")
    encoder = load_encoder(averaged.encoder)
    of_rows = [name for name in names if name not in OF_TREES]
    of_trees = [name for name in names if name in OF_TREES]
    found = {}
    if of_rows:
        rows = micro_batches(split, split.rows[:limit], 1)
        found = described(encoder, constants, rows, separator, of_rows, heads=heads)
    if laid is not None and of_trees:
        sentences = laid.batches(1)
        found |= described(
            encoder, constants, sentences, separator, of_trees, laid=laid, heads=heads
        )
    return found


def keep_described(stored: StoredStudy, frames: Mapping[str, pd.DataFrame]) -> Path:
    """Keep what ``describe_study`` told beside the study's results; returns the folder."""
    averages = [averaged for part in stored.steps.parts for averaged in part.averaged]
    return keep(stored.store, stored.inputs.study.name, digests(averages, stored.found), frames)
