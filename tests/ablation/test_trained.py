"""Trained models: decoders that learned to copy what stands 23 tokens before, and induction; and
MiniLM.
"""

from __future__ import annotations

import random
from collections.abc import Sequence

import pytest
import torch
from torch import Tensor
from transformers import GPT2LMHeadModel

import papa
from papa.library.ablating import substitute_for
from tests.ablation.copying import (
    HEADS,
    LAYERS,
    copying_loss,
    repeated,
    small_gpt2,
    trained_copier,
)

pytestmark = pytest.mark.unchecked


@torch.no_grad()
def test_a_decoder_that_copies_from_a_fixed_distance_looks_at_positions_alone() -> None:
    """Without its heads' output it cannot copy; with attention that never sees the text it copies
    as well as ever.
    """
    copier = trained_copier()
    held_out = repeated(10_001)
    data = [{"input_ids": repeated(seed)} for seed in range(20_000, 20_002)]
    everything = {layer: range(HEADS) for layer in range(LAYERS)}
    loss = {"own": float(copying_loss(copier, held_out))}
    for by in ("zeros", "mean", "resample", "average", "relative"):
        with papa.ablated(copier, everything, by=by, data=data):
            loss[by] = float(copying_loss(copier, held_out))

    def one_off(layer: int, head: int, slots: int) -> Tensor:
        """The right distance is 23."""
        return torch.eye(slots).roll(24, dims=0).tril() + 1e-6

    with papa.ablated(copier, everything, by=one_off):
        loss["one off"] = float(copying_loss(copier, held_out))
    assert loss["own"] < 0.1
    assert loss["average"] < loss["own"] + 0.05
    assert loss["relative"] < loss["own"] + 0.1
    assert min(loss["zeros"], loss["mean"], loss["resample"], loss["one off"]) > 2


SHORTEST, LONGEST, LENGTH, WORDS = 4, 12, 24, 32


def periodic(seed: int, texts: int = 64) -> dict[str, Tensor]:
    """Random tokens again and again, with a period of each text's own; labels are what its first
    period tells.
    """
    draw = torch.Generator().manual_seed(seed)
    period = torch.randint(SHORTEST, LONGEST + 1, (texts, 1), generator=draw)
    tokens = torch.randint(WORDS, (texts, LONGEST), generator=draw)
    places = torch.arange(LENGTH)[None]
    ids = tokens.gather(1, places % period)
    return {"input_ids": ids, "labels": torch.where(places > period, ids, -100)}


def inducer() -> GPT2LMHeadModel:
    """A small GPT-2 that has learned induction: to find its last token earlier on, and to say what
    followed.
    """
    return small_gpt2(
        LENGTH,
        WORDS,
        lambda model, step: model(**periodic(step)).loss,
        0.5,
        loss_type="ForCausalLM",
    )


def test_lambda_of_a_decoder_tells_heads_at_positions_from_those_at_text() -> None:
    """Induction needs the token before, a position, in the first layer, and what is like it, in the
    second.
    """
    model, held_out = inducer(), periodic(10_001)
    data = [periodic(seed, 32) for seed in range(20_000, 20_012)]
    every = [(layer, head) for layer in range(LAYERS) for head in range(HEADS)]
    average = substitute_for(model, "average", data=data)
    scores = papa.head_scores(model, data, constants=average, seeds=[0], progress=False)
    by_layer = scores.groupby("layer")["score"]
    assert by_layer.max()[0] < 0.4 < 0.6 < by_layer.min()[1]

    @torch.no_grad()
    def loss(heads: Sequence[tuple[int, int]]) -> float:
        with papa.ablated(model, heads, average):
            return float(model(**held_out).loss)

    own = loss([])
    assert own < 0.6
    assert loss(every) > own + 1.5
    for fraction, lost in ((0.5, 0.4), (0.25, 0.8)):
        heads = papa.constant_heads(scores, fraction)
        draw = random.Random(0)
        at_random = [loss(draw.sample(every, len(heads))) for _ in range(10)]
        assert loss(heads) < own + lost
        assert loss(heads) < sum(at_random) / len(at_random) - 0.2
