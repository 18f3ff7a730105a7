"""A task's text as tokens in slots, stored once as Arrow shards and read memory-mapped."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property, lru_cache
from itertools import accumulate
from pathlib import Path
from types import MappingProxyType
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa
import pyarrow.ipc
from jaxtyping import Int, Int64, Shaped

from papa.errors import ArtifactError
from papa.progress import Progress, ignore_progress
from papa.spec import LayoutSpec, TaskKind, TaskSpec
from papa.storage.artifacts import ArtifactReference, published, read_metadata, verified
from papa.storage.files import Address
from papa.text.layout import (
    PackedTokens,
    arrange_causal,
    arrange_one,
    arrange_pair,
    offsets_of,
    pair_capacity,
    positions_in_spans,
    text_capacity,
)
from papa.text.rows import read_rows
from papa.text.sources import SPLITS, Split
from papa.text.tokens import IGNORED, masked, special_tokens_of, tokens_of_texts, tokens_of_words

if TYPE_CHECKING:
    from transformers import PreTrainedTokenizerBase

TOKENISE_VERSION = 5
"""Raised whenever the same rows would give other tokens, slots or labels."""
CORPUS = "corpus.json"
"""What a corpus holds besides its tokens: a file, so that the artifact's digest covers it."""
Labels = Shaped[np.ndarray, " rows_or_tokens"]
"""int64 classes or float32 numbers, one a row; words and mlm: int64 a token, -100 not scored."""
Numbers = Sequence[int] | Int[np.ndarray, " n"]


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

    ``starts`` are the numbers of each shard's first row, and one past the last row of all; training
    labels change places by the seed ``shuffled``, if there is one.
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
            given = labels != IGNORED if self.label_per_token else np.ones(len(labels), bool)
            labels[given] = np.random.default_rng((self.shuffled, 1)).permutation(labels[given])
        return labels

    @cached_property
    def probed_lengths(self) -> Int64[np.ndarray, " rows"]:
        """Tokens of each row that a probe sees: the labelled ones, or all of a row with a label."""
        if not self.label_per_token:
            return self.lengths
        return np.diff(offsets_of(self.labels != IGNORED)[self.tokens().offsets])

    def index_of(self, rows: Numbers) -> Int64[np.ndarray, " n"]:
        """Where the rows with these numbers are in the arrays of this view."""
        rows = np.asarray(rows, dtype=np.int64)
        if len(rows) and (rows.min() < self.starts[0] or rows.max() >= self.starts[-1]):
            raise IndexError(f"rows {self.starts[0]} to {self.starts[-1] - 1} are here")
        return rows - self.starts[0]

    def tokens(self, rows: Numbers | None = None) -> PackedTokens:
        """The real tokens of the rows with these numbers, in this order; None takes all."""
        whole = self._opened[0]
        return whole if rows is None else whole.take(self.index_of(rows))

    def labels_of(self, rows: Numbers) -> Labels:
        """The labels of the rows with these numbers, or of all their tokens."""
        index, tokens = self.index_of(rows), self.tokens()
        if not self.label_per_token:
            return self.labels[index]
        return self.labels[positions_in_spans(tokens.offsets[index], tokens.lengths[index])]


@dataclass(frozen=True)
class TokenisedCorpus:
    """Both splits of one task, laid out for one tokenizer; ``label_names`` are of classes alone."""

    folder: Path
    kind: TaskKind
    slots: int
    label_names: tuple[str, ...] | None
    metadata: dict[str, Any]
    shuffled: int | None = None

    def split(self, name: Split) -> TokenisedSplit:
        shards = self.metadata["shards"][name]
        return TokenisedSplit(
            shards=tuple(self.folder / shard["file"] for shard in shards),
            kind=self.kind,
            slots=self.metadata.get(f"{name}_slots", self.slots),
            starts=tuple(accumulate((shard["rows"] for shard in shards), initial=0)),
            name=name,
            shuffled=self.shuffled if name == "train" else None,
        )


def load_corpus(artifact: ArtifactReference | Address) -> TokenisedCorpus:
    """Open a corpus after checking every file against its digest."""
    folder, metadata = verified(artifact, CORPUS), read_metadata(artifact)
    held = json.loads((folder / CORPUS).read_text(encoding="utf-8"))
    shards = {shard["file"] for name in SPLITS for shard in held["shards"][name]}
    if not shards <= metadata["files"].keys():
        raise ArtifactError(f"{artifact} names shards that are none of its files")
    names = held["label_names"] and tuple(held["label_names"])
    return TokenisedCorpus(folder, held["kind"], held["slots"], names, held)


