"""Norms and mixing, word by word; and the output maps of every family."""

from __future__ import annotations

from dataclasses import replace

import pytest
import torch

from papa.descriptions.mixing import Mixing, behind_norm
from papa.descriptions.norms import Norms
from papa.encoders.encoder import Encoder
from tests.descriptions.cases import seen
from tests.encoders.inputs import some_inputs
from tests.encoders.models import MODELS, random_model


@pytest.mark.parametrize("variant", sorted(MODELS))
def test_output_maps_take_what_heads_put_out(variant: str) -> None:
    encoder = Encoder(random_model(variant))
    calls = []
    for linear in dict.fromkeys(encoder.family.output_maps(encoder.model)):
        linear.register_forward_hook(lambda module, given, out: calls.append((module, *given, out)))
    encoder.token_states(some_inputs(3).compact())
    assert len(calls) == encoder.layers
    for maps, (module, given, out) in zip(encoder.output_maps, calls, strict=True):
        heads = given.unflatten(-1, (encoder.heads, -1))
        found = torch.einsum("bthd,hdw->btw", heads, maps)
        expected = out if module.bias is None else out - module.bias
        torch.testing.assert_close(found, expected, rtol=1e-4, atol=1e-4)
        assert not torch.allclose(
            torch.einsum("bthd,hdw->btw", heads, maps.flip(0)), expected, atol=1e-2
        ), "negative control: heads in another order"


@pytest.mark.parametrize("variant", sorted(MODELS))
def test_parts_behind_the_norm_add_up_to_the_stock_norm(variant: str) -> None:
    encoder = Encoder(random_model(variant))
    weights = encoder.attention_norm_weights
    assert (weights is None) == variant.startswith("modernbert"), "it normalises before attention"
    if weights is None:
        return
    assert encoder.family.attention_norms is not None
    added, normed = [], []
    for linear in dict.fromkeys(encoder.family.output_maps(encoder.model)):
        linear.register_forward_hook(lambda module, given, out: added.append(out.squeeze(0)))
    norms = encoder.family.attention_norms(encoder.model)
    for norm in dict.fromkeys(norms):
        torch.nn.init.normal_(norm.weight)
        norm.register_forward_hook(lambda module, given, out: normed.append(out.squeeze(0)))
    weights = encoder.attention_norm_weights
    states = torch.stack(encoder.token_states(some_inputs(3).compact())[:-1])
    brought, biases = torch.stack(added), torch.stack([norm.bias for norm in norms])
    whole = states + brought
    sigma = whole.std(dim=-1, correction=0, keepdim=True)
    parts = (behind_norm(states, weights) + behind_norm(brought, weights)) / sigma
    expected = torch.stack(normed) - biases[:, None]
    torch.testing.assert_close(parts, expected, rtol=1e-3, atol=1e-3)
    wrong = behind_norm(states, weights) / sigma
    assert not torch.allclose(wrong, expected, atol=1e-2), "negative control: a part is missing"


def case(of: str = "input-dependent"):
    attention = torch.rand(2, 2, 4, 4, generator=torch.Generator().manual_seed(3)).softmax(dim=-1)
    return seen(of, attention)


def test_norms_are_what_each_token_brings() -> None:
    one, norms = case(), Norms()
    norms.see(one)
    frame = norms.frame().set_index(["layer", "head"])
    for layer, head in [(0, 1), (1, 0)]:
        shares, own, added = 0.0, 0.0, 0.0
        for i in range(4):
            brought = [
                one.attention[layer, head, i, j]
                * (one.value[layer, head, j] @ one.output_maps[layer, head])
                for j in range(4)
            ]
            total = sum(part.norm() for part in brought)
            shares += brought[3].norm() / total
            own += brought[i].norm() / total
            added += sum(brought).norm()
        expected = [float(part) / 4 for part in (shares, own, added)]
        assert frame.loc[(layer, head), ["separator_norm", "own_norm", "added"]].tolist() == (
            pytest.approx(expected, abs=1e-5)
        )


def test_a_separator_with_small_values_takes_mass_and_brings_nothing() -> None:
    one = case()
    one.value[..., 3, :] = 0
    norms = Norms()
    norms.see(one)
    assert norms.frame()["separator_norm"].tolist() == [0, 0, 0, 0]


def test_mixing_counts_other_tokens_against_the_own() -> None:
    one, mixing = case(), Mixing()
    mixing.see(one)
    brought = torch.einsum("lhij,lhjd,lhdw->lijw", one.attention, one.value, one.output_maps)
    own = torch.stack([brought[:, i, i] for i in range(4)], dim=1)
    others = (brought.sum(dim=2) - own).norm(dim=-1)
    frame = mixing.frame()
    plain = (others / (others + own.norm(dim=-1))).mean(dim=1)
    assert frame["mixing"].tolist() == pytest.approx(plain.tolist(), abs=1e-5)
    kept = (own + one.states[:2]).norm(dim=-1)
    with_residual = (others / (others + kept)).mean(dim=1)
    assert frame["mixing_with_residual"].tolist() == pytest.approx(with_residual.tolist(), abs=1e-5)
    assert frame["mixing_behind_norm"].isna().all(), "no normalisation is known"
    weights = torch.rand(2, 6) + 0.5
    normed, parts = Mixing(), []
    normed.see(replace(one, norm_weights=weights))
    # With one σ for a token's parts, its ratio is that of the centred and scaled parts.
    for part in (brought.sum(dim=2) - own, own + one.states[:2]):
        shift = part.sum(dim=-1, keepdim=True) / 6
        parts.append(torch.linalg.vector_norm((part - shift) * weights.unsqueeze(1), dim=-1))
    behind = (parts[0] / (parts[0] + parts[1])).mean(dim=1)
    assert normed.frame()["mixing_behind_norm"].tolist() == pytest.approx(behind.tolist(), abs=1e-5)
    one.attention[0] = torch.eye(4)
    alone = Mixing()
    alone.see(one)
    assert alone.frame()["mixing"][0] == pytest.approx(0, abs=1e-5), "each token its own"
    assert alone.frame()["mixing"][1] == pytest.approx(frame["mixing"][1])
