"""A task's text as tokens in slots, stored once as Arrow shards and read memory-mapped."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property, lru_cache
from itertools import accumulate
from pathlib import Path
from types import MappingProxyType
from typing import TYPE_CHECKING, NotRequired, TypedDict

import numpy as np
import pyarrow as pa
import pyarrow.ipc
from jaxtyping import Int, Int64

from papa.errors import ArtifactError, joined
from papa.progress import Progress, ignore_progress
from papa.spec import LayoutSpec, TaskKind, TaskSpec
from papa.storage.artifacts import ArtifactReference, published, read_metadata, verified
from papa.storage.files import Address
from papa.text.layout import Labels, PackedTokens, lay_out_rows, offsets_of, positions_in_spans
from papa.text.rows import read_rows
from papa.text.sources import SPLITS, Split
from papa.text.tokens import IGNORED

if TYPE_CHECKING:
    from transformers import PreTrainedTokenizerBase

TOKENISE_VERSION = 5
"""Raised whenever the same rows would give other tokens, slots or labels."""
CORPUS = "corpus.json"
"""What a corpus holds besides its tokens: a file, so that the artifact's digest covers it."""
RowNumbers = Sequence[int] | Int[np.ndarray, " n"]


class ShardEntry(TypedDict):
    """A shard of a split: its file in the artifact and how many rows it holds."""

    file: str
    rows: int


class CorpusDocument(TypedDict):
    """The content of ``CORPUS``; counts are by split."""

    kind: TaskKind
    slots: int
    validation_slots: NotRequired[int]
    label_names: Sequence[str] | None
    notes: Mapping[str, Sequence[str]]
    rows: Mapping[Split, int]
    tokens: dict[Split, int]
    texts_cut: dict[Split, int]
    words_cut: dict[Split, int]
    shards: dict[Split, list[ShardEntry]]


def write_shard(path: Path, tokens: PackedTokens, labels: Labels, *, label_per_token: bool) -> None:
    """Write rows as an Arrow file; its columns are the corpus's format on disk."""
    offsets = pa.array(tokens.offsets.astype(np.int32))
    slot_type = np.int16 if tokens.slot_ids.max(initial=0) < 2**15 else np.int32

    def lists(values: np.ndarray) -> pa.ListArray:
        return pa.ListArray.from_arrays(offsets, pa.array(values))

    batch = pa.record_batch(
        {
            "input_ids": lists(tokens.input_ids),
            "slots": lists(tokens.slot_ids.astype(slot_type)),
            "token_type_ids": lists(tokens.token_type_ids),
            "label": lists(labels.astype(np.int32)) if label_per_token else pa.array(labels),
            "n_first": pa.array(tokens.first_lengths.astype(np.int32)),
        }
    )
    with pa.OSFile(str(path), "wb") as sink, pa.ipc.new_file(sink, batch.schema) as writer:
        writer.write_batch(batch)


@dataclass(frozen=True)
class TokenisedSplit:
    """The rows of one split, or of one shard of it; ``rows`` are always numbers in the split.

    ``starts`` are the numbers of each shard's first row, and one past the last row of all;
    ``shuffled`` is the seed that permutes training labels, None where they stay.
    """

    shards: tuple[Path, ...]
    kind: TaskKind
    slots: int
    starts: tuple[int, ...]
    name: str
    shuffled: int | None = None

    def __len__(self) -> int:
        return self.starts[-1] - self.starts[0]

    @property
    def rows(self) -> Int64[np.ndarray, " rows"]:
        return np.arange(self.starts[0], self.starts[-1])

    @property
    def label_per_token(self) -> bool:
        return self.kind in ("words", "mlm", "causal")

    def shard(self, index: int) -> TokenisedSplit:
        return replace(self, shards=(self.shards[index],), starts=self.starts[index : index + 2])

    @cached_property
    def _opened(self) -> tuple[PackedTokens, Labels]:
        """The tokens and labels; of one shard, views on the mapped file."""
        shards = [pa.ipc.open_file(pa.memory_map(str(path))).read_all() for path in self.shards]
        # The slots of a shard may need more bits than those of another.
        whole = pa.concat_tables(shards, promote_options="permissive")
        (batch,) = whole.combine_chunks().to_batches()
        ids, slots, types, labels, first_lengths = (
            (column.values if pa.types.is_list(column.type) else column).to_numpy()
            for column in batch.columns
        )
        lengths = np.diff(batch.column("input_ids").offsets).astype(np.int64)
        return PackedTokens(ids, slots, types, lengths, first_lengths.astype(np.int64)), labels

    @property
    def lengths(self) -> Int64[np.ndarray, " rows"]:
        """Real tokens of each row, special ones included."""
        return self.tokens().lengths

    @property
    def first_lengths(self) -> Int64[np.ndarray, " rows"]:
        """Text tokens of each row's first (or only) text."""
        return self.tokens().first_lengths

    @cached_property
    def labels(self) -> Labels:
        labels = self._opened[1]
        labels = labels.astype(labels.dtype if labels.dtype == np.float32 else np.int64)
        if self.shuffled is not None:
            scored = labels != IGNORED if self.label_per_token else np.ones(len(labels), bool)
            # The 1 separates this stream from others of the same seed.
            generator = np.random.default_rng((self.shuffled, 1))
            labels[scored] = generator.permutation(labels[scored])
        return labels

    @cached_property
    def probed_lengths(self) -> Int64[np.ndarray, " rows"]:
        """The number of tokens of each row that a probe reads: labelled ones, or all where
        labels are of rows.
        """
        if not self.label_per_token:
            return self.lengths
        return np.diff(offsets_of(self.labels != IGNORED)[self.tokens().offsets])

    def index_of(self, rows: RowNumbers) -> Int64[np.ndarray, " n"]:
        """Return where the rows with these numbers are in the arrays of this view."""
        rows = np.asarray(rows, dtype=np.int64)
        if len(rows) and (rows.min() < self.starts[0] or rows.max() >= self.starts[-1]):
            raise IndexError(
                f"rows {rows.min()} to {rows.max()} are not all within "
                f"{self.starts[0]} to {self.starts[-1] - 1}"
            )
        return rows - self.starts[0]

    def tokens(self, rows: RowNumbers | None = None) -> PackedTokens:
        """Return the real tokens of the rows with these numbers, in this order; None takes all."""
        all_tokens = self._opened[0]
        return all_tokens if rows is None else all_tokens.take(self.index_of(rows))

    def labels_of(self, rows: RowNumbers) -> Labels:
        """Return the labels of the rows with these numbers, or of all their tokens."""
        index = self.index_of(rows)
        if not self.label_per_token:
            return self.labels[index]
        tokens = self.tokens()
        return self.labels[positions_in_spans(tokens.offsets[index], tokens.lengths[index])]


