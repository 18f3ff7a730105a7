"""A task's text as tokens in slots, stored once and read memory-mapped."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from itertools import accumulate
from pathlib import Path
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, Protocol, runtime_checkable

import numpy as np
import pyarrow as pa

from papa.corpora.layout import (
    arrange_causal,
    arrange_one,
    arrange_pair,
    pair_capacity,
    text_capacity,
)
from papa.corpora.ragged import PackedTokens, Ragged
from papa.corpora.rows import TaskRows, read_rows
from papa.corpora.sources import SPLITS, Split, fingerprint
from papa.corpora.split import Labels, TokenisedSplit, write_shard
from papa.corpora.tokens import (
    IGNORED,
    masked,
    special_tokens_for,
    tokens_of_texts,
    tokens_of_words,
)
from papa.errors import ArtifactError
from papa.progress import Progress, ignore_progress
from papa.spec import LayoutSpec, TaskKind, TaskSpec
from papa.storage.artifacts import Address, published, reading, reference, verify

if TYPE_CHECKING:
    from transformers import PreTrainedTokenizerBase

TOKENISE_VERSION = 4
"""Raised whenever the same rows would give other tokens, slots or labels."""
STAGE = "tokenise"
CORPUS = "corpus.json"
"""What a corpus holds besides its tokens: a file, so that the artifact's digest covers it."""


@runtime_checkable
class TokenizerOwner(Protocol):
    """What a corpus keeps of the encoder that it is laid out for (``papa.encoders.reference``)."""

    @property
    def name(self) -> str: ...
    @property
    def tokenizer_digest(self) -> str: ...


@dataclass(frozen=True)
class TokenisedCorpus:
    """Both splits of one task, laid out for one tokenizer; the classes' names are None for
    regression and masked language models. Training labels are shuffled by a seed, if there is one.
    """

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


def load_corpus(address: Path) -> TokenisedCorpus:
    """Open the corpus at ``address`` after checking every file against its digest."""
    metadata, folder = verify(address, CORPUS), reference(address).folder
    with reading(address):
        held = json.loads((folder / CORPUS).read_text(encoding="utf-8"))
        for shard in (shard for name in SPLITS for shard in held["shards"][name]):
            if shard["file"] not in metadata["files"]:
                raise ArtifactError(
                    f"{address} names a shard {shard['file']!r} that is none of its files: delete "
                    f"{address} and run again"
                )
        names = held["label_names"]
        corpus = TokenisedCorpus(
            folder=folder,
            kind=held["kind"],
            slots=held["slots"],
            label_names=None if names is None else tuple(names),
            metadata={**metadata, **held},
        )
        for name in SPLITS:
            corpus.split(name).check(None if names is None else len(names))
        return corpus


def tokenise_corpus(
    task: TaskSpec,
    layout: LayoutSpec,
    tokenizer: PreTrainedTokenizerBase,
    encoder: TokenizerOwner,
    folder: Address,
    *,
    shard_rows: int,
    content: str | None = None,
    progress: Progress = ignore_progress,
    provenance: Mapping[str, Any] = MappingProxyType({}),
) -> Address:
    """Read a task's rows, lay them out and publish them as an artifact at ``folder``.

    Args:
        encoder: whose tokenizer it is.
        content: the fingerprint that the source must have; None takes the one that it has.
    """
    writer = _Writer(task, layout, tokenizer)
    content = content or fingerprint(task.source)
    rows = read_rows(task, content)
    total = rows.train.num_rows + rows.validation.num_rows
    # The counts fill up while shards are written; both documents are stored after the last.
    held: dict[str, Any] = {
        "kind": task.kind,
        "slots": task.slots,
        **({"validation_slots": task.validation_slots} if task.validation_slots else {}),
        "label_names": rows.label_names,
        "notes": rows.notes,
        "rows": {name: rows.split(name).num_rows for name in SPLITS},
        "tokens": writer.tokens,
        "texts_cut": writer.texts_cut,
        "words_cut": writer.words_cut,
        "shards": writer.shards,
    }
    metadata = {
        **provenance,
        "stage": STAGE,
        "version": TOKENISE_VERSION,
        "task": task.name,
        "layout": layout.model_dump(),
        "encoder": encoder.name,
        "tokenizer_digest": encoder.tokenizer_digest,
        "corpus_fingerprint": content,
        "labelled_tokens": writer.labelled,
        **held,
    }
    with published(folder, metadata) as scratch:
        done = 0
        for written in writer.write(rows, scratch, shard_rows):
            done += written
            progress(done, total)
        (scratch / CORPUS).write_text(
            json.dumps(held, indent=1, ensure_ascii=False) + "\n", encoding="utf-8"
        )
    return folder


