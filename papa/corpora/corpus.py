"""A task's text as tokens in slots, stored once and read memory-mapped."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from itertools import accumulate
from pathlib import Path
from types import MappingProxyType
from typing import TYPE_CHECKING, Any

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
from papa.corpora.sources import SPLITS, Split
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
CORPUS = "corpus.json"
"""What a corpus holds besides its tokens: a file, so that the artifact's digest covers it."""


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
            shards=tuple(self.folder / _file(name, number) for number in range(len(shards))),
            kind=self.kind,
            slots=self.metadata.get(f"{name}_slots", self.slots),
            starts=tuple(accumulate((shard["rows"] for shard in shards), initial=0)),
            name=name,
            shuffled=self.shuffled if name == "train" else None,
        )


def _file(split: Split, number: int) -> str:
    return f"{split}-{number:05d}.arrow"


def load_corpus(artifact: ArtifactReference | Address) -> TokenisedCorpus:
    """Open a corpus after checking every file against its digest."""
    folder, metadata = verified(artifact, CORPUS), read_metadata(artifact)
    held = json.loads((folder / CORPUS).read_text(encoding="utf-8"))
    names = held["label_names"]
    corpus = TokenisedCorpus(
        folder=folder,
        kind=held["kind"],
        slots=held["slots"],
        label_names=None if names is None else tuple(names),
        metadata={**metadata, **held},
    )
    shards = {path.name for name in SPLITS for path in corpus.split(name).shards}
    if not shards <= metadata["files"].keys():
        raise ArtifactError(f"{artifact} names shards that are none of its files")
    return corpus


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
    """Read a task's rows, lay them out and publish them as an artifact at ``folder``; ``content``
    is the fingerprint that the source must have, if it is known.
    """
    rows = read_rows(task, content)
    per_token = task.kind in ("words", "mlm", "causal")
    tokens, texts_cut, words_cut = (dict.fromkeys(SPLITS, 0) for _ in range(3))
    shards: dict[str, list[dict[str, Any]]] = {name: [] for name in SPLITS}
    # The counts fill up while shards are written; both documents are stored after the last.
    held: dict[str, Any] = {
        "kind": task.kind,
        "slots": task.slots,
        **({"validation_slots": task.validation_slots} if task.validation_slots else {}),
        "label_names": rows.label_names,
        "notes": {"warnings": rows.warnings},
        "rows": {name: getattr(rows, name).num_rows for name in SPLITS},
        "tokens": tokens,
        "texts_cut": texts_cut,
        "words_cut": words_cut,
        "shards": shards,
    }
    metadata = {**provenance, "stage": "tokenise", "version": TOKENISE_VERSION, **held}
    with published(folder, metadata) as scratch:
        done, total = 0, sum(held["rows"].values())
        for name in SPLITS:
            table: pa.Table = getattr(rows, name)
            for start in range(0, table.num_rows, shard_rows):
                part = table.slice(start, shard_rows)
                arranged, labels, *cut = _laid_out(task, layout, tokenizer, part, name, start)
                file = _file(name, len(shards[name]))
                write_shard(scratch / file, arranged, labels, label_per_token=per_token)
                shards[name].append({"file": file, "rows": part.num_rows})
                tokens[name] += len(arranged.input_ids)
                texts_cut[name] += cut[0]
                words_cut[name] += cut[1]
                progress(done := done + part.num_rows, total)
        (scratch / CORPUS).write_text(
            json.dumps(held, indent=1, ensure_ascii=False) + "\n", encoding="utf-8"
        )
    return folder


def _laid_out(
    task: TaskSpec,
    layout: LayoutSpec,
    tokenizer: PreTrainedTokenizerBase,
    part: pa.Table,
    split: Split,
    start: int,
) -> tuple[PackedTokens, Labels, int, int]:
    """The tokens and labels of some rows, the first of which has the number ``start``; how many
    texts and how many labelled words are cut.
    """
    special_tokens = special_tokens_for(task.kind, tokenizer)
    slots = (split == "validation" and task.validation_slots) or task.slots
    kept, words_cut = text_capacity(layout, task.kind, slots), 0
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
    if task.kind == "pair":
        limits = pair_capacity(special_tokens, slots)
        second = tokens_of_texts(tokenizer, special_tokens, part["text_pair"].to_pylist())
        cut = sum(
            len(a) > limits[0] or len(b) > limits[1] for a, b in zip(texts, second, strict=True)
        )
        arranged = arrange_pair(texts, second, special_tokens, layout.segment_ids, slots)
        return arranged, part["label"].to_numpy(), cut, 0
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
