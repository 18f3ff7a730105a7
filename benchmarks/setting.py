"""What the benchmarks run on: the embedded encoder, real text, and the same text padded."""

from __future__ import annotations

import tempfile
from collections.abc import Iterator
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor
from transformers import AutoModel, BertConfig, BertModel, PreTrainedModel

from papa.corpora.batches import MicroBatch, micro_batch
from papa.corpora.corpus import TokenisedCorpus, load_corpus, tokenise_corpus
from papa.corpora.ragged import PackedTokens
from papa.corpora.sources import Split
from papa.encoders.encoder import Encoder, load_encoder
from papa.encoders.reference import EMBEDDED, load_tokenizer, resolve_encoder
from papa.spec import EncoderSpec, LayoutSpec, TaskSpec
from papa.spec.file import resolve_study

DATA = Path(__file__).resolve().parents[2] / "shared" / "data"
PLAIN_BATCH = 16


@dataclass(frozen=True)
class Setting:
    """One corpus on the embedded encoder."""

    task: TaskSpec
    corpus: TokenisedCorpus

    @property
    def name(self) -> str:
        return f"{self.task.name} S={self.task.slots}"


@lru_cache(maxsize=1)
def encoder() -> Encoder:
    """The embedded encoder in PAPA's form."""
    return load_encoder(resolve_encoder(EncoderSpec(name=EMBEDDED)))


@lru_cache(maxsize=1)
def plain_model() -> PreTrainedModel:
    """The same weights in transformers' eager form."""
    folder = resolve_encoder(EncoderSpec(name=EMBEDDED)).folder
    return AutoModel.from_pretrained(folder, attn_implementation="plain", use_safetensors=True).requires_grad_(False)


def base_sized(attention: str) -> PreTrainedModel:
    """A model of BERT-base's size with random weights."""
    torch.manual_seed(0)
    options: dict[str, Any] = {"vocab_size": 1000, "max_position_embeddings": 512, "attn_implementation": attention}
    return BertModel(BertConfig(**options), add_pooling_layer=False).eval().requires_grad_(False)


TASKS: dict[str, dict[str, Any]] = {
    "cola": {"name": "cola", "slots": 64, "folder": "cola"},
    "ud": {"name": "ud_pos", "slots": 128, "folder": "ud_ewt", "columns": {"words": "tokens", "label": "pos_tags"}},
    "rte": {"name": "rte", "slots": 256, "folder": "rte"},
    "wnut": {"name": "wnut17", "slots": 128, "folder": "wnut17", "columns": {"words": "tokens", "label": "ner_tags"}},
}


def setting(name: str, rows: int, folder: Path, *, validation: int = 100, train: Path | None = None) -> Setting:
    """A sample of one of the shared corpora, or of another file like it, tokenised into ``folder``."""
    described = dict(TASKS[name])
    data = DATA / described.pop("folder")
    source = {
        "kind": "files",
        "train": str(train or data / "train.jsonl"),
        "validation": str(data / "validation.jsonl"),
    }
    entry = {**described, "source": source, "labels": None, "train_rows": rows, "validation_rows": validation}
    document = {"name": "benchmark", "encoders": [EMBEDDED], "tasks": [entry]}
    task = resolve_study(document, folder=Path(), origin="benchmarks").tasks[0]
    reference = resolve_encoder(EncoderSpec(name=EMBEDDED))
    place = Path(tempfile.mkdtemp(dir=folder)) / "corpus"
    tokenise_corpus(task, LayoutSpec(), load_tokenizer(reference), reference, place, shard_rows=30)
    return Setting(task, load_corpus(place))


def full_batch(inputs: int, slots: int) -> MicroBatch:
    """Random inputs with a token in every slot."""
    ids = torch.randint(5, 1000, (inputs * slots,)).numpy()
    tokens = PackedTokens(
        input_ids=ids,
        slot_ids=np.tile(np.arange(slots), inputs),
        token_type_ids=np.zeros_like(ids),
        lengths=np.full(inputs, slots),
        first_lengths=np.full(inputs, slots - 2),
    )
    return MicroBatch.of(np.arange(inputs), tokens)


def padded_batches(setting: Setting, split: Split = "train", size: int = PLAIN_BATCH) -> Iterator[dict[str, Tensor]]:
    """The split in its own order, every input padded to S slots."""
    part = setting.corpus.split(split)
    for start in range(0, len(part), size):
        rows = np.arange(start, min(start + size, len(part)))
        compact = micro_batch(part, rows)
        shape = (len(rows), setting.task.slots)
        batch = {"rows": torch.from_numpy(rows)}
        ones = torch.ones_like(compact.input_ids)
        for name, values in (
            ("input_ids", compact.input_ids),
            ("token_type_ids", compact.token_type_ids),
            ("attention_mask", ones),
        ):
            full = torch.zeros(shape, dtype=torch.long)
            full[compact.inputs_of_tokens, compact.slot_ids] = values
            batch[name] = full
        yield batch


def model_inputs(batch: dict[str, Tensor]) -> dict[str, Tensor]:
    """What the plain model is called with."""
    return {name: batch[name] for name in ("input_ids", "token_type_ids", "attention_mask")}
