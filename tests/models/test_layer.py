"""What a layer's attention knows of its pass."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch import Tensor

import papa
from papa.models.layer import LayerAttention, PassTexts
from tests.make import inputs_of, random_model


def test_digests_tell_texts_apart_whatever_their_padding() -> None:
    ids = torch.tensor([[5, 6, 7, 0], [5, 6, 7, 9], [5, 6, 8, 0]])
    mask = ids > 0
    longer = torch.tensor([[0, 0, 5, 6, 7]])
    digests = PassTexts(ids, mask).digests
    assert len(set(digests)) == 3
    assert PassTexts(longer, longer > 0).digests == digests[:1]


@pytest.mark.parametrize(("substitute", "is_read"), [("zeros", False), ("resampled_output", True)])
def test_digests_are_computed_for_resampled_outputs_alone(
    substitute: str, is_read: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    observed: list[PassTexts] = []
    output = LayerAttention.output

    def observe(attention: LayerAttention, heads: Any) -> Tensor:
        if attention.texts is not None:
            observed.append(attention.texts)
        return output(attention, heads)

    monkeypatch.setattr(LayerAttention, "output", observe)
    model = random_model("gpt2")
    batches = [inputs_of("gpt2", seed=seed, batch=3) for seed in (1, 2)]
    with torch.no_grad(), papa.ablated(model, [(0, 1)], substitute=substitute, data=batches):
        observed.clear()
        model(**batches[0])
    assert observed
    assert all(("digests" in vars(texts)) == is_read for texts in observed)
