"""Heads that mix by A of the layer before: against plain attention, in the packed way, and in
studies.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor, nn
from transformers import AttentionInterface, AttentionMaskInterface
from transformers.masking_utils import eager_mask

import papa
from papa.attention.substitutes import Mixed, Reused
from papa.errors import SpecError
from tests.ablation.test_laws import EVERY_HEAD, EXACT, LAYERS, SOME_HEADS
from tests.finished import score_study
from tests.flows.conftest import SMALL
from tests.make import answers, inputs_of, random_model


@pytest.mark.parametrize("name", ["bert", "modernbert", "gpt2", "llama", "qwen3"])
@pytest.mark.parametrize("heads", [SOME_HEADS, [(1, 0), (2, 0), (2, 1)], EVERY_HEAD])
def test_heads_mix_by_the_weights_of_the_layer_before(name: str, heads: Any) -> None:
    """Plain attention in float64 that keeps the weights it used, for the next layer."""
    model, inputs = random_model(name), inputs_of(name)
    before = answers(model, inputs)
    pairs = heads if isinstance(heads, list) else [(at, head) for at in heads for head in heads[at]]
    used: list[Tensor] = []

    def plain(
        module: nn.Module, query: Tensor, key: Tensor, value: Tensor, mask: Any, **options: Any
    ) -> tuple[Tensor, None]:
        groups = query.shape[1] // key.shape[1]
        key, value = (one.repeat_interleave(groups, dim=1) for one in (key, value))
        scores = query @ key.transpose(-1, -2) * (options.get("scaling") or query.shape[-1] ** -0.5)
        weights = (scores if mask is None else scores + mask).softmax(dim=-1)
        for layer, head in pairs:
            if layer == len(used) and layer > 0:
                weights[:, head] = used[-1][:, head]
        used.append(weights)
        return (weights @ value).transpose(1, 2), None

    AttentionInterface.register("plain_reused", plain)
    AttentionMaskInterface.register("plain_reused", eager_mask)
    with papa.ablated(model, heads, by="reused"):
        found = answers(model, inputs)
    assert answers(model, inputs).equal(before)
    model.set_attn_implementation("plain_reused")
    torch.testing.assert_close(found, answers(model, inputs), atol=EXACT, rtol=0)
    assert len(used) == LAYERS
    assert (found - before).abs().max() > 0.1, "negative control"


def test_blocks_nest_and_what_is_no_constant_is_not_mixed() -> None:
    model, inputs = random_model("bert"), inputs_of("bert")
    outer, inner = [(1, 0), (1, 1)], [(1, 1), (2, 3)]
    with papa.ablated(model, [(1, 0)], by="reused"), papa.ablated(model, inner):
        expected = answers(model, inputs)
    with papa.ablated(model, outer, by="reused"), papa.ablated(model, inner):
        torch.testing.assert_close(answers(model, inputs), expected, atol=EXACT, rtol=0)
    with papa.ablated(model, [(0, 2)], by="reused"):
        first = answers(model, inputs)
    torch.testing.assert_close(first, answers(model, inputs), atol=EXACT, rtol=0)
    mixed = Mixed(Reused(), torch.full((LAYERS, 4), 0.5))
    with papa.ablated(model, outer, by=mixed), pytest.raises(SpecError, match="no constant to mix"):
        answers(model, inputs)


def test_a_study_scores_reused_heads_by_a_probe(shallow: str, tmp_path: Path) -> None:
    task = {**SMALL["tasks"][0], "train_rows": 16, "validation_rows": 16}
    document = {**SMALL, "encoders": [shallow], "tasks": [task], "constants": ["reused", "zeros"]}
    document |= {"orders": ["first_to_last"], "fractions": [1, 0.5], "seeds": [0, 1]}
    half = score_study(document, Path(), tmp_path / "store").table.query("fraction == 0.5")
    assert half["score"].notna().all()
    assert (half["unseen_share"].isna() == (half["constants"] == "reused")).all()
    with pytest.raises(SpecError, match="no constants 'reused' of this call"):
        papa.constants("reused", papa.load_encoder("embedded/all-MiniLM-L6-v2", slots=32))
