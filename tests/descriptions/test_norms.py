"""Norms and mixing, word by word; and the output maps of every family."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
import torch

from papa.descriptions.heads import Mixing, Norms, behind_norm
from papa.descriptions.seen import Seen
from papa.models.encoder import Encoder
from tests.descriptions.cases import seen, values
from tests.make import ENCODERS, random_model
from tests.models.inputs import some_inputs


@pytest.mark.parametrize("variant", sorted(ENCODERS))
def test_maps_and_norms_are_the_stock_models(variant: str) -> None:
    """Output maps take what heads put out, and parts behind the norm add up to its output."""
    encoder, calls, normed = Encoder(random_model(variant)), [], []
    family = encoder.family
    norms = family.modules(encoder.model, family.norm) if family.norm else []
    for norm in dict.fromkeys(norms):
        torch.nn.init.normal_(norm.weight)
        norm.register_forward_hook(lambda module, given, out: normed.append(out.squeeze(0)))
    for linear in dict.fromkeys(family.modules(encoder.model, family.output)):
        linear.register_forward_hook(lambda module, given, out: calls.append((module, *given, out)))
    states = torch.stack(encoder.token_states(some_inputs(3).compact())[:-1])
    assert len(calls) == encoder.layers
    for maps, (module, given, out) in zip(encoder.output_maps, calls, strict=True):
        heads = given.unflatten(-1, (encoder.heads, -1))
        found, turned = (torch.einsum("bthd,hdw->btw", heads, one) for one in (maps, maps.flip(0)))
        expected = out if module.bias is None else out - module.bias
        torch.testing.assert_close(found, expected, rtol=1e-4, atol=1e-4)
        assert not torch.allclose(turned, expected, atol=1e-2), "control: heads in another order"
    weights = encoder.attention_norm_weights
    assert (weights is None) == variant.startswith("modernbert"), "it normalises before attention"
    if weights is None:
        return
    brought = torch.stack([out.squeeze(0) for *_, out in calls])
    sigma = (states + brought).std(dim=-1, correction=0, keepdim=True)
    kept, added = (behind_norm(part, weights) / sigma for part in (states, brought))
    expected = torch.stack(normed) - torch.stack([norm.bias for norm in norms])[:, None]
    torch.testing.assert_close(kept + added, expected, rtol=1e-3, atol=1e-3)
    assert not torch.allclose(kept, expected, atol=1e-2), "negative control: a part is missing"


def case() -> tuple[Seen, torch.Tensor]:
    """What is seen, and what token j brings to token i: [layer, head, i, j, width]."""
    attention = torch.rand(2, 2, 4, 4, generator=torch.Generator().manual_seed(3)).softmax(dim=-1)
    one = seen("input-dependent", attention)
    return one, torch.einsum("lhij,lhjd,lhdw->lhijw", attention, one.value, one.output_maps)


def mean(frame: Any, measure: str) -> list[float]:
    return values(frame, measure).tolist()


def told(kind: type[Norms | Mixing], one: Seen) -> Any:
    description = kind()
    description.see(one)
    return description.frame()


def test_norms_are_what_each_token_brings() -> None:
    one, brought = case()
    shares = brought.norm(dim=-1)
    shares = shares / shares.sum(dim=-1, keepdim=True)
    expected = {
        "separator_norm": shares[..., 3],
        "own_norm": shares.diagonal(dim1=-2, dim2=-1),
        "added": brought.sum(dim=3).norm(dim=-1),
    }
    frame = told(Norms, one)
    for name, means in expected.items():
        assert mean(frame, name) == pytest.approx(means.mean(dim=-1).flatten().tolist()), name
    one.value[..., 3, :] = 0
    assert mean(told(Norms, one), "separator_norm") == [0] * 4, "it takes mass, brings nothing"


def test_mixing_counts_other_tokens_against_the_own() -> None:
    one, brought = case()
    brought = brought.sum(dim=1)
    own = torch.stack([brought[:, i, i] for i in range(4)], dim=1)
    others, kept = brought.sum(dim=2) - own, own + one.states[:2]

    def share(mixed: torch.Tensor, left: torch.Tensor) -> Any:
        norm = mixed.norm(dim=-1)
        return pytest.approx((norm / (norm + left.norm(dim=-1))).mean(dim=1).tolist(), abs=1e-5)

    frame = told(Mixing, one)
    assert mean(frame, "mixing") == share(others, own)
    assert mean(frame, "mixing_with_residual") == share(others, kept)
    assert values(frame, "mixing_behind_norm").isna().all(), "no normalisation is known"
    weights = torch.rand(2, 6) + 0.5
    # With one σ for a token's parts, its ratio is that of the centred and scaled parts.
    parts = [(part - part.mean(dim=-1, keepdim=True)) * weights[:, None] for part in (others, kept)]
    normed = told(Mixing, replace(one, norm_weights=weights))
    assert mean(normed, "mixing_behind_norm") == share(*parts)
    one.attention[0] = torch.eye(4)
    alone = mean(told(Mixing, one), "mixing")
    assert alone == pytest.approx([0, mean(frame, "mixing")[1]], abs=1e-5), "each token its own"