@dataclass(frozen=True)
class TokenisedCorpus:
    """Both splits of one task, laid out for one tokenizer; ``label_names`` is None without classes,
    ``shuffled`` the seed that permutes training labels.
    """

    folder: Path
    kind: TaskKind
    slots: int
    label_names: tuple[str, ...] | None
    metadata: CorpusDocument
    shuffled: int | None = None

    def split(self, name: Split) -> TokenisedSplit:
        shards = self.metadata["shards"][name]
        slots = self.slots
        if name == "validation":
            slots = self.metadata.get("validation_slots", slots)
        return TokenisedSplit(
            shards=tuple(self.folder / shard["file"] for shard in shards),
            kind=self.kind,
            slots=slots,
            starts=tuple(accumulate((shard["rows"] for shard in shards), initial=0)),
            name=name,
            shuffled=self.shuffled if name == "train" else None,
        )


def load_corpus(artifact: ArtifactReference | Address) -> TokenisedCorpus:
    """Open a corpus after checking every file against its digest."""
    folder = verified(artifact, CORPUS)
    document: CorpusDocument = json.loads((folder / CORPUS).read_text(encoding="utf-8"))
    shard_files = {shard["file"] for split in SPLITS for shard in document["shards"][split]}
    missing = shard_files - read_metadata(artifact)["files"].keys()
    if missing:
        raise ArtifactError(
            f"{artifact}: {CORPUS} names {joined(sorted(missing))}, which the artifact does not "
            "have: delete the artifact and run again"
        )
    label_names = document["label_names"]
    return TokenisedCorpus(
        folder=folder,
        kind=document["kind"],
        slots=document["slots"],
        label_names=tuple(label_names) if label_names else None,
        metadata=document,
    )


def open_corpus(artifact: ArtifactReference) -> TokenisedCorpus:
    """Open a corpus; a process checks each once, and again after it was recomputed."""
    return _open_once(artifact, read_metadata(artifact)["data"])


@lru_cache(maxsize=8)
def _open_once(artifact: ArtifactReference, data_id: str) -> TokenisedCorpus:
    """Return the corpus; ``data_id``, new with every computation, only keys the cache."""
    return load_corpus(artifact)


def tokenise_corpus(
    task: TaskSpec,
    layout: LayoutSpec,
    tokenizer: PreTrainedTokenizerBase,
    folder: Address,
    *,
    shard_rows: int,
    content: str | None = None,
    progress: Progress = ignore_progress,
    provenance: Mapping[str, object] = MappingProxyType({}),
) -> Address:
    """Read rows of a source with this fingerprint, ``content``, lay them out in shards of
    ``shard_rows`` and publish them in ``folder``, with ``provenance`` in the artifact's metadata.
    """
    rows = read_rows(task, content)
    per_token = task.kind in ("words", "mlm", "causal")
    tables = {"train": rows.train, "validation": rows.validation}
    # Counts and shards fill up while shards are written: ``published`` writes the metadata after
    # the last one.
    document: CorpusDocument = {
        "kind": task.kind,
        "slots": task.slots,
        "label_names": rows.label_names,
        "notes": {"warnings": rows.warnings},
        "rows": {"train": rows.train.num_rows, "validation": rows.validation.num_rows},
        "tokens": dict.fromkeys(SPLITS, 0),
        "texts_cut": dict.fromkeys(SPLITS, 0),
        "words_cut": dict.fromkeys(SPLITS, 0),
        "shards": {split: [] for split in SPLITS},
    }
    if task.validation_slots:
        document["validation_slots"] = task.validation_slots
    metadata = {**provenance, "stage": "tokenise", "version": TOKENISE_VERSION, **document}
    with published(folder, metadata) as scratch:
        done = 0
        total = sum(document["rows"].values())
        for split in SPLITS:
            shards = document["shards"][split]
            for start in range(0, tables[split].num_rows, shard_rows):
                table = tables[split].slice(start, shard_rows)
                shard = lay_out_rows(task, layout, tokenizer, table, split, start)
                file = f"{split}-{len(shards):05d}.arrow"
                write_shard(scratch / file, shard.tokens, shard.labels, label_per_token=per_token)
                shards.append({"file": file, "rows": table.num_rows})
                document["tokens"][split] += len(shard.tokens.input_ids)
                document["texts_cut"][split] += shard.truncated_texts
                document["words_cut"][split] += shard.truncated_words
                done += table.num_rows
                progress(done, total)
        text = json.dumps(document, indent=1, ensure_ascii=False)
        (scratch / CORPUS).write_text(f"{text}\n", encoding="utf-8")
    return folder
