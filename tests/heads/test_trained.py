"""A decoder that learned induction."""

from __future__ import annotations

import random
from collections.abc import Sequence

import pytest
import torch
from torch import Tensor

import papa
from papa.library.substitutes import substitute_for
from tests.heads.copying import HEADS, LAYERS, small_gpt2

pytestmark = pytest.mark.unchecked


SHORTEST = 4
LONGEST = 12
LENGTH = 24
WORDS = 32


def periodic(seed: int, texts: int = 64) -> dict[str, Tensor]:
    """Random tokens with a period of each text's own; labels are what its first period tells."""
    draw = torch.Generator().manual_seed(seed)
    period = torch.randint(SHORTEST, LONGEST + 1, (texts, 1), generator=draw)
    tokens = torch.randint(WORDS, (texts, LONGEST), generator=draw)
    positions = torch.arange(LENGTH)[None]
    ids = tokens.gather(1, positions % period)
    return {"input_ids": ids, "labels": torch.where(positions > period, ids, -100)}


def test_lambda_of_a_decoder_tells_heads_at_positions_from_those_at_text() -> None:
    """Induction, to find one's last token earlier on and to say what followed, needs the token
    before, a position, in the first layer, and what is like it, in the second.
    """
    model = small_gpt2(
        LENGTH,
        WORDS,
        lambda model_trained, step: model_trained(**periodic(step)).loss,
        0.5,
        loss_type="ForCausalLM",
    )
    held_out = periodic(10_001)
    data = [periodic(seed, 32) for seed in range(20_000, 20_012)]
    every_head = [(layer, head) for layer in range(LAYERS) for head in range(HEADS)]
    average = substitute_for(model, "average", data=data)
    scores = papa.head_scores(model, data, substitute=average, ranking_seeds=[0], progress=False)
    by_layer = scores.groupby("layer")["score"]
    assert by_layer.max()[0] < 0.4 < 0.6 < by_layer.min()[1]

    @torch.no_grad()
    def loss(heads: Sequence[tuple[int, int]]) -> float:
        with papa.ablated(model, heads, substitute=average):
            return float(model(**held_out).loss)

    original_loss = loss([])
    assert original_loss < 0.6
    assert loss(every_head) > original_loss + 1.5
    for fraction, lost in ((0.5, 0.4), (0.25, 0.8)):
        heads = papa.constant_heads(scores, keep=fraction)
        draw = random.Random(0)
        at_random = [loss(draw.sample(every_head, len(heads))) for _ in range(10)]
        assert loss(heads) < original_loss + lost
        assert loss(heads) < sum(at_random) / len(at_random) - 0.2
