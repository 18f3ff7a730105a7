"""Inputs that are exchanged while a study runs: what was read of them is refused, and nothing is
published.
"""

from __future__ import annotations

import json
import os
import shutil
from collections.abc import Callable
from pathlib import Path

import pytest
import torch

from papa.corpora import fingerprint
from papa.encoders.encoder import load_encoder
from papa.encoders.reference import EncoderReference, resolve_encoder
from papa.encoders.weights import as_safetensors
from papa.errors import DataError, EncoderError
from papa.progress import ignore_progress
from papa.spec import EncoderSpec, ExecutionSpec, LayoutSpec, TaskSpec
from papa.storage.artifacts import remove
from papa.storage.store import Store
from papa.study.run import Session, run_step
from papa.study.stages.average import average
from papa.study.stages.tokenise import tokenise
from papa.study.step import Context, Step
from papa.workers import Worker
from tests.hub.encoders import write_encoder
from tests.study.minilm import computed as compute
from tests.study.told import Told

BERT, ELECTRA = "google-bert/bert-base-uncased", "google/electra-base-discriminator"
WEIGHTS = "model.safetensors"


@pytest.fixture
def store(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Store:
    monkeypatch.setenv("PAPA_CACHE", str(tmp_path / "cache"))
    store = Store(tmp_path / "store")
    store.make()
    return store


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    write_encoder(BERT, tmp_path / "bert")
    return tmp_path / "bert"


@pytest.fixture
def encoder(folder: Path, store: Store) -> EncoderReference:
    return resolve_encoder(EncoderSpec(name=str(folder)))


def write_rows(path: Path, word: str) -> None:
    path.write_text(
        "".join(json.dumps({"text": f"{word} {row}", "label": row % 2}) + "\n" for row in range(8))
    )


@pytest.fixture
def step(encoder: EncoderReference, tmp_path: Path) -> Step:
    splits = {split: tmp_path / f"{split}.jsonl" for split in ("train", "validation")}
    for path in splits.values():
        write_rows(path, "before")
    task = TaskSpec.model_validate(
        {
            "name": "task",
            "kind": "text",
            "source": {"kind": "files", **{split: str(path) for split, path in splits.items()}},
            "columns": {"text": "text", "label": "label"},
            "metric": "accuracy",
            "slots": 16,
            "probe": {"learning_rate": 1e-3, "batch_size": 4, "epochs": 1},
        }
    )
    return tokenise("tokenise", encoder, task, LayoutSpec(), fingerprint(task.source))


def in_place(path: Path) -> None:
    """As ``cp`` does: the file keeps its inode."""
    content = bytearray(path.read_bytes())
    content[-64:] = bytes(64)
    with path.open("r+b") as file:
        file.write(content)


def renamed(path: Path) -> None:
    """As ``mv`` does: another inode takes its place."""
    shutil.copyfile(path, path.with_suffix(".new"))
    in_place(path.with_suffix(".new"))
    path.with_suffix(".new").replace(path)


EXCHANGES = pytest.mark.parametrize("exchange", [in_place, renamed])


@pytest.mark.parametrize(
    ("split", "content"),
    [("train", None), ("validation", None), ("train", '{"other": 1')],
    ids=["train", "validation", "what no longer fits"],
)
def test_rows_of_other_content_than_the_key_says(
    step: Step, store: Store, tmp_path: Path, split: str, content: str | None
) -> None:
    path = tmp_path / f"{split}.jsonl"
    write_rows(path, "after")
    if content:
        path.write_text(content)
    said = r"^the source of task 'task' changed meanwhile"
    with pytest.raises(DataError, match=said if content else rf"{said} \(expected .*run again"):
        compute(step, store)
    assert not step.is_complete(store)
    write_rows(path, "before")
    compute(step, store)
    assert step.is_complete(store)


def test_a_tokenizer_that_is_not_what_the_key_says(step: Step, folder: Path, store: Store) -> None:
    path = folder / "tokenizer.json"
    path.write_text(path.read_text().replace("##a", "##z"))
    with pytest.raises(
        EncoderError, match=r"^the tokenizer of .* changed meanwhile \(expected digest"
    ):
        compute(step, store)
    assert not step.is_complete(store)


@EXCHANGES
@pytest.mark.parametrize("name", [WEIGHTS, "config.json"])
def test_weights_that_are_not_what_the_key_says(
    encoder: EncoderReference, folder: Path, exchange: Callable[[Path], None], name: str
) -> None:
    load_encoder(encoder)
    if name == WEIGHTS:
        exchange(folder / name)
    else:
        document = json.loads((folder / name).read_text())
        (folder / name).write_text(json.dumps({**document, "layer_norm_eps": 0.1}))
    with pytest.raises(
        EncoderError, match=rf"^encoder '{folder}' in {folder} changed meanwhile \(expected digest"
    ):
        load_encoder(encoder)
    assert resolve_encoder(EncoderSpec(name=str(folder))).digest != encoder.digest


@EXCHANGES
def test_weights_exchanged_after_they_were_loaded(
    step: Step, folder: Path, store: Store, exchange: Callable[[Path], None]
) -> None:
    """They are mapped: whoever writes to the file writes to the encoder's memory."""
    loaded = load_encoder(step["tokenizer"])
    context = Context(step, store, ExecutionSpec(), ignore_progress, encoder=loaded)
    with context.published():
        pass
    assert step.is_complete(store)
    remove(step.folder(store))
    exchange(folder / WEIGHTS)
    with (
        pytest.raises(EncoderError, match=r"model\.safetensors changed while it was read"),
        context.published(),
    ):
        pass
    assert not step.is_complete(store)


def test_an_average_with_exchanged_weights(step: Step, folder: Path, store: Store) -> None:
    compute(step, store)
    encoder = step["tokenizer"]
    made = average("average", encoder, step, step["task"].slots)
    loaded = {encoder: load_encoder(encoder)}
    session = Session(store, Worker("cpu", loaded), ExecutionSpec(), Told())
    in_place(folder / WEIGHTS)
    with pytest.raises(EncoderError, match=r"model\.safetensors changed while it was read"):
        run_step(made, session, ignore_progress)
    assert not made.is_complete(store)


def test_converted_folders_that_were_exchanged(store: Store, tmp_path: Path) -> None:
    """Each is whole and sound, and the other's."""
    references, sums = [], []
    for seed in (0, 1):
        torch.manual_seed(seed)
        place = tmp_path / f"electra{seed}"
        write_encoder(ELECTRA, place)
        weights = torch.load(place / "pytorch_model.bin", weights_only=True)
        torch.save(
            {name: tensor + seed for name, tensor in weights.items()}, place / "pytorch_model.bin"
        )
        references.append(resolve_encoder(EncoderSpec(name=str(place))))
        sums.append(float(load_encoder(references[-1]).word_embeddings.sum()))
    assert sums[0] != sums[1]
    first, second = (Path(artifact.folder) for artifact in references)
    for source, target in (
        (first, tmp_path / "aside"),
        (second, first),
        (tmp_path / "aside", second),
    ):
        source.rename(target)
    for reference in references:
        with pytest.raises(EncoderError, match="changed meanwhile"):
            load_encoder(reference)
    for reference, expected in zip(references, sums, strict=True):
        assert resolve_encoder(EncoderSpec(name=reference.name)) == reference
        assert float(load_encoder(reference).word_embeddings.sum()) == expected


def test_a_pickle_exchanged_before_it_was_converted(store: Store, tmp_path: Path) -> None:
    write_encoder(ELECTRA, tmp_path / "electra")
    with pytest.raises(EncoderError, match="changed meanwhile"):
        as_safetensors(tmp_path / "electra", "0" * 64, "encoder 'electra'")
    assert not [
        path for path in (Path(os.environ["PAPA_CACHE"]) / "encoders").iterdir() if path.is_dir()
    ]
