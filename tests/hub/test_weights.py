"""Weights on disk: whole or in shards, safetensors or pickles; what does not fit is refused and
leaves nothing.
"""

from __future__ import annotations

import json
import os
import re
import shutil
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import load_file, save_file

from papa.encoders.reference import EncoderReference, load_tokenizer, resolve_encoder
from papa.errors import EncoderError
from papa.spec import EncoderSpec
from tests.hub.encoders import write_encoder
from tests.hub.server import Hub
from tests.hub.test_encoders import hidden_states

BERT, ELECTRA, V3 = (
    "google-bert/bert-base-uncased",
    "google/electra-base-discriminator",
    "microsoft/deberta-v3-base",
)


@pytest.fixture
def folder(
    encoder_folder: Callable[..., Path], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> Path:
    """ELECTRA's repository as a local folder; its weights are a pickle."""
    monkeypatch.setenv("PAPA_CACHE", str(tmp_path / "cache"))
    return shutil.copytree(encoder_folder(ELECTRA), tmp_path / "electra")


def resolved(folder: Path) -> EncoderReference:
    return resolve_encoder(EncoderSpec(name=str(folder)))


def refused(folder: Path) -> str:
    """The sentence; the cache holds nothing of it."""
    with pytest.raises(EncoderError) as found:
        resolved(folder)
    assert "\n" not in str(found.value)
    cache = Path(os.environ["PAPA_CACHE"]) / "encoders"
    assert not [path for path in cache.glob("*") if path.suffix != ".lock"]
    return str(found.value)


def weights_of(folder: Path) -> dict[str, Any]:
    return torch.load(folder / "pytorch_model.bin", weights_only=True)


def test_shards_of_safetensors(on_hub: Hub, tmp_path: Path) -> None:
    """Files with other names are not fetched: other precisions, adapters."""
    model = write_encoder(BERT, tmp_path / "whole").base_model
    folder = tmp_path / "shards"
    shutil.copytree(
        tmp_path / "whole", folder, ignore=shutil.ignore_patterns("*.safetensors", "*.bin")
    )
    model.save_pretrained(folder, max_shard_size="40KB")
    shards = sorted(path.name for path in folder.glob("model-*-of-*.safetensors"))
    assert len(shards) > 1
    for name in ("model.fp16.safetensors", "adapter_model.safetensors", "pytorch_model.bin"):
        (folder / name).write_bytes(b"other weights")
    on_hub.publish("models", "lab/shards", folder)
    found = resolve_encoder(EncoderSpec(name="lab/shards"))
    fetched = {
        name for name in on_hub.fetched("lab/shards") if name.endswith((".safetensors", ".bin"))
    }
    assert fetched == set(shards)
    whole = hidden_states(resolved(tmp_path / "whole"))
    assert all(
        torch.equal(ours, expected)
        for ours, expected in zip(hidden_states(found), whole, strict=True)
    )


def test_shards_of_pickles(on_hub: Hub, folder: Path, tmp_path: Path) -> None:
    whole = hidden_states(resolved(folder))
    weights = weights_of(folder)
    (folder / "pytorch_model.bin").unlink()
    names = sorted(weights)
    parts = {
        "pytorch_model-00001-of-00002.bin": names[::2],
        "pytorch_model-00002-of-00002.bin": names[1::2],
    }
    for part, held in parts.items():
        torch.save({name: weights[name] for name in held}, folder / part)
    index = {
        "metadata": {},
        "weight_map": {name: part for part, held in parts.items() for name in held},
    }
    (folder / "pytorch_model.bin.index.json").write_text(json.dumps(index))
    on_hub.publish("models", "lab/shards", folder)
    found = hidden_states(resolve_encoder(EncoderSpec(name="lab/shards")))
    assert set(parts) < on_hub.fetched("lab/shards")
    assert all(torch.equal(ours, expected) for ours, expected in zip(found, whole, strict=True))
    (folder / "pytorch_model-00002-of-00002.bin").unlink()
    assert "names pytorch_model-00002-of-00002.bin, which is not in" in refused(folder)


def test_pickles_of_the_first_format(folder: Path) -> None:
    whole = hidden_states(resolved(folder))
    weights = weights_of(folder)
    torch.save(weights, folder / "pytorch_model.bin", _use_new_zipfile_serialization=False)
    assert all(
        torch.equal(a, b) for a, b in zip(hidden_states(resolved(folder)), whole, strict=True)
    )


class Command:
    """What a pickle can hold and PAPA must not run."""

    def __init__(self, mark: Path) -> None:
        self.mark = mark

    def __reduce__(self) -> tuple[Any, ...]:
        return os.mkdir, (str(self.mark),)


def test_pickles_of_more_than_tensors_are_refused(folder: Path, tmp_path: Path) -> None:
    weights = weights_of(folder)
    torch.save({**weights, "more": Command(tmp_path / "mark")}, folder / "pytorch_model.bin")
    assert "holds more than tensors (posix.mkdir)" in refused(folder)
    assert not (tmp_path / "mark").exists()
    torch.load(folder / "pytorch_model.bin", weights_only=False)
    assert (tmp_path / "mark").exists(), "the pickle would do it"


WEIGHT = "electra.encoder.layer.1.output.dense.weight"


def _saved(change: Callable[[dict[str, Any]], Any]) -> Callable[[Path], None]:
    return lambda folder: torch.save(change(weights_of(folder)), folder / "pytorch_model.bin")


def _written(change: Callable[[bytes], bytes]) -> Callable[[Path], None]:
    def spoil(folder: Path) -> None:
        path = folder / "pytorch_model.bin"
        path.write_bytes(change(path.read_bytes()))

    return spoil


def _other_frameworks(folder: Path) -> None:
    (folder / "pytorch_model.bin").unlink()


def _out_of_the_folder(folder: Path) -> None:
    (folder / "pytorch_model.bin").rename(folder.parent / "secret.bin")
    index = {"weight_map": {"a": "../secret.bin"}}
    (folder / "pytorch_model.bin.index.json").write_text(json.dumps(index))


def _no_index(folder: Path) -> None:
    (folder / "pytorch_model.bin").rename(folder / "pytorch_model-00001-of-00001.bin")
    (folder / "pytorch_model.bin.index.json").write_text("[]")


@pytest.mark.parametrize(
    ("spoil", "said"),
    [
        (
            _saved(lambda sound: {name: sound[name] for name in sound if name != WEIGHT}),
            r"lacks 1 weights of a electra encoder \(encoder.layer.1.output.dense.weight, …\)",
        ),
        (
            _saved(lambda sound: {**sound, WEIGHT: torch.zeros(32, 64)}),
            r"encoder.layer.1.output.dense.weight is \[32, 64\], expected \[32, 48\]",
        ),
        (
            _saved(lambda _: {"gpt.h.0.weight": torch.zeros(2, 2)}),
            r"lacks \d+ weights of a electra encoder",
        ),
        (_saved(lambda _: [torch.zeros(2)]), "holds no weights by name"),
        (_written(lambda sound: sound[: len(sound) // 2]), "is damaged"),
        (_written(lambda _: b"<html>sign in</html>"), "is damaged, or holds more than tensors"),
        (_written(lambda _: b""), "is damaged"),
        (
            _other_frameworks,
            "no pytorch_model.bin, .*found .*flax_model.msgpack, .*rust_model.ot, tf_model.h5",
        ),
        (_out_of_the_folder, r"names ../secret.bin, which is not in"),
        (_no_index, "maps no weights to files"),
    ],
)
def test_weights_that_do_not_fit_are_refused(
    spoil: Callable[[Path], None], said: str, folder: Path
) -> None:
    spoil(folder)
    assert re.search(said, refused(folder))


@pytest.mark.parametrize("spoil", ["lack", "shape", "damage"])
def test_safetensors_that_do_not_fit_are_refused(
    spoil: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PAPA_CACHE", str(tmp_path / "cache"))
    folder = tmp_path / "bert"
    write_encoder(BERT, folder)
    weights = load_file(folder / "model.safetensors")
    name = "bert.encoder.layer.0.attention.self.key.weight"
    if spoil == "lack":
        del weights[name]
    elif spoil == "shape":
        weights[name] = torch.zeros(32, 16)
    save_file(weights, folder / "model.safetensors", {"format": "pt"})
    if spoil == "damage":
        (folder / "model.safetensors").write_bytes(
            (folder / "model.safetensors").read_bytes()[:-100]
        )
    expected = {
        "lack": "lacks 1 weights",
        "shape": "is [32, 16], expected [32, 32]",
        "damage": "are damaged",
    }
    assert expected[spoil] in refused(folder)


def test_a_repository_without_weights_lists_what_it_has(on_hub: Hub, folder: Path) -> None:
    (folder / "pytorch_model.bin").unlink()
    on_hub.publish("models", "lab/flax", folder)
    with pytest.raises(
        EncoderError, match=r"no model.safetensors and no pytorch_model.bin.*flax_model.msgpack"
    ):
        resolve_encoder(EncoderSpec(name="lab/flax"))
    assert not on_hub.fetched("lab/flax") & {"flax_model.msgpack", "tf_model.h5", "rust_model.ot"}


@pytest.mark.parametrize("module", ["sentencepiece", "google.protobuf"])
def test_a_tokenizers_missing_library_is_named(
    module: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PAPA_CACHE", str(tmp_path / "cache"))
    write_encoder(V3, tmp_path / "v3")
    package = module.removeprefix("google.")
    with monkeypatch.context() as without:
        without.setitem(sys.modules, module, None)
        assert f"(spm.model), which needs the package {package}: pip install {package}" in refused(
            tmp_path / "v3"
        )
    assert load_tokenizer(resolved(tmp_path / "v3")).is_fast
