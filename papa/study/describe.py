"""What the heads of a finished study do, beside its constant matrices; kept beside its results, for
its report.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from papa.encoders.reference import load_tokenizer
from papa.errors import SpecError
from papa.storage.artifacts import ArtifactReference
from papa.storage.atomic import write_atomically
from papa.study.probe import read_scores
from papa.study.results import StudyPart
from papa.study.step import Step
from papa.study.store import Store, claimed
from papa.study.tokenise import open_corpus

if TYPE_CHECKING:
    import pandas as pd

    from papa.corpora.treebank import LaidTrees, Tree
    from papa.reporting.sections import Section
    from papa.spec.orders import Head
    from papa.study.stored import StoredStudy

FILE = "descriptions.parquet"
_AVERAGES = "averages"


def digests(parts: Iterable[StudyPart], found: Mapping[Step, ArtifactReference]) -> dict[str, str]:
    """Of the averages that are finished, by encoder and task: what descriptions are of."""
    return {
        " · ".join(part.pair): found[part.average].digest
        for part in parts
        if part.average in found and part.average
    }


def kept_section(store: Store, study: str, averages: Mapping[str, str]) -> Section | None:
    """What was kept, as a section of the study's report; None where there is nothing, it cannot be
    read, or the study has other averages now.
    """
    import pandas as pd

    from papa.reporting.sections import descriptions_section

    try:
        frame = pd.read_parquet(store.study(study) / FILE)
    except (OSError, ValueError):
        return None
    return descriptions_section(frame) if frame.attrs.get(_AVERAGES) == averages else None


def keep_described(stored: StoredStudy, frame: pd.DataFrame) -> Path:
    """Keep what ``describe_study`` told; returns the file."""
    study, path = stored.inputs.study.name, stored.store.study(stored.inputs.study.name) / FILE
    frame.attrs[_AVERAGES] = digests(stored.steps.parts, stored.found)
    with claimed(stored.store, f"study-{study}"):
        path.parent.mkdir(parents=True, exist_ok=True)
        write_atomically(path, frame.to_parquet(index=False))
    return path


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

    wanted = chosen(names, trees is not None)
    parts = [
        part
        for part in stored.steps.parts
        if part.average and part.average in stored.found and not part.encoder.causal
    ]
    if not parts:
        raise SpecError(
            f"study '{stored.inputs.study.name}' has no finished average of an encoder to describe "
            "its heads with: run 'papa run' on it first, with average among its constants"
        )
    needed = trees if set(wanted) & set(OF_TREES) else None
    sentences = None if needed is None else read_trees(needed)[:limit]
    # All that can be wrong is found before the first is described.
    heads = [_constant_heads(stored, part, fraction) for part in parts]
    laid = [_laid(part, sentences) for part in parts]
    frames, records = {}, []
    for part, own, trees_of_part in zip(parts, heads, laid, strict=True):
        found = _described(stored, part, wanted, limit, trees_of_part, own)
        for source, frame in found.items():
            of = {"encoder": part.encoder_label, "task": part.task.name}
            if own is not None:
                of |= {"order": stored.inputs.study.orders[0], "fraction": str(fraction)}
            of["source"] = needed.name if needed and source == "trees" else "validation rows"
            records.append({**of, **frame.attrs["texts"][0]})
            frames[part.encoder_label, part.task.name, source] = frame
    return joined(frames, ["encoder", "task", "source"], records).drop(columns="source")


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
    study, order = stored.inputs.study.name, stored.inputs.study.orders[0]
    alike = {
        cell.fraction: steps
        for cell, steps in part.cells.items()
        if (cell.constants, cell.order) == ("average", order) and steps[0] in stored.found
    }
    steps = next((own for at, own in alike.items() if abs(at - fraction) < 1e-6), ())
    if len(steps) > 1:
        raise SpecError(
            f"order '{order}' makes other heads constant for each seed of study '{study}': give "
            "another with --set, such as --set 'orders=[first_to_last]', or leave --fraction out, "
            "which makes all heads constant"
        )
    if not steps:
        raise SpecError(
            f"study '{study}' has no finished cell of {part.encoder_label} on {part.task.name} "
            f"with average, order '{order}' and fraction {fraction:g}: give --fraction "
            f"{' or '.join(f'{at:g}' for at in alike) or '0'}"
        )
    return read_scores(stored.found[steps[0]]).constant_heads


def _described(
    stored: StoredStudy,
    part: StudyPart,
    names: Sequence[str],
    limit: int,
    laid: LaidTrees | None,
    heads: Sequence[Head] | None,
) -> dict[str, pd.DataFrame]:
    """What descriptions tell of the validation rows and of the trees."""
    from papa.attention.constants import ConstantMatrices
    from papa.corpora.batches import micro_batches
    from papa.corpora.tokens import special_tokens_of
    from papa.descriptions.table import OF_TREES, described
    from papa.encoders.encoder import load_encoder

    assert part.average
    folder, slots = stored.found[part.average].folder, part.task.slots
    constants = ConstantMatrices.load(folder, encoder=part.encoder, slots=slots)
    separator = special_tokens_of(load_tokenizer(part.encoder)).sep
    split, encoder = open_corpus(stored.found[part.corpus]).split("validation"), None
    found = {}
    for source, own in (("rows", None), ("trees", laid)):
        asked = [name for name in names if (name in OF_TREES) == (source == "trees")]
        if asked:
            encoder = encoder or load_encoder(part.encoder)
            batches = own.batches(1) if own else micro_batches(split, split.rows[:limit], 1)
            of_texts = encoder, constants, batches, separator
            found[source] = described(*of_texts, asked, laid=own, heads=heads)
    return found
