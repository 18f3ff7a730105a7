"""bfloat16 as it runs on a CPU: the laws hold within its rounding."""

from __future__ import annotations

import copy
from dataclasses import replace

import pytest
import torch
from torch import Tensor

from papa.errors import SpecError
from papa.heads.average import AttentionAverager, AttentionSums
from papa.heads.replacement import mixed_by, replaced
from papa.models.encoder import Encoder, load_encoder
from papa.models.reference import EMBEDDED, chosen_precision, has_bfloat16, resolve_encoder
from papa.spec import EncoderSpec
from tests.heads.cases import distance
from tests.make import ENCODERS, random_model
from tests.models.inputs import SLOTS, Inputs, some_inputs

HEADS = [(layer, head) for layer in range(3) for head in range(4)]
WITHIN = 0.05
"""Of the difference that the negative control makes: bfloat16 keeps 8 bits."""


@torch.no_grad()
@pytest.mark.skipif(not has_bfloat16(), reason="this CPU does not multiply in bfloat16")
@pytest.mark.parametrize("variant", ENCODERS)
def test_the_laws_hold_within_its_rounding(variant: str) -> None:
    model = random_model(variant).float()
    full, half = Encoder(copy.deepcopy(model)), Encoder(model, precision="bfloat16")
    pad, segments = full.config.pad_token_id, max(getattr(full.config, "type_vocab_size", 0), 1)
    inputs, other = (some_inputs(seed, pad=pad, segments=segments) for seed in (1, 2))

    def average(batch: Inputs) -> AttentionSums:
        averager = AttentionAverager(half.layers, half.heads, SLOTS)
        half.watch(averager.see, [batch.compact()])
        return averager.result()

    def away(batch: Inputs, expected: list[Tensor]) -> float:
        found = half.token_states(batch.compact())
        assert all(states.dtype == torch.float32 for states in found)
        return distance(found, expected)

    constants = average(other).average()
    for heads in ([], HEADS[:5]):
        with replaced(full, constants, heads):
            expected = full.token_states(inputs.compact())
        with replaced(half, constants, heads):
            assert 0 < away(inputs, expected) < WITHIN * away(other, expected)
    own = half.token_states(inputs.compact())
    with mixed_by(half, constants, torch.ones(3, 4)):
        difference = away(inputs, own)
    with mixed_by(half, constants, torch.full((3, 4), 0.5)):
        assert difference < WITHIN * away(inputs, own)
    assert average(inputs).sums.dtype == torch.float64, "sums are exact, so shards merge"


def test_auto_takes_bfloat16_for_known_encoders_on_a_cpu_that_has_it_and_others_refuse_it(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    expected = "bfloat16" if has_bfloat16() else "float32"
    assert chosen_precision("auto", [EMBEDDED], "cpu") == expected
    assert chosen_precision("auto", [EMBEDDED, "bert-base-cased"], "cpu") == "float32"
    assert chosen_precision("auto", [EMBEDDED], "cuda") == "float32"
    assert chosen_precision("bfloat16", ["bert-base-cased"], "cpu") == "bfloat16"
    without = dict.fromkeys(torch.cpu.get_capabilities(), False)
    monkeypatch.setattr(torch.cpu, "get_capabilities", lambda: without)
    assert chosen_precision("auto", [EMBEDDED], "cpu") == "float32"
    reference = resolve_encoder(EncoderSpec(name=EMBEDDED), "bfloat16")
    reason = "bfloat16 needs a GPU, or a CPU with AMX, .* set precision: float32, or auto"
    with pytest.raises(SpecError, match=reason):
        load_encoder(replace(reference, folder="/nowhere"))  # Before weights are read.
