"""What the heads of a finished study's encoders do on its own texts."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from pandas import DataFrame

from papa.descriptions.registry import TREE_DESCRIPTIONS, chosen, described, joined
from papa.descriptions.treebank import lay_out, read_trees
from papa.errors import SpecError
from papa.heads.constants import ConstantMatrices
from papa.models.encoder import load_encoder
from papa.models.reference import load_tokenizer
from papa.spec.orders import Head
from papa.tasks.manifest import AverageEntry, FinishedStudy
from papa.text.batches import micro_batches
from papa.text.corpus import open_corpus
from papa.text.tokens import special_tokens_of


def describe_study(
    finished: FinishedStudy,
    names: Sequence[str] | None,
    limit: int,
    trees: Path | None,
    fraction: float,
) -> DataFrame:
    """Describe the first validation rows of every task, with the study's own average as the
    constant matrices, and sentences with gold trees, as ``papa.describe`` does.
    """
    wanted = chosen(names, trees is not None)
    manifest = finished.manifest
    entries = [entry for entry in manifest.averages if not manifest.encoders[entry.encoder].causal]
    if not entries:
        raise SpecError(
            f"study '{manifest.study}' has no average of an encoder, which papa describe needs: "
            "run it with 'average' in substitutes"
        )
    of_trees = [name for name in wanted if name in TREE_DESCRIPTIONS]
    sources = {"validation rows": [name for name in wanted if name not in TREE_DESCRIPTIONS]}
    sentences = read_trees(trees)[:limit] if trees and of_trees else []
    sources |= {trees.name: of_trees} if trees else {}
    # All that can be wrong is found before the first is described.
    constant = [_constant_heads(finished, entry, fraction) for entry in entries]
    frames = {}
    records = []
    for entry, heads in zip(entries, constant, strict=True):
        record = {"encoder": entry.encoder, "task": entry.task}
        if heads is not None:
            record |= {"order": finished.study.orders[0], "fraction": f"{fraction:g}"}
        reference = finished.encoder_here(entry.encoder)
        tokenizer = load_tokenizer(reference)
        encoder = load_encoder(reference)
        special = special_tokens_of(tokenizer)
        average = ConstantMatrices.load(
            finished.artifact(entry.artifact), encoder=reference, slots=entry.slots
        )
        split = open_corpus(finished.artifact(entry.text)).split("validation")
        for source, descriptions in sources.items():
            if not descriptions:
                continue
            laid = None
            batches = micro_batches(split, split.rows[:limit], 1)
            if descriptions is of_trees:
                laid = lay_out(sentences, tokenizer, special, entry.slots)
                batches = laid.batches(1)
            frame = described(
                encoder, average, batches, special.sep, descriptions, laid=laid, heads=heads
            )
            frames[entry.encoder, entry.task, source] = frame
            records.append({**record, "source": source, **frame.attrs["texts"][0]})
    return joined(frames, ["encoder", "task", "source"], records).drop(columns="source")


def _constant_heads(
    finished: FinishedStudy, entry: AverageEntry, fraction: float
) -> Sequence[Head] | None:
    """Return the constant heads of the cell of a fraction; None where all are."""
    if fraction == 0:
        return None
    study = finished.manifest.study
    order = finished.study.orders[0]
    line = entry.encoder, entry.task, "average", order
    cells = {round(cell.fraction, 6): cell for cell in finished.manifest.cells if cell.line == line}
    cell = cells.get(round(fraction, 6))
    if cell is None:
        raise SpecError(
            f"study '{study}' has no cell of {entry.encoder} on {entry.task} with average, "
            f"order '{order}' and keep {fraction:g}: give --keep "
            f"{' or '.join(f'{share:g}' for share in cells)}"
        )
    if cell.constant_heads is None:
        raise SpecError(
            f"order '{order}' has other constant heads for each seed of study '{study}': "
            "leave out --keep, which makes all heads constant"
        )
    return cell.constant_heads
