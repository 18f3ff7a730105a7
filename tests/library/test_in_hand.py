"""Models that people hold: masks over samples, attentions inside a block."""

from __future__ import annotations

import pytest
import torch

import papa
from tests.make import inputs_of, random_model

pytestmark = pytest.mark.unchecked


def test_sound_whose_mask_is_over_samples() -> None:
    model, seeds = random_model("wav2vec2"), range(10)
    mask = torch.ones(3, 200, dtype=torch.long)
    mask[1, 120:] = 0
    whole = [inputs_of("wav2vec2", seed=seed, batch=3)["input_values"] for seed in seeds]
    found, other = (
        papa.fidelity(
            model, [(0, 0), (1, 1)], "mean", data=[{"input_values": one, **more} for one in whole]
        )
        for more in ({"attention_mask": mask}, {})
    )
    assert found.attrs["texts"] == 30
    assert (other["value"].to_numpy() != found["value"].to_numpy()).all()


def test_attentions_are_not_put_out_inside_a_block() -> None:
    model, inputs = random_model("bert"), inputs_of("bert")
    model.set_attn_implementation("eager")
    with (
        papa.ablated(model, [(0, 0)]),
        pytest.raises(papa.PapaError, match="call the model without output_attentions"),
    ):
        model(**inputs, output_attentions=True)
    assert len(model(**inputs, output_attentions=True).attentions) == 3
