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

from papa.corpora.batches import MicroBatch, micro_batch
from papa.corpora.corpus import TokenisedCorpus, load_corpus, tokenise_corpus
from papa.corpora.ragged import PackedTokens
from papa.corpora.tokens import IGNORED
from papa.encoders.encoder import Encoder, load_encoder
from papa.encoders.reference import EMBEDDED, load_tokenizer, resolve_encoder
from papa.spec import EncoderSpec, LayoutSpec, Precision, TaskSpec
from papa.spec.file import resolve_study

SHARED = Path(os.environ.get("PAPA_SHARED") or Path(__file__).resolve().parents[2] / "shared")
"""Where local copies of the corpora may lie, in ``data``; those that do not are read from
the hub.
"""


@dataclass(frozen=True)
class Setting:
    """One corpus on the embedded encoder."""

    task: TaskSpec
    corpus: TokenisedCorpus


@cache
def encoder(precision: Precision = "float32") -> Encoder:
    """The embedded encoder in PAPA's form."""
    return load_encoder(resolve_encoder(EncoderSpec(name=EMBEDDED), precision))


@cache
def plain_model() -> PreTrainedModel:
    """The same weights in transformers' eager form."""
    folder = resolve_encoder(EncoderSpec(name=EMBEDDED)).folder
    return AutoModel.from_pretrained(
        folder, attn_implementation="plain", use_safetensors=True
    ).requires_grad_(False)


def base_sized(attention: str) -> PreTrainedModel:
    """A model of BERT-base's size with random weights."""
    torch.manual_seed(0)
    options: dict[str, Any] = {
        "vocab_size": 1000,
        "max_position_embeddings": 512,
        "attn_implementation": attention,
    }
    return BertModel(BertConfig(**options), add_pooling_layer=False).eval().requires_grad_(False)


TASKS: dict[str, dict[str, Any]] = {
    "cola": {"name": "cola", "slots": 64},
    "ud": {"name": "ud_pos", "slots": 128},
    "rte": {"name": "rte", "slots": 256},
    "wnut": {"name": "wnut17", "slots": 128},
}
_COPIES: dict[str, tuple[str, dict[str, str]]] = {
    "cola": ("cola", {}),
    "ud_pos": ("ud_ewt", {"label": "pos_tags"}),
    "rte": ("rte", {}),
    "wnut17": ("wnut17", {}),
}
"""Of each task its folder, and the columns that it names otherwise than the hub."""
TITLES = {name: f"{task['name']} S={task['slots']}" for name, task in TASKS.items()}
ROWS = {"cola": 400, "ud": 240, "rte": 120, "wnut": 240}
"""Training rows of a sample."""
CORPORA = {name: TITLES[name] for name in ("cola", "ud", "rte")}
"""Those on which a pass of the encoder is timed."""


@cache
def sample(name: str, folder: Path) -> Setting:
    """The sample of a corpus that the rows share."""
    return setting(name, ROWS[name], folder)


def task_entry(name: str) -> dict[str, Any]:
    """A registered task as a study names it: on its local copy where there is one."""
    folder, columns = _COPIES[name]
    files = {
        split: str(SHARED / "data" / folder / f"{split}.jsonl") for split in ("train", "validation")
    }
    if not all(map(os.path.isfile, files.values())):
        return {"name": name}
    return {"name": name, "source": {"kind": "files", **files}, "columns": columns, "labels": None}


def described(entry: dict[str, Any]) -> TaskSpec:
    """The resolved task of an entry."""
    document = {"name": "benchmark", "encoders": [EMBEDDED], "tasks": [entry]}
    return resolve_study(document, folder=Path(), origin="benchmarks").tasks[0]


def setting(
    name: str,
    rows: int,
    folder: Path,
    *,
    validation: int = 100,
    file: Path | None = None,
    slots: int | None = None,
    shard_rows: int = 30,
) -> Setting:
    """A sample of a corpus, or of a file like it, tokenised into ``folder``."""
    entry = {
        **task_entry(TASKS[name]["name"]),
        **TASKS[name],
        "slots": slots or TASKS[name]["slots"],
        "train_rows": rows,
        "validation_rows": validation,
    }
    if file is not None:
        entry |= {
            "source": {"kind": "files", "train": str(file), "validation": str(file)},
            "labels": None,
        }
    task = described(entry)
    reference = resolve_encoder(EncoderSpec(name=EMBEDDED))
    corpus = Path(tempfile.mkdtemp(dir=folder)) / "corpus"
    tokenizer = load_tokenizer(reference)
    tokenise_corpus(task, LayoutSpec(), tokenizer, reference, corpus, shard_rows=shard_rows)
    return Setting(task, load_corpus(corpus))


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


def padded_batches(setting: Setting, size: int) -> Iterator[dict[str, Tensor]]:
    """The training text in its own order, every input padded to S slots; labels one per row or per
    slot.
    """
    part = setting.corpus.split("train")
    for start in range(0, len(part), size):
        rows = np.arange(start, min(start + size, len(part)))
        compact = micro_batch(part, rows)
        shape = (len(rows), setting.task.slots)
        places = compact.inputs_of_tokens, compact.slot_ids
        labels = torch.from_numpy(part.labels_of(rows))

        def padded(
            values: Tensor, padding: int = 0, shape: Any = shape, places: Any = places
        ) -> Tensor:
            return torch.full(shape, padding).index_put_(places, values)

        yield {
            "rows": torch.from_numpy(rows),
            "labels": padded(labels, IGNORED) if part.label_per_token else labels,
            "input_ids": padded(compact.input_ids),
            "token_type_ids": padded(compact.token_type_ids),
            "attention_mask": padded(torch.ones_like(compact.input_ids)),
        }


def model_inputs(batch: dict[str, Tensor]) -> dict[str, Tensor]:
    """What the plain model is called with."""
    return {name: batch[name] for name in ("input_ids", "token_type_ids", "attention_mask")}
