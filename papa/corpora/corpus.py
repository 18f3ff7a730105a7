"""A task's text as tokens in slots, stored once and read memory-mapped."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
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
from papa.corpora.ragged import PackedTokens
from papa.corpora.rows import read_rows
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
from papa.storage.artifacts import Address, ArtifactReference, published, read_metadata, verified

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


def load_corpus(artifact: ArtifactReference | Address) -> TokenisedCorpus:
    """Open a corpus after checking every file against its digest."""
    folder, metadata = verified(artifact, CORPUS), read_metadata(artifact)
    held = json.loads((folder / CORPUS).read_text(encoding="utf-8"))
    for shard in (shard["file"] for name in SPLITS for shard in held["shards"][name]):
        if shard not in metadata["files"]:
            raise ArtifactError(f"{artifact} names a shard {shard!r} that is none of its files")
    names = held["label_names"]
    return TokenisedCorpus(
        folder=folder,
        kind=held["kind"],
        slots=held["slots"],
        label_names=None if names is None else tuple(names),
        metadata={**metadata, **held},
    )


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
    layer_out = _Layout(task, layout, tokenizer)
    content = content or fingerprint(task.source)
    rows = read_rows(task, content)
    per_token = task.kind in ("words", "mlm", "causal")
    tokens, labelled = (dict.fromkeys(SPLITS, 0) for _ in range(2))
    shards: dict[str, list[dict[str, Any]]] = {name: [] for name in SPLITS}
    # The counts fill up while shards are written; both documents are stored after the last.
    held: dict[str, Any] = {
        "kind": task.kind,
        "slots": task.slots,
        **({"validation_slots": task.validation_slots} if task.validation_slots else {}),
        "label_names": rows.label_names,
        "notes": rows.notes,
        "rows": {name: rows.split(name).num_rows for name in SPLITS},
        "tokens": tokens,
        "texts_cut": layer_out.texts_cut,
        "words_cut": layer_out.words_cut,
        "shards": shards,
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
        "labelled_tokens": labelled,
        **held,
    }
    with published(folder, metadata) as scratch:
        done, total = 0, sum(held["rows"].values())
        for name in SPLITS:
            table = rows.split(name)
            for start in range(0, table.num_rows, shard_rows):
                part = table.slice(start, shard_rows)
                arranged, labels = layer_out.arranged(part, name, start)
                file = f"{name}-{len(shards[name]):05d}.arrow"
                write_shard(scratch / file, arranged, labels, label_per_token=per_token)
                shards[name].append({"file": file, "rows": part.num_rows})
                tokens[name] += len(arranged.input_ids)
                labelled[name] += int((labels != IGNORED).sum()) if per_token else 0
                done += part.num_rows
                progress(done, total)
        (scratch / CORPUS).write_text(
            json.dumps(held, indent=1, ensure_ascii=False) + "\n", encoding="utf-8"
        )
    return folder


class _Layout:
    """Lays rows out and counts what it has to cut."""

    def __init__(
        self, task: TaskSpec, layout: LayoutSpec, tokenizer: PreTrainedTokenizerBase
    ) -> None:
        self.task, self.layout, self.tokenizer = task, layout, tokenizer
        self.special_tokens = special_tokens_for(task.kind, tokenizer)
        self.capacity = text_capacity(layout, task.kind, task.slots)
        self.texts_cut, self.words_cut = (dict.fromkeys(SPLITS, 0) for _ in range(2))

    def arranged(self, part: pa.Table, split: Split, start: int) -> tuple[PackedTokens, Labels]:
        """The tokens and labels of some rows, the first of which has the number ``start``."""
        special_tokens, slots = self.special_tokens, self.task.slots
        if self.task.kind == "words":
            return self._arranged_words(part, split)
        first = self._texts(part, "text")
        match self.task.kind:
            case "pair":
                limits = pair_capacity(special_tokens, slots)
                second = self._texts(part, "text_pair")
                self.texts_cut[split] += sum(
                    len(a) > limits[0] or len(b) > limits[1]
                    for a, b in zip(first, second, strict=True)
                )
                arranged = arrange_pair(
                    first, second, special_tokens, self.layout.segment_ids, slots
                )
            case "mlm":
                shown, labels = masked(
                    self._cut(first, split),
                    special_tokens,
                    self.task.mask_seed,
                    SPLITS.index(split),
                    start,
                )
                return arrange_one(shown, special_tokens, slots), _framed(labels)
            case "causal":
                if split == "validation":
                    slots = self.task.validation_slots or slots
                self.texts_cut[split] += sum(len(text) > slots for text in first)
                return arrange_causal(first, special_tokens, slots)
            case _:
                arranged = arrange_one(self._cut(first, split), special_tokens, slots)
        return arranged, part["label"].to_numpy()

    def _arranged_words(self, part: pa.Table, split: Split) -> tuple[PackedTokens, Labels]:
        tokens, numbers = tokens_of_words(
            self.tokenizer, self.special_tokens, part["words"].to_pylist()
        )
        labels = []
        for own, row in zip(part["label"].to_pylist(), numbers, strict=True):
            kept = row[: self.capacity]
            self.words_cut[split] += len(own) - len({*kept})
            # A word's label is its first token's.
            firsts = [word != before for word, before in zip(kept, [-1, *kept], strict=False)]
            labels.append(
                [own[word] if first else IGNORED for word, first in zip(kept, firsts, strict=True)]
            )
        arranged = arrange_one(self._cut(tokens, split), self.special_tokens, self.task.slots)
        return arranged, _framed(labels)

    def _texts(self, part: pa.Table, column: str) -> list[list[int]]:
        return tokens_of_texts(self.tokenizer, self.special_tokens, part[column].to_pylist())

    def _cut(self, texts: list[list[int]], split: Split) -> list[list[int]]:
        self.texts_cut[split] += sum(len(text) > self.capacity for text in texts)
        return [text[: self.capacity] for text in texts]


def _framed(labels: Sequence[Sequence[int]]) -> Labels:
    """A label a token, back to back; the special tokens around each row's have none."""
    return np.array([label for row in labels for label in (IGNORED, *row, IGNORED)], np.int64)
