"""Every family: found, resolved from a folder, loaded, run on all of its slots, or refused in a
sentence.
"""

from __future__ import annotations

import json
from pathlib import Path

import pytest
import torch
from transformers import (
    AlbertConfig,
    AlbertModel,
    BertConfig,
    BertModel,
    DebertaConfig,
    DebertaModel,
)

from papa.corpora.batches import MicroBatch
from papa.encoders.encoder import Encoder, load_encoder
from papa.encoders.reference import resolve_encoder
from papa.encoders.supported import FAMILIES, family_of
from papa.errors import EncoderError
from papa.spec import EncoderSpec
from tests.encoders.inputs import some_inputs
from tests.encoders.models import MODELS, SIZES, random_model


def full_batch(slots: int, pad: int) -> MicroBatch:
    """One input with a token at every slot."""
    return MicroBatch(
        rows=torch.zeros(1, dtype=torch.long),
        columns=torch.arange(slots),
        column_ids=torch.arange(slots),
        inputs_of_tokens=torch.zeros(slots, dtype=torch.long),
        positions_in_input=torch.arange(slots),
        input_ids=torch.full((slots,), pad + 7),
        token_type_ids=torch.zeros(slots, dtype=torch.long),
    )


def test_every_supported_architecture_has_a_variant_in_the_tests() -> None:
    tested = {MODELS[variant]().config.model_type for variant in MODELS}
    supported = {kind for family in FAMILIES for kind in family.model_types}
    assert supported == tested
    assert all(family.note and "\n" not in family.note for family in FAMILIES)


@pytest.mark.parametrize("variant", sorted(MODELS))
def test_an_encoder_saved_is_the_encoder_loaded(variant: str, tmp_path: Path) -> None:
    model = random_model(variant).float()
    model.save_pretrained(tmp_path)
    (tmp_path / "tokenizer.json").write_text("{}")
    reference = resolve_encoder(EncoderSpec(name=str(tmp_path)))
    assert (reference.layers, reference.heads, reference.width) == (3, 4, 32)
    loaded, saved = load_encoder(reference), Encoder(model)
    batch = some_inputs(1, pad=model.config.pad_token_id).compact()
    with torch.inference_mode():
        ours, expected = loaded.hidden_states(batch), saved.hidden_states(batch)
    assert len(ours) == 4
    assert all(torch.equal(a, b) for a, b in zip(ours, expected, strict=True))
    assert loaded.word_embeddings.shape[0] == 300


@pytest.mark.parametrize("variant", sorted(MODELS))
def test_all_the_slots_that_are_promised_have_positions(variant: str) -> None:
    model = random_model(variant)
    family = family_of(model.config.model_type)
    assert family is not None
    batch = full_batch(family.positions(model.config), model.config.pad_token_id)
    with torch.inference_mode():
        assert bool(Encoder(model).hidden_states(batch)[-1].isfinite().all())


@pytest.mark.parametrize(
    "variant", ["bert", "roberta", "mpnet", "distilbert", "albert", "deberta_near"]
)
def test_one_slot_more_has_no_position(variant: str) -> None:
    """Negative control: families whose positions are embedded have none beyond."""
    model = random_model(variant)
    family = family_of(model.config.model_type)
    assert family is not None
    batch = full_batch(family.positions(model.config) + 1, model.config.pad_token_id)
    with pytest.raises(IndexError), torch.inference_mode():
        Encoder(model).hidden_states(batch)


@pytest.mark.parametrize("model_type", ["t5", "bart", "gpt_neox", "my-own"])
def test_other_architectures_are_refused_by_name(model_type: str, tmp_path: Path) -> None:
    (tmp_path / "config.json").write_text(json.dumps({"model_type": model_type}))
    with pytest.raises(
        EncoderError,
        match=f"architecture '{model_type}' is not supported: use one of bert, roberta",
    ):
        resolve_encoder(EncoderSpec(name=str(tmp_path)))


REFUSED = {
    "causal model": (BertConfig(**SIZES, is_decoder=True), BertModel, "causal"),
    "inner groups": (
        AlbertConfig(**SIZES, embedding_size=16, inner_group_num=2),
        AlbertModel,
        "inner_group_num is 2",
    ),
    "talking heads": (
        DebertaConfig(**SIZES, talking_head=True),
        DebertaModel,
        "talking heads mix the attention",
    ),
}


@pytest.mark.parametrize("variant", sorted(REFUSED))
def test_variants_without_attention_of_single_heads_are_refused(
    variant: str, tmp_path: Path
) -> None:
    config, model, reason = REFUSED[variant]
    config.save_pretrained(tmp_path)
    with pytest.raises(EncoderError, match=reason) as found:
        resolve_encoder(EncoderSpec(name=str(tmp_path)))
    assert "\n" not in str(found.value)
    with pytest.raises(EncoderError, match=reason):
        Encoder(model(config))


def test_attention_that_bypasses_the_dispatch_is_noticed() -> None:
    """A wrapped model's configuration is the model's own object: whoever changes it would switch
    PAPA off unseen.
    """
    encoder, batch = Encoder(random_model("bert")), some_inputs(1).compact()
    encoder.hidden_states(batch)
    encoder.config._attn_implementation = "sdpa"
    with pytest.raises(
        EncoderError, match=r"0 of 3 layers sent their attention through PAPA: .*load it again"
    ):
        encoder.hidden_states(batch)
