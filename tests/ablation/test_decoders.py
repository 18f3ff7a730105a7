"""What must hold of decoders besides: texts of any length, streaming, and mixes; on
random weights.
"""

from __future__ import annotations

import sys
from typing import Any
from unittest.mock import patch

import pytest
import torch
from torch import Tensor
from transformers import AttentionInterface, AttentionMaskInterface
from transformers.masking_utils import eager_mask

import papa
from papa.attention.interface import attention_modules
from papa.attention.substitutes import Mixed, Streaming
from papa.encoders import layer
from papa.errors import SpecError
from tests.ablation.test_laws import EVERY_HEAD, EXACT, HEADS, LAYERS, SOME_HEADS, alone
from tests.make import DECODERS, answers, inputs_of, random_model


@pytest.mark.parametrize("name", ["gpt2", "gemma2", "bert", "vit"])
@pytest.mark.parametrize("by", ["mean", "average", "relative", "resample", Streaming(1, 3)])
def test_attention_computed_in_parts_is_the_same(name: str, by: Any) -> None:
    """Parts of two queries, with padding, against all at once."""
    model, inputs, data = (
        random_model(name),
        inputs_of(name),
        [inputs_of(name, 3), inputs_of(name, 4, 3)],
    )
    with papa.ablated(model, SOME_HEADS, by=by, data=data):
        whole = answers(model, inputs)
    with (
        patch.object(layer, "_ENTRIES", 2 * 2 * HEADS * 9),
        papa.ablated(model, SOME_HEADS, by=by, data=data),
    ):
        torch.testing.assert_close(answers(model, inputs), whole, atol=EXACT, rtol=0)
    with papa.ablated(model, SOME_HEADS, by="zeros"):
        assert (answers(model, inputs) - whole).abs().max() > 0.1


@pytest.mark.parametrize("name", ["gpt2", "bert"])
def test_a_relative_constant_is_the_mean_along_a_diagonal(name: str) -> None:
    """And serves longer texts: a distance that no text had weighs as the farthest that one had."""
    model, short = random_model(name), alone(inputs_of(name, length=5))
    ids = inputs_of(name, 6, 1 + 1, 14)["input_ids"][:1]
    model.set_attn_implementation("eager")
    with torch.no_grad():
        own = model(**short, output_attentions=True).attentions[0][0]
    model.set_attn_implementation("sdpa")
    length = int(short["attention_mask"].sum())
    own = own[:, :length, :length]

    encoder = name == "bert"

    def expected(layer: int, head: int, slots: int, beyond: float = 1.0) -> Tensor:
        """The first column is apart, and an encoder's last; so the farthest distances are two below
        the length.
        """
        found = torch.zeros(slots, slots, dtype=torch.float64)
        for row in range(slots):
            for column in range(slots):
                near = max(2 - length, min(row - column, length - 2))
                inner = slice(1 if near >= 0 else 0, -1 if encoder and near <= 0 else None)
                found[row, column] = own[head].diagonal(-near)[inner].mean()
                if near != row - column:
                    found[row, column] *= beyond
        found[:, 0] = own[head, :, 0].mean()
        if encoder:
            found[:, -1] = own[head, :, -1].mean()
        return found

    with papa.ablated(model, {0: range(HEADS)}, by="relative", data=[short]):
        found = answers(model, {"input_ids": ids})
    with papa.ablated(model, {0: range(HEADS)}, by=expected):
        torch.testing.assert_close(found, answers(model, {"input_ids": ids}), atol=EXACT, rtol=0)
    with papa.ablated(model, {0: range(HEADS)}, by=lambda *place: expected(*place, beyond=0.0)):
        assert (found - answers(model, {"input_ids": ids})).abs().max() > 0.01


def test_streaming_without_sinks_is_a_sliding_window() -> None:
    """Against Mistral, which slides by itself."""
    sliding, inputs = random_model("mistral"), inputs_of("mistral", length=20)
    full = random_model("mistral")
    full.config.sliding_window = full.model.config.sliding_window = None
    before, window = answers(sliding, inputs), sliding.config.sliding_window
    for recent, same in ((window, True), (window + 1, False)):
        with papa.ablated(full, EVERY_HEAD, by=Streaming(0, recent)):
            assert torch.allclose(answers(full, inputs), before, atol=EXACT, rtol=0) == same
    with pytest.raises(SpecError, match="recent is 0, expected 0 or more and 1 or more"):
        Streaming(1, 0)


@pytest.mark.parametrize("name", DECODERS)
def test_a_mix_with_streaming_is_duo_attention(name: str) -> None:
    """Its forward pass in two ways, by the family's own attention: α of the full one, the rest of a
    restricted one.
    """
    model, inputs = random_model(name), inputs_of(name, length=16)
    alpha = torch.rand(
        LAYERS, HEADS, generator=torch.Generator().manual_seed(2), dtype=torch.float64
    )
    sinks, recent, layers = 2, 4, attention_modules(model)

    def two_ways(
        module: Any, query: Tensor, key: Tensor, value: Tensor, mask: Tensor, **more: Any
    ) -> Any:
        own = sys.modules[type(module).__module__].eager_attention_forward
        rows, columns = torch.arange(query.shape[2])[:, None], torch.arange(key.shape[2])
        seen = (columns < sinks) | (rows - columns < recent)
        full, streaming = (
            own(module, query, key, value, one, **more)[0]
            for one in (mask, mask.masked_fill(~seen, torch.finfo(mask.dtype).min))
        )
        share = alpha[layers.index(module)][:, None]
        return share * full + (1 - share) * streaming, None

    AttentionInterface.register("two_ways", two_ways)
    AttentionMaskInterface.register("two_ways", eager_mask)
    model.set_attn_implementation("two_ways")
    expected = answers(model, inputs)
    model.set_attn_implementation("eager")
    for window, same in ((recent, True), (recent + 1, False)):
        with papa.ablated(model, EVERY_HEAD, by=Mixed(Streaming(sinks, window), alpha)):
            assert torch.allclose(answers(model, inputs), expected, atol=EXACT, rtol=0) == same
