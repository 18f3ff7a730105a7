"""Every family: resolved from a folder, loaded, run on all of its slots, or refused."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
import torch
from transformers import AutoConfig, AutoModel

from papa.errors import EncoderError
from papa.heads.constants import control
from papa.heads.replacement import mixed_by
from papa.models.encoder import Encoder, load_encoder
from papa.models.reference import resolve_encoder
from papa.models.supported import FAMILIES, family_of
from papa.spec import EncoderSpec
from tests.make import ENCODERS, SIZES, random_model
from tests.models.inputs import SLOTS, Inputs, some_inputs


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
    loaded, saved = load_encoder(reference), Encoder(model)
    batch = some_inputs(1, pad=model.config.pad_token_id).compact()
    with torch.inference_mode():
        ours, expected = loaded.token_states(batch), saved.token_states(batch)
    assert len(ours) == 4
    assert all(torch.equal(a, b) for a, b in zip(ours, expected, strict=True))
    assert loaded.word_embeddings.shape[0] == 300


@pytest.mark.parametrize("variant", ENCODERS)
def test_there_are_positions_for_the_slots_that_are_promised_and_no_more(variant: str) -> None:
    model = random_model(variant)
    family = family_of(model.config.model_type)
    assert family is not None
    # A token at every slot, and one more.
    ids = torch.full((1, family.positions(model.config) + 1), model.config.pad_token_id + 7)
    full, more = (
        Inputs(own, torch.ones_like(own).bool(), torch.zeros_like(own)).compact()
        for own in (ids[:, 1:], ids)
    )
    with torch.inference_mode():
        assert bool(Encoder(model).token_states(full)[-1].isfinite().all())
        if variant in ("bert", "roberta", "mpnet", "distilbert", "albert", "deberta_near"):
            with pytest.raises(IndexError):  # Families whose positions are embedded.
                Encoder(model).token_states(more)


REFUSED: dict[str, dict[str, Any]] = {
    **{
        f"architecture '{kind}' is not supported: use one of bert, roberta": {"model_type": kind}
        for kind in ("t5", "bart", "gpt_neox", "my-own")
    },
    "causal": {"model_type": "bert", **SIZES, "is_decoder": True},
    "inner_group_num is 2": {"model_type": "albert", **SIZES, "inner_group_num": 2},
    "talking heads mix the attention": {"model_type": "deberta", **SIZES, "talking_head": True},
}


@pytest.mark.parametrize("reason", REFUSED)
def test_what_has_no_attention_of_single_heads_is_refused(reason: str, tmp_path: Path) -> None:
    (tmp_path / "config.json").write_text(json.dumps(REFUSED[reason]))
    with pytest.raises(EncoderError, match=reason) as found:
        resolve_encoder(EncoderSpec(name=str(tmp_path)))
    assert "\n" not in str(found.value)
    if "not supp" not in reason:
        with pytest.raises(EncoderError, match=reason):
            Encoder(AutoModel.from_config(AutoConfig.for_model(**REFUSED[reason])))


def test_a_batch_seen_without_gradients_may_come_again_with_them() -> None:
    encoder, batch = Encoder(random_model("deberta_v3").float()), some_inputs(1).compact()
    constants = control("toeplitz", encoder.layers, encoder.heads, SLOTS)
    theta = torch.zeros(encoder.layers, encoder.heads, requires_grad=True)
    with torch.inference_mode():
        encoder.token_states(batch)
    with mixed_by(encoder, constants, theta.sigmoid()):
        encoder.token_states(batch)[-1].square().sum().backward()
    assert theta.grad is not None
    assert bool((theta.grad != 0).all())


def test_attention_that_bypasses_the_dispatch_is_noticed() -> None:
    encoder, batch = Encoder(random_model("bert")), some_inputs(1).compact()
    encoder.token_states(batch)
    encoder.config._attn_implementation = "sdpa"
    with pytest.raises(
        EncoderError, match=r"0 of 3 layers sent their attention through PAPA: .*load it again"
    ):
        encoder.token_states(batch)
