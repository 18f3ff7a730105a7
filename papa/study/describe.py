"""What the heads of a finished study do, beside its constant matrices; and where that is kept, for
the study's report.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from papa.encoders.reference import load_tokenizer
from papa.errors import SpecError
from papa.storage.artifacts import (
    ArtifactReference,
    is_sound,
    published,
    read_metadata,
    reading,
    remove,
    verify,
)
from papa.study.probe import read_scores
from papa.study.results import StudyPart
from papa.study.step import Step
from papa.study.store import Store, claimed
from papa.study.tokenise import open_corpus

if TYPE_CHECKING:
    import pandas as pd

    from papa.corpora.treebank import LaidTrees, Tree
    from papa.spec.orders import Head
    from papa.study.stored import StoredStudy

FOLDER = "descriptions"
VERSION = 2
"""Of what is in the files: what another version of PAPA kept is not shown."""


def digests(parts: Iterable[StudyPart], found: Mapping[Step, ArtifactReference]) -> dict[str, str]:
    """Of the averages that are finished, by encoder and task: what descriptions are of."""
    return {" · ".join(part.pair): average.digest for part, average in _averaged(parts, found)}


def _averaged(
    parts: Iterable[StudyPart], found: Mapping[Step, ArtifactReference]
) -> list[tuple[StudyPart, ArtifactReference]]:
    return [(part, found[part.average]) for part in parts if part.average and part.average in found]


def keep(
    store: Store, study: str, averages: Mapping[str, str], frames: Mapping[str, pd.DataFrame]
) -> Path:
    """Write a Parquet file for each description; what was kept of others with the same averages
    stays.
    """
    folder = store.study(study) / FOLDER
    with claimed(store, f"study-{study}"):
        frames = {**kept(store, study, averages), **frames}
        remove(folder)
        with published(folder, {"averages": dict(averages), "version": VERSION}) as scratch:
            for name, frame in frames.items():
                frame.to_parquet(scratch / f"{name}.parquet", index=False)
    return folder


def kept(store: Store, study: str, averages: Mapping[str, str]) -> dict[str, pd.DataFrame]:
    """What was kept, by name of the description; nothing where it is damaged, or the study has
    other averages now.
    """
    import pandas as pd

    from papa.descriptions.table import DESCRIPTIONS

    folder = store.study(study) / FOLDER
    if not is_sound(folder):
        return {}
    metadata = read_metadata(folder)
    if (metadata.get("averages"), metadata.get("version")) != (averages, VERSION):
        return {}
    files = verify(folder)["files"]
    with reading(folder):
        return {
            name: pd.read_parquet(folder / f"{name}.parquet")
            for name in DESCRIPTIONS
            if f"{name}.parquet" in files
        }


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
        (part, average)
        for part, average in _averaged(stored.steps.parts, stored.found)
        if not part.encoder.causal
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
        (part, average, _laid(part, sentences), _constant_heads(stored, part, fraction))
        for part, average in averages
    ]
    frames: dict[str, list[pd.DataFrame]] = {name: [] for name in wanted}
    for part, average, laid, heads in prepared:
        of: dict[str, object] = {"encoder": part.encoder_label, "task": part.task.name}
        if heads is not None:
            of |= {"order": stored.inputs.study.orders[0], "fraction": fraction}
        corpus = stored.found[part.corpus]
        for name, frame in _described(part, average, corpus, wanted, limit, laid, heads).items():
            source = needed.name if needed and name in OF_TREES else "validation rows"
            frame.attrs[TEXTS] = [of | {"source": source} | frame.attrs[TEXTS][0]]
            frames[name].append(frame.assign(encoder=part.encoder_label, task=part.task.name))
    return {name: _joined(own) for name, own in frames.items()}


def _joined(frames: Sequence[pd.DataFrame]) -> pd.DataFrame:
    import pandas as pd

    from papa.descriptions.seen import TEXTS

    joined = pd.concat(frames, ignore_index=True)
    joined.attrs[TEXTS] = [record for frame in frames for record in frame.attrs[TEXTS]]
    return joined


def _laid(part: StudyPart, sentences: Sequence[Tree] | None) -> LaidTrees | None:
    from papa.corpora.tokens import special_tokens_of
    from papa.corpora.treebank import lay_out

    if sentences is None:
        return None
    tokenizer = load_tokenizer(part.encoder)
    return lay_out(sentences, tokenizer, special_tokens_of(tokenizer), part.task.slots)


def _constant_heads(stored: StoredStudy, part: StudyPart, fraction: float) -> Sequence[Head] | None:
    """The constant heads of the cell of a fraction; None where all are."""
    if fraction == 0:
        return None
    order = stored.inputs.study.orders[0]
    alike = {
        cell.fraction: steps
        for cell, steps in part.cells.items()
        if (cell.constants, cell.order) == ("average", order)
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
            f"study '{stored.inputs.study.name}' has no finished cell of {part.encoder_label} on "
            f"{part.task.name} with average, order '{order}' and fraction {fraction:g}: give "
            f"--fraction {' or '.join(finished) or '0'}"
        )
    return read_scores(stored.found[steps[0]]).constant_heads


def _described(
    part: StudyPart,
    average: ArtifactReference,
    corpus: ArtifactReference,
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

    constants = ConstantMatrices.load(average.folder, encoder=part.encoder, slots=part.task.slots)
    separator = special_tokens_of(load_tokenizer(part.encoder)).sep
    split = open_corpus(corpus).split("validation")
    encoder = load_encoder(part.encoder)
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
    averages = digests(stored.steps.parts, stored.found)
    return keep(stored.store, stored.inputs.study.name, averages, frames)