def open_corpus(artifact: ArtifactReference) -> TokenisedCorpus:
    """Open a corpus; a process checks each once, and again where it was computed again."""
    return _open_once(artifact, read_metadata(artifact)["data"])


@lru_cache(maxsize=8)
def _open_once(artifact: ArtifactReference, data: str) -> TokenisedCorpus:
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
    provenance: Mapping[str, Any] = MappingProxyType({}),
) -> Address:
    """Read rows, lay them out and publish them; ``content`` is the fingerprint of their source."""
    rows = read_rows(task, content)
    per_token = task.kind in ("words", "mlm", "causal")
    tables = {"train": rows.train, "validation": rows.validation}
    counts = {key: dict.fromkeys(SPLITS, 0) for key in ("tokens", "texts_cut", "words_cut")}
    shards: dict[str, list[dict[str, Any]]] = {name: [] for name in SPLITS}
    # The counts fill up while shards are written; both documents are stored after the last.
    held: dict[str, Any] = {
        "kind": task.kind,
        "slots": task.slots,
        **({"validation_slots": task.validation_slots} if task.validation_slots else {}),
        "label_names": rows.label_names,
        "notes": {"warnings": rows.warnings},
        "rows": {name: table.num_rows for name, table in tables.items()},
        **counts,
        "shards": shards,
    }
    metadata = {**provenance, "stage": "tokenise", "version": TOKENISE_VERSION, **held}
    with published(folder, metadata) as scratch:
        done, total = 0, sum(held["rows"].values())
        for name in SPLITS:
            for start in range(0, tables[name].num_rows, shard_rows):
                part = tables[name].slice(start, shard_rows)
                arranged, labels, *cut = _laid_out(task, layout, tokenizer, part, name, start)
                file = f"{name}-{len(shards[name]):05d}.arrow"
                write_shard(scratch / file, arranged, labels, label_per_token=per_token)
                shards[name].append({"file": file, "rows": part.num_rows})
                for key, count in zip(counts, (len(arranged.input_ids), *cut), strict=True):
                    counts[key][name] += count
                progress(done := done + part.num_rows, total)
        text = json.dumps(held, indent=1, ensure_ascii=False)
        (scratch / CORPUS).write_text(f"{text}\n", encoding="utf-8")
    return folder


def _laid_out(
    task: TaskSpec,
    layout: LayoutSpec,
    tokenizer: PreTrainedTokenizerBase,
    part: pa.Table,
    split: Split,
    start: int,
) -> tuple[PackedTokens, Labels, int, int]:
    """The tokens and labels of rows; how many texts, and words with a label, are cut."""
    special_tokens = special_tokens_of(tokenizer, task.kind)
    slots = (split == "validation" and task.validation_slots) or task.slots
    kept, words_cut = text_capacity(layout, task.kind, slots), 0
    if task.kind == "pair":
        first = tokens_of_texts(tokenizer, special_tokens, part["text"].to_pylist())
        second = tokens_of_texts(tokenizer, special_tokens, part["text_pair"].to_pylist())
        most, least = pair_capacity(special_tokens, slots)
        cut = sum(len(a) > most or len(b) > least for a, b in zip(first, second, strict=True))
        arranged = arrange_pair(first, second, special_tokens, layout.segment_ids, slots)
        return arranged, part["label"].to_numpy(), cut, 0
    if task.kind == "words":
        texts, numbers = tokens_of_words(tokenizer, special_tokens, part["words"].to_pylist())
        labels = []
        for own, row in zip(part["label"].to_pylist(), numbers, strict=True):
            words = row[:kept]
            words_cut += len(own) - len({*words})
            # A word's label is its first token's.
            pairs = zip(words, [-1, *words], strict=False)
            labels.append([own[word] if word != before else IGNORED for word, before in pairs])
    else:
        texts = tokens_of_texts(tokenizer, special_tokens, part["text"].to_pylist())
    cut = sum(len(text) > kept for text in texts)
    if task.kind == "causal":
        return *arrange_causal(texts, special_tokens, slots), cut, 0
    texts = [text[:kept] for text in texts]
    if task.kind == "mlm":
        texts, labels = masked(texts, special_tokens, task.mask_seed, SPLITS.index(split), start)
    arranged = arrange_one(texts, special_tokens, slots)
    if task.kind not in ("words", "mlm"):
        return arranged, part["label"].to_numpy(), cut, 0
    # A label a token, back to back; the special tokens around each row's have none.
    flat = [label for row in labels for label in (IGNORED, *row, IGNORED)]
    return arranged, np.array(flat, np.int64), cut, words_cut
