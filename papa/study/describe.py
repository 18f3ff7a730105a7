"""What the heads of a finished study do, beside its own constant matrices."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from papa.encoders.reference import load_tokenizer
from papa.errors import SpecError
from papa.study.probe import read_scores
from papa.study.results import StudyPart
from papa.study.tokenise import open_corpus

if TYPE_CHECKING:
    import pandas as pd

    from papa.corpora.treebank import Tree
    from papa.spec.orders import Head
    from papa.study.stored import StoredStudy


def describe_study(
    stored: StoredStudy,
    names: Sequence[str] | None,
    limit: int,
    trees: Path | None = None,
    fraction: float = 0.0,
) -> pd.DataFrame:
    """Descriptions of the first validation rows of every task, with the study's own average as the
    constant matrices, and of sentences with gold trees: a frame as ``papa.describe`` gives it, with
    the encoder and the task.

    In the replaced model ``fraction`` of the heads stay input-dependent: those of the study's cell
    with its average and its first head order; 0 needs no such cell.
    """
    from papa.corpora.treebank import read_trees
    from papa.descriptions.table import OF_TREES, chosen, joined

    study = stored.inputs.study
    wanted, of_trees = chosen(names, trees is not None), trees.name if trees else ""
    parts = [
        part
        for part in stored.steps.parts
        if part.average and part.average in stored.found and not part.encoder.causal
    ]
    if not parts:
        raise SpecError(
            f"study '{study.name}' has no finished average of an encoder to describe its heads "
            "with: run 'papa run' on it first, with average among its constants"
        )
    sources: dict[str, list[str]] = {"validation rows": [], of_trees: []}
    for name in wanted:
        sources[of_trees if name in OF_TREES else "validation rows"].append(name)
    sentences = read_trees(trees)[:limit] if trees and sources[of_trees] else []
    # All that can be wrong is found before the first is described.
    constant = [_constant_heads(stored, part, fraction) for part in parts]
    frames, records = {}, []
    for part, heads in zip(parts, constant, strict=True):
        of = {"encoder": part.encoder_label, "task": part.task.name}
        if heads is not None:
            of |= {"order": study.orders[0], "fraction": f"{fraction:g}"}
        for source, asked in sources.items():
            if asked:
                own = sentences if source == of_trees else None
                frame = _described(stored, part, asked, own, limit, heads)
                records.append({**of, "source": source, **frame.attrs["texts"][0]})
                frames[*part.pair, source] = frame
    return joined(frames, ["encoder", "task", "source"], records).drop(columns="source")


def _constant_heads(stored: StoredStudy, part: StudyPart, fraction: float) -> Sequence[Head] | None:
    """The constant heads of the cell of a fraction; None where all are."""
    if fraction == 0:
        return None
    study, order = stored.inputs.study.name, stored.inputs.study.orders[0]
    alike = {
        cell.fraction: steps
        for cell, steps in part.cells.items()
        if (cell.constants, cell.order) == ("average", order)
    }
    steps = next((own for at, own in alike.items() if abs(at - fraction) < 1e-6), ())
    if len(steps) > 1:
        raise SpecError(
            f"order '{order}' makes other heads constant for each seed of study '{study}': give "
            "another with --set, such as --set 'orders=[first_to_last]', or leave --fraction out, "
            "which makes all heads constant"
        )
    if not steps or steps[0] not in stored.found:
        finished = [f"{at:g}" for at, (first, *_) in alike.items() if first in stored.found]
        raise SpecError(
            f"study '{study}' has no finished cell of {part.encoder_label} on {part.task.name} "
            f"with average, order '{order}' and fraction {fraction:g}: give --fraction "
            f"{' or '.join(finished) or '0'}"
        )
    return read_scores(stored.found[steps[0]]).constant_heads


def _described(
    stored: StoredStudy,
    part: StudyPart,
    names: Sequence[str],
    trees: Sequence[Tree] | None,
    limit: int,
    heads: Sequence[Head] | None,
) -> pd.DataFrame:
    """What descriptions tell of sentences with trees, or of the task's validation rows."""
    from papa.attention.constants import ConstantMatrices
    from papa.corpora.batches import micro_batches
    from papa.corpora.tokens import special_tokens_of
    from papa.corpora.treebank import lay_out
    from papa.descriptions.table import described
    from papa.encoders.encoder import load_encoder

    assert part.average
    folder, slots = stored.found[part.average].folder, part.task.slots
    tokenizer = load_tokenizer(part.encoder)
    special_tokens = special_tokens_of(tokenizer)
    laid = lay_out(trees, tokenizer, special_tokens, slots) if trees else None
    split = open_corpus(stored.found[part.corpus]).split("validation")
    return described(
        load_encoder(part.encoder),
        ConstantMatrices.load(folder, encoder=part.encoder, slots=slots),
        laid.batches(1) if laid else micro_batches(split, split.rows[:limit], 1),
        special_tokens.sep,
        names,
        laid=laid,
        heads=heads,
    )
