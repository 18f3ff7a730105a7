"""The lower layers of the embedded encoder and small samples of real corpora."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
import torch

from papa.corpora import TokenisedCorpus, load_corpus, tokenise_corpus
from papa.encoders.encoder import Encoder, load_encoder
from papa.encoders.reference import EncoderReference, load_tokenizer
from papa.spec import LayoutSpec, TaskSpec
from tests.encoders.lower import lower_layers

LAYERS = 2
RATE = {"learning_rate": 5e-4, "batch_size": 8, "epochs": 2}


@pytest.fixture(scope="session")
def reference(tmp_path_factory: pytest.TempPathFactory) -> EncoderReference:
    return lower_layers(LAYERS, tmp_path_factory.mktemp("encoder") / f"{LAYERS}-layers")


@pytest.fixture(scope="session")
def encoder(reference: EncoderReference) -> Encoder:
    return load_encoder(reference)


@pytest.fixture(scope="session")
def tasks(shared: Path) -> dict[str, TaskSpec]:
    data, keys = shared / "data", ("kind", "metric", "slots", "train_rows", "validation_rows")
    columns = {
        "cola": {"text": "sentence", "label": "label"},
        "rte": {"text": "sentence1", "text_pair": "sentence2", "label": "label"},
        "wnut17": {"words": "tokens", "label": "ner_tags"},
        "wikitext": {"text": "text"},
    }
    described = {
        "cola": ("text", "matthews", 64, 64, 30),
        "rte": ("pair", "accuracy", 128, 24, 8),
        "wnut17": ("words", "entity_f1", 64, 40, 20),
        "wikitext": ("mlm", "negative_log_perplexity", 32, 24, 10),
    }
    files = {
        name: {split: data / name / f"{split}.jsonl" for split in ("train", "validation")}
        for name in described
    }
    raw = data / "wikitext_raw"
    files["wikitext"] = {"train": raw / "validation.txt", "validation": raw / "test.txt"}
    return {
        name: TaskSpec.model_validate(
            {
                **dict(zip(keys, values, strict=True)),
                "name": name,
                "columns": columns[name],
                "source": {"kind": "files", **files[name]},
                "probe": RATE,
            }
        )
        for name, values in described.items()
    }


@pytest.fixture(scope="session")
def corpus_of(
    tasks: dict[str, TaskSpec],
    reference: EncoderReference,
    tmp_path_factory: pytest.TempPathFactory,
) -> Callable[..., TokenisedCorpus]:
    """Tokenise a task by name, with changes to its specification."""
    tokenizer = load_tokenizer(reference)

    def build(name: str, **changes: Any) -> TokenisedCorpus:
        folder = tmp_path_factory.mktemp("corpora") / name
        task = tasks[name].model_copy(update=changes)
        # Several shards a split: rows are found across shard borders.
        return load_corpus(
            tokenise_corpus(task, LayoutSpec(), tokenizer, reference, folder, shard_rows=32)
        )

    return build


@pytest.fixture(scope="session")
def corpora(
    tasks: dict[str, TaskSpec], corpus_of: Callable[..., TokenisedCorpus]
) -> dict[str, TokenisedCorpus]:
    return {name: corpus_of(name) for name in tasks}


@contextmanager
def counted_passes(encoder: Encoder) -> Iterator[list[int]]:
    """Inside the block, list how many inputs each forward pass of the encoder took."""
    passes: list[int] = []

    def count(module: torch.nn.Module, args: Any) -> None:
        batch = encoder.dispatch.batch
        assert batch is not None
        passes.append(len(batch.rows))

    handle = encoder.model.register_forward_pre_hook(count)
    try:
        yield passes
    finally:
        handle.remove()