class _Writer:
    """Writes shards and keeps count of what the layout had to cut."""

    def __init__(
        self,
        task: TaskSpec,
        layout: LayoutSpec,
        tokenizer: PreTrainedTokenizerBase,
    ) -> None:
        self.task, self.layout, self.tokenizer = task, layout, tokenizer
        self.special_tokens = special_tokens_for(task.kind, tokenizer)
        self.capacity = text_capacity(layout, task.kind, task.slots)
        self.label_per_token = task.kind in ("words", "mlm", "causal")
        self.tokens, self.labelled, self.texts_cut, self.words_cut = (
            dict.fromkeys(SPLITS, 0) for _ in range(4)
        )
        self.shards: dict[str, list[dict[str, Any]]] = {name: [] for name in SPLITS}

    def write(self, rows: TaskRows, folder: Path, shard_rows: int) -> Iterator[int]:
        """Write all shards, yielding the number of rows after each."""
        for name in SPLITS:
            table = rows.split(name)
            for index, start in enumerate(range(0, table.num_rows, shard_rows)):
                part = table.slice(start, shard_rows)
                arranged, labels = self._arranged(part, name, start)
                file = f"{name}-{index:05d}.arrow"
                write_shard(folder / file, arranged, labels, label_per_token=self.label_per_token)
                self.shards[name].append({"file": file, "rows": part.num_rows})
                self.tokens[name] += len(arranged.input_ids)
                self.labelled[name] += self.count_labelled(labels)
                yield part.num_rows

    def count_labelled(self, labels: Labels) -> int:
        """Tokens with a label of their own."""
        return int((labels != IGNORED).sum()) if self.label_per_token else 0

    def _arranged(self, part: pa.Table, split: Split, start: int) -> tuple[PackedTokens, Labels]:
        special_tokens, slots = self.special_tokens, self.task.slots
        match self.task.kind:
            case "text" | "similarity":
                texts = self._cut(self._texts(part, "text"), split)
                return arrange_one(texts, special_tokens, slots), part["label"].to_numpy()
            case "pair":
                limits = pair_capacity(special_tokens, slots)
                first, second = self._texts(part, "text"), self._texts(part, "text_pair")
                too_long = (first.lengths > limits[0]) | (second.lengths > limits[1])
                self.texts_cut[split] += int(too_long.sum())
                arranged = arrange_pair(
                    first, second, special_tokens, self.layout.segment_ids, slots
                )
                return arranged, part["label"].to_numpy()
            case "mlm":
                texts = self._cut(self._texts(part, "text"), split)
                shown, labels = masked(
                    texts, special_tokens, self.task.mask_seed, SPLITS.index(split), start
                )
                arranged = arrange_one(shown, special_tokens, slots)
                return arranged, arranged.spread(labels, IGNORED)
            case "causal":
                texts = self._texts(part, "text")
                if split == "validation":
                    slots = self.task.validation_slots or slots
                self.texts_cut[split] += int((texts.lengths > slots).sum())
                return arrange_causal(texts, special_tokens, slots)
            case _:
                return self._arranged_words(part, split)

    def _arranged_words(self, part: pa.Table, split: Split) -> tuple[PackedTokens, Labels]:
        words = pa.concat_arrays(part["words"].chunks)
        tokens, firsts = tokens_of_words(self.tokenizer, self.special_tokens, words)
        kept = firsts.cut(self.capacity).values
        self.words_cut[split] += int((firsts.values >= 0).sum() - (kept >= 0).sum())
        word_labels = pa.concat_arrays(part["label"].chunks).flatten().to_numpy()
        labels = np.full(len(kept), IGNORED, np.int64)
        labels[kept >= 0] = word_labels[kept[kept >= 0]]
        arranged = arrange_one(self._cut(tokens, split), self.special_tokens, self.task.slots)
        return arranged, arranged.spread(labels, IGNORED)

    def _texts(self, part: pa.Table, column: str) -> Ragged:
        return tokens_of_texts(self.tokenizer, self.special_tokens, part[column].to_pylist())

    def _cut(self, texts: Ragged, split: Split) -> Ragged:
        self.texts_cut[split] += int((texts.lengths > self.capacity).sum())
        return texts.cut(self.capacity)
