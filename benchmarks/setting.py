"""What the benchmarks run on: the embedded encoder, real text, and the same text padded."""

from __future__ import annotations

import os
import tempfile
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor
from transformers import AutoModel, BertConfig, BertModel, PreTrainedModel

from papa.models.encoder import Encoder, load_encoder
from papa.models.reference import EMBEDDED, load_tokenizer, resolve_encoder
from papa.spec import EncoderSpec, LayoutSpec, TaskSpec
from papa.spec.file import resolve_study
from papa.text.batches import MicroBatch, micro_batch
from papa.text.corpus import TokenisedCorpus, load_corpus, tokenise_corpus
from papa.text.layout import PackedTokens
from papa.text.tokens import IGNORED

SHARED = Path(os.environ.get("PAPA_SHARED") or Path(__file__).resolve().parents[2] / "shared")
"""Where local copies of the corpora may lie, in ``data``; others are read from the hub."""


@dataclass(frozen=True)
class Setting:
    """One corpus on the embedded encoder."""

    task: TaskSpec
    corpus: TokenisedCorpus


@cache
def encoder() -> Encoder:
    """Return the embedded encoder in PAPA's form."""
    return load_encoder(resolve_encoder(EncoderSpec(name=EMBEDDED)))


@cache
def plain_model() -> PreTrainedModel:
    """Return the same weights in transformers' eager form."""
    folder = resolve_encoder(EncoderSpec(name=EMBEDDED)).folder
    return AutoModel.from_pretrained(
        folder, attn_implementation="plain", use_safetensors=True
    ).requires_grad_(False)


def base_sized(attention: str) -> PreTrainedModel:
    """Return a model of BERT-base's size with random weights."""
    torch.manual_seed(0)
    options: dict[str, Any] = {"vocab_size": 1000, "attn_implementation": attention}
    return BertModel(BertConfig(**options), add_pooling_layer=False).eval().requires_grad_(False)


TASKS: dict[str, dict[str, Any]] = {
    "cola": {"name": "cola", "slots": 64, "train_rows": 400},
    "ud": {"name": "ud_pos", "slots": 128, "train_rows": 240},
    "rte": {"name": "rte", "slots": 256, "train_rows": 120},
    "wnut": {"name": "wnut17", "slots": 128, "train_rows": 240},
}
_FOLDERS = {"ud_pos": "ud_ewt"}
_COLUMNS: dict[str, dict[str, str]] = {"ud_pos": {"label": "pos_tags"}}
"""Of local copies, where they are named otherwise than the hub's."""
TITLES = {name: f"{task['name']} S={task['slots']}" for name, task in TASKS.items()}


def task_entry(name: str) -> dict[str, Any]:
    """Return a registered task as a study names it: on its local copy where there is one."""
    folder = SHARED / "data" / _FOLDERS.get(name, name)
    files = {split: str(folder / f"{split}.jsonl") for split in ("train", "validation")}
    if not all(map(os.path.isfile, files.values())):
        return {"name": name}
    source = {"kind": "files", **files}
    return {"name": name, "source": source, "columns": _COLUMNS.get(name, {}), "labels": None}


def described(entry: dict[str, Any]) -> TaskSpec:
    """Return the resolved task of an entry."""
    document = {"name": "benchmark", "encoders": [EMBEDDED], "tasks": [entry]}
    return resolve_study(document, folder=Path(), origin="benchmarks").tasks[0]


def setting(name: str, folder: Path, **changes: Any) -> Setting:
    """Return a sample of a corpus, with changes to its task, tokenised in a folder of its own."""
    task = described(
        {**task_entry(TASKS[name]["name"]), **TASKS[name], "validation_rows": 100, **changes}
    )
    corpus = Path(tempfile.mkdtemp(dir=folder)) / "corpus"
    tokenizer = load_tokenizer(resolve_encoder(EncoderSpec(name=EMBEDDED)))
    tokenise_corpus(task, LayoutSpec(), tokenizer, corpus, shard_rows=30)
    return Setting(task, load_corpus(corpus))


def full_batch(inputs: int, slots: int) -> MicroBatch:
    """Return random inputs with a token in every slot."""
    ids = torch.randint(5, 1000, (inputs * slots,)).numpy()
    tokens = PackedTokens(
        input_ids=ids,
        slot_ids=np.tile(np.arange(slots), inputs),
        token_type_ids=np.zeros_like(ids),
        lengths=np.full(inputs, slots),
        first_lengths=np.full(inputs, slots - 2),
    )
    return MicroBatch.from_tokens(np.arange(inputs), tokens)


def padded_batches(setting: Setting, size: int) -> Iterator[dict[str, Tensor]]:
    """Yield the training text in its own order, every input padded to S slots; labels one per row
    or per slot.
    """
    part = setting.corpus.split("train")
    for start in range(0, len(part), size):
        rows = np.arange(start, min(start + size, len(part)))
        compact = micro_batch(part, rows)
        labels = torch.from_numpy(part.labels_of(rows))
        values = {
            "input_ids": compact.input_ids,
            "token_type_ids": compact.token_type_ids,
            "attention_mask": torch.ones_like(compact.input_ids),
            **({"labels": labels} if part.label_per_token else {}),
        }
        places = compact.inputs_of_tokens, compact.slot_ids
        shape = (len(rows), setting.task.slots)
        padded = {
            name: torch.full(shape, IGNORED if name == "labels" else 0).index_put_(places, one)
            for name, one in values.items()
        }
        yield {"rows": torch.from_numpy(rows), "labels": labels, **padded}


def model_inputs(batch: dict[str, Tensor]) -> dict[str, Tensor]:
    """Return what the plain model is called with."""
    return {name: batch[name] for name in ("input_ids", "token_type_ids", "attention_mask")}


sample = cache(setting)
"""The sample of a corpus that the rows share."""
