"""Models that people hold: their tokenizer, wrappers around them, masks over samples, words that
name nothing.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch
from transformers import AutoModel

import papa
from papa.encoders.reference import EMBEDDED, embedded_folder
from papa.errors import PapaError
from tests.ablation.models import inputs_of, random_model

pytestmark = pytest.mark.unchecked


def refusal(call: Any) -> str:
    with pytest.raises(PapaError) as error:
        call()
    assert "\n" not in str(error.value)
    return str(error.value)


@pytest.mark.parametrize("precision", [torch.float32, "float16", "fp32", "auto", None])
def test_a_precision_that_there_is_not(precision: Any) -> None:
    told = refusal(lambda: papa.load_encoder(EMBEDDED, precision=precision, device="cpu"))
    assert told == f"precision is {precision!r}: use 'float32' or 'bfloat16'"


def test_the_tokenizer_is_found_by_the_models_name(tmp_path: Path) -> None:
    model = AutoModel.from_pretrained(embedded_folder())
    texts = ["a film to see twice"]
    own = papa.features(papa.load_encoder(model, slots=16, device="cpu"), texts)
    named = papa.features(papa.load_encoder(EMBEDDED, slots=16, device="cpu"), texts)
    torch.testing.assert_close(own, named)
    model.save_pretrained(tmp_path / "bare")
    bare = AutoModel.from_pretrained(tmp_path / "bare")
    assert "no tokenizer is found with the model" in refusal(lambda: papa.load_encoder(bare))


def test_wrappers_are_told_how(tmp_path: Path) -> None:
    class Adapted(torch.nn.Module):
        """As peft's models: adapters in a model that is reached by a method."""

        def get_base_model(self) -> None: ...
        def merge_and_unload(self) -> None: ...

    parallel = torch.nn.DataParallel(random_model("bert"))
    assert "give model.module" in refusal(lambda: papa.load_encoder(parallel))
    assert "give model.merge_and_unload()" in refusal(lambda: papa.load_encoder(Adapted()))
    for model, inner in ((parallel, "model.module"), (Adapted(), "model.get_base_model()")):
        told = refusal(lambda model=model: papa.ablated(model, [(0, 0)]).__enter__())
        assert told.endswith(f"give {inner}")


def test_sound_whose_mask_is_over_samples() -> None:
    model = random_model("wav2vec2")
    batches = [
        {**inputs_of("wav2vec2", seed=seed, batch=3), "attention_mask": torch.ones(3, 200)}
        for seed in range(10)
    ]
    for batch in batches:
        batch["attention_mask"] = batch["attention_mask"].long()
        batch["attention_mask"][1, 120:] = 0
    found = papa.fidelity(model, [(0, 0), (1, 1)], "mean", data=batches)
    assert found.attrs["texts"] == 30
    whole = [{"input_values": batch["input_values"]} for batch in batches]
    other = papa.fidelity(model, [(0, 0), (1, 1)], "mean", data=whole)
    assert (other["value"].to_numpy() != found["value"].to_numpy()).all()


def test_attentions_are_not_put_out_inside_a_block() -> None:
    model, inputs = random_model("bert"), inputs_of("bert")
    model.set_attn_implementation("eager")
    with papa.ablated(model, [(0, 0)]):
        told = refusal(lambda: model(**inputs, output_attentions=True))
    assert "call the model without output_attentions" in told
    assert len(model(**inputs, output_attentions=True).attentions) == 3
