"""Scores that are means over the rows of attention, recomputed text by text; shares of sinks."""

from dataclasses import replace

import numpy as np
import pytest
import torch
from scipy.spatial.distance import jensenshannon
from transformers import GptOssForCausalLM

import papa
from papa.descriptions.observation import observe_text
from papa.errors import SpecError
from papa.models.encoder import load_encoder
from papa.models.reference import EncoderReference
from papa.ranking.loss_scores import ScoringRequest
from papa.ranking.streamed import (
    confidence,
    distance,
    output_distance,
    score_by_row_means,
    variance,
)
from papa.spec import RankingSpec
from papa.text.batches import micro_batches
from tests.make import GPT_OSS, decoder

DRAWN = torch.Generator().manual_seed(0)
TEXTS = [{"input_ids": torch.randint(1, 300, (6, size), generator=DRAWN)} for size in (7, 10)]
METHODS = {method.__name__: method for method in (confidence, variance, distance, output_distance)}
ROWS = 24
SEPARATOR = 102


@pytest.fixture(scope="module")
def gpt_oss() -> GptOssForCausalLM:
    torch.manual_seed(0)
    model = decoder("GptOss", GPT_OSS)().eval()
    for layer in model.model.layers:
        torch.nn.init.normal_(layer.self_attn.sinks)
    model.set_attn_implementation("eager")
    return model


def shares_of_sinks(model: GptOssForCausalLM) -> np.ndarray:
    """What rows of the model's own attention lack to one, of each text [texts, layers, heads]."""
    by_text: list[np.ndarray] = []
    with torch.inference_mode():
        for batch in TEXTS:
            matrices = model(batch["input_ids"], output_attentions=True).attentions
            shares = 1 - torch.stack(matrices, dim=1).double().sum(-1)
            by_text.extend(shares.numpy())
    return np.array([shares.mean(-1) for shares in by_text])


def test_sink_share_is_what_rows_lack_to_one(gpt_oss: GptOssForCausalLM) -> None:
    frame = papa.head_scores(gpt_oss, TEXTS, method="sink_share", ranking_seeds=[0], progress=False)
    by_text = shares_of_sinks(gpt_oss)
    lengths = np.repeat([7, 10], 6)
    expected = -np.average(by_text, axis=0, weights=lengths)
    np.testing.assert_allclose(frame["score"], expected.ravel(), atol=1e-5)
    assert np.ptp(expected) > 0.1, "negative control: heads differ"
    assert (frame["low"] < frame["score"]).all()
    assert (frame["score"] < frame["high"]).all()


def test_a_model_without_sinks_has_no_share_of_them() -> None:
    llama = decoder("Llama")().eval()
    with pytest.raises(SpecError) as error:
        papa.head_scores(llama, TEXTS, method="sink_share", progress=False)
    assert "sink_share" in str(error.value)


def by_hand(request: ScoringRequest) -> dict[str, tuple[np.ndarray, np.ndarray]]:
    """Of every text the sum over its rows [texts, layers, heads], and how many rows count."""
    observation = [
        observation
        for batch in micro_batches(request.corpus.split("train"), request.rows, 1)
        for observation in observe_text(request.encoder, request.constants, batch, SEPARATOR)
    ]
    input_dependent = [
        observation for observation in observation if observation.source == "input-dependent"
    ]
    fixed = [observation for observation in observation if observation.source == "constant"]
    texts = []
    for a, c in zip(input_dependent, fixed, strict=True):
        words = ~a.separators.numpy()
        attention = a.attention.double().numpy()
        constant = c.attention.double().numpy()
        n = len(words)
        largest = attention[..., words].max(-1)[..., words].sum(-1)
        around = np.zeros(attention.shape[:2])
        for i in range(n):
            mean = sum(j * attention[..., i, j] for j in range(n))
            around -= sum(attention[..., i, j] * (mean - j) ** 2 for j in range(n))
        apart = (jensenshannon(attention, constant, axis=-1) ** 2).sum(-1)
        added, fixed_output = (
            (observation.output @ observation.output_maps).numpy() for observation in (a, c)
        )
        relative = np.linalg.norm(added - fixed_output, axis=(-1, -2)) / np.linalg.norm(
            added, axis=(-1, -2)
        )
        texts.append(((largest, words.sum()), (around, n), (apart, n), (relative, 1)))
    by_method = zip(METHODS, zip(*texts, strict=True), strict=True)
    return {
        name: tuple(map(np.array, zip(*texts_of_method, strict=True)))
        for name, texts_of_method in by_method
    }


def test_scores_are_means_over_rows(scoring_request: ScoringRequest) -> None:
    scoring_request = replace(scoring_request, ranking=RankingSpec(rows=ROWS))
    scores = score_by_row_means(scoring_request, METHODS)
    for name, (sums, counts) in by_hand(scoring_request).items():
        mean = sums.sum(0) / counts.sum()
        np.testing.assert_allclose(scores[name].mean, mean, rtol=1e-5, atol=1e-6)
        # The ratio of two sums, linearised: what each text adds to it.
        residuals = (sums - mean * counts[:, None, None]) / counts.mean()
        error = residuals.std(axis=0, ddof=1) / np.sqrt(ROWS)
        np.testing.assert_allclose(scores[name].standard_error, error, rtol=1e-3)
        assert scores[name].evaluations == 1
        assert mean.std() > 10 * np.abs(scores[name].mean - mean).max(), "heads differ"
    assert 0 < scores["distance"].mean.min() < scores["distance"].mean.max() < np.log(2)


@pytest.mark.parametrize("name", METHODS)
def test_a_score_changes_with_its_head_alone(
    name: str, scoring_request: ScoringRequest, reference: EncoderReference
) -> None:
    """The head (1, 5) looks at all tokens alike; the heads beside and below it are as before."""
    perturbed = load_encoder(reference)
    query = perturbed.model.encoder.layer[1].attention.self.query
    rows_of_head = slice(5 * perturbed.head_width, 6 * perturbed.head_width)
    for name_of, values in query.named_parameters():
        changed = values.detach().clone()
        changed[rows_of_head] = 0
        setattr(query, name_of, torch.nn.Parameter(changed, requires_grad=False))
    ranking = RankingSpec(rows=8)
    before = score_by_row_means(replace(scoring_request, ranking=ranking), METHODS)[name].mean
    after = score_by_row_means(
        replace(scoring_request, ranking=ranking, encoder=perturbed), METHODS
    )[name].mean
    moved = np.abs(before - after) > 1e-3 * np.abs(before)
    assert np.argwhere(moved).tolist() == [[1, 5]]
