"""Scores that are means over rows of attention, against sums by hand."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
import torch
from scipy.spatial.distance import jensenshannon

from papa.descriptions.seen import seen_in
from papa.models.encoder import load_encoder
from papa.models.reference import EncoderReference
from papa.ranking.sets import Asked
from papa.ranking.streamed import confidence, distance, output_distance, streamed, variance
from papa.spec import RankingSpec
from papa.text.batches import micro_batches

METHODS = {one.__name__: one for one in (confidence, variance, distance, output_distance)}
ROWS, SEPARATOR = 24, 102


def by_hand(asked: Asked) -> dict[str, tuple[np.ndarray, np.ndarray]]:
    """Of every text the sum over its rows [texts, layers, heads], and how many rows count."""
    seen = [
        one
        for batch in micro_batches(asked.corpus.split("train"), asked.rows, 1)
        for one in seen_in(asked.encoder, asked.constants, batch, SEPARATOR)
    ]
    own = [one for one in seen if one.of == "input-dependent"]
    fixed = [one for one in seen if one.of == "constant"]
    texts = []
    for a, c in zip(own, fixed, strict=True):
        words = ~a.separators.numpy()
        attention, constant = a.attention.double().numpy(), c.attention.double().numpy()
        n = len(words)
        largest = attention[..., words].max(-1)[..., words].sum(-1)
        around = np.zeros(attention.shape[:2])
        for i in range(n):
            mean = sum(j * attention[..., i, j] for j in range(n))
            around -= sum(attention[..., i, j] * (mean - j) ** 2 for j in range(n))
        apart = (jensenshannon(attention, constant, axis=-1) ** 2).sum(-1)
        added, fixed_added = ((seen.output @ seen.output_maps).numpy() for seen in (a, c))
        relative = np.linalg.norm(added - fixed_added, axis=(-1, -2)) / np.linalg.norm(
            added, axis=(-1, -2)
        )
        texts.append(((largest, words.sum()), (around, n), (apart, n), (relative, 1)))
    by_method = zip(METHODS, zip(*texts, strict=True), strict=True)
    return {name: tuple(map(np.array, zip(*of, strict=True))) for name, of in by_method}


def test_means_over_rows_and_their_errors(asked: Asked) -> None:
    asked = replace(asked, ranking=RankingSpec(rows=ROWS))
    found = streamed(asked, METHODS)
    for name, (sums, counts) in by_hand(asked).items():
        mean = sums.sum(0) / counts.sum()
        np.testing.assert_allclose(found[name].mean, mean, rtol=1e-5, atol=1e-6)
        # The ratio of two sums, linearised: what each text adds to it.
        residuals = (sums - mean * counts[:, None, None]) / counts.mean()
        error = residuals.std(axis=0, ddof=1) / np.sqrt(ROWS)
        np.testing.assert_allclose(found[name].standard_error, error, rtol=1e-3)
        assert found[name].evaluations == 1
        assert mean.std() > 10 * np.abs(found[name].mean - mean).max(), "heads differ"
    assert 0 < found["distance"].mean.min() < found["distance"].mean.max() < np.log(2)


@pytest.mark.parametrize("name", METHODS)
def test_a_score_changes_with_its_head_alone(
    name: str, asked: Asked, reference: EncoderReference
) -> None:
    """The head (1, 5) looks at all tokens alike; the heads beside and below it are as before."""
    perturbed = load_encoder(reference)
    query = perturbed.model.encoder.layer[1].attention.self.query
    own = slice(5 * perturbed.head_width, 6 * perturbed.head_width)
    for name_of, values in query.named_parameters():
        changed = values.detach().clone()
        changed[own] = 0
        setattr(query, name_of, torch.nn.Parameter(changed, requires_grad=False))
    ranking = RankingSpec(rows=8)
    before = streamed(replace(asked, ranking=ranking), METHODS)[name].mean
    after = streamed(replace(asked, ranking=ranking, encoder=perturbed), METHODS)[name].mean
    moved = np.abs(before - after) > 1e-3 * np.abs(before)
    assert np.argwhere(moved).tolist() == [[1, 5]]
