"""Files of encoders that are not what they seem: what each message must name."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
import torch
from safetensors.torch import save_file
from transformers import BertConfig, BertModel

from papa.errors import EncoderError
from papa.models.reference import resolve_encoder
from papa.spec import EncoderSpec
from tests.make import SIZES
from tests.models.inputs import with_tokenizer

POINTER = """version https://git-lfs.github.com/spec/v1
oid sha256:4d7a214614ab2935c943f9e0ff69d22eadbb8f32b1258daaa5e2ca24d17e2393
size 12345
"""


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    torch.manual_seed(0)
    with_tokenizer(
        BertModel(BertConfig.from_dict(SIZES | {"vocab_size": 30522})), tmp_path / "model"
    )
    return tmp_path / "model"


def refusal(folder: Path) -> str:
    with pytest.raises(EncoderError) as refused:
        resolve_encoder(EncoderSpec(name=str(folder)))
    return str(refused.value)


def test_a_configuration_without_an_architecture_names_the_key(folder: Path) -> None:
    file = folder / "config.json"
    settings = json.loads(file.read_text())
    del settings["model_type"]
    file.write_text(json.dumps(settings))
    sentence = refusal(folder)
    assert str(file) in sentence
    assert "model_type" in sentence


@pytest.mark.parametrize("name", ["config.json", "model.safetensors", "tokenizer.json"])
def test_a_pointer_of_git_lfs_is_named_with_its_command(folder: Path, name: str) -> None:
    (folder / name).write_text(POINTER)
    sentence = refusal(folder)
    assert str(folder / name) in sentence
    assert "git lfs pull" in sentence


def test_weights_of_another_size_are_refused(folder: Path) -> None:
    smaller = BertModel(BertConfig.from_dict(SIZES | {"hidden_size": 16, "vocab_size": 30522}))
    weights = {name: weight.clone() for name, weight in smaller.state_dict().items()}
    save_file(weights, folder / "model.safetensors", {"format": "pt"})
    sentence = refusal(folder)
    assert "config.json" in sentence
