"""The probes against plain formulas and plain tables, and themselves trained alone."""

from __future__ import annotations

from dataclasses import replace

import pytest
import torch

from papa.models.encoder import Encoder
from papa.probes.features import PackedFeatures, compute_features
from papa.probes.probes import MaskedProbe, SequenceProbe, TokenProbe, dropped
from papa.text.corpus import TokenisedCorpus
from tests.probes.conftest import LAYERS

SIZES = {"layers": LAYERS + 1, "width": 384, "slots": 64}


@pytest.fixture
def features(encoder: Encoder, corpora: dict[str, TokenisedCorpus]) -> PackedFeatures:
    split = corpora["cola"].split("train")
    return compute_features(encoder, split, 512, "float32", rows=split.rows[:8])


def test_rows_that_are_selected_give_what_they_gave(features: PackedFeatures) -> None:
    probe, rows = SequenceProbe((0, 1), **SIZES, labels=2), [3, 0, 3]
    chosen = features.select(torch.tensor(rows), features.values.device)
    found = probe.inputs(chosen, torch.arange(3).expand(2, -1))
    for one, other in zip(found, probe.inputs(features, torch.tensor([rows] * 2)), strict=True):
        torch.testing.assert_close(one, other)


def test_a_seeds_loss_is_the_mean_over_its_own_tokens(
    encoder: Encoder, corpora: dict[str, TokenisedCorpus]
) -> None:
    features = compute_features(encoder, corpora["wnut17"].split("train"), 512, "float32")
    sizes, rows = {"layers": LAYERS + 1, "width": 384, "labels": 13}, torch.arange(6).view(2, 3)
    assert len({*features.lengths[:6].view(2, 3).sum(1).tolist()}) == 2, "seeds differ in tokens"
    found = TokenProbe((0, 1), **sizes).losses(features, rows)
    for seed in range(2):
        (alone,) = TokenProbe((seed,), **sizes).losses(features, rows[seed : seed + 1])
        torch.testing.assert_close(found[seed], alone)


def test_dropout_drops_a_tenth_and_seeds_draw_their_own() -> None:
    values = torch.ones(2, 200, 384)
    found = dropped(values, 0.1, (7, 8))
    assert found.unique().tolist() == pytest.approx([0, 1 / 0.9])
    assert float((found == 0).float().mean()) == pytest.approx(0.1, abs=0.01)
    assert torch.equal(found[1], dropped(values[:1], 0.1, (8,))[0])
    assert not torch.equal(found[0], found[1])


def test_probes_start_as_the_paper_says_each_from_its_seed_alone() -> None:
    probe, alone = (SequenceProbe(seeds, **SIZES, labels=2) for seeds in ((5, 9), (9,)))
    assert bool((probe.slot_weights == 1 / 64).all())
    for linear in (probe.dense, probe.classifier):
        assert float(linear.weight.detach().std()) == pytest.approx(0.02, rel=0.1)
        assert not linear.bias.any()
    assert not torch.equal(probe.dense.weight[0], probe.dense.weight[1])
    for name, parameter in alone.named_parameters():
        assert torch.equal(parameter[0], probe.get_parameter(name)[1])


def test_regression_is_scored_by_squared_error(features: PackedFeatures) -> None:
    probe = SequenceProbe((0,), **SIZES, labels=1, regression=True)
    features = replace(features, labels=torch.linspace(0, 1, 8))
    rows = torch.arange(8)
    predicted = probe.predictions(features, rows)
    assert predicted.shape == (1, 8)
    expected = (predicted[0] - features.labels).square().mean()
    torch.testing.assert_close(probe.losses(features, rows[None])[0], expected)


@pytest.mark.parametrize("width", [384, 128])
def test_predictions_are_log_probabilities_of_the_true_words(
    width: int, encoder: Encoder, corpora: dict[str, TokenisedCorpus]
) -> None:
    """Also where word embeddings are narrow, and one more linear map leads to them."""
    rows, embeddings = torch.arange(12), encoder.word_embeddings[:, :width]
    split = corpora["wikitext"].split("train")
    features = compute_features(encoder, split, 1024, "float32", rows=rows.numpy())
    probe = MaskedProbe((0, 1), layers=LAYERS + 1, width=384, word_embeddings=embeddings)
    assert ("narrow.weight" in dict(probe.named_parameters())) == (width == 128)
    with torch.no_grad():
        found = probe.predictions(features, rows)
        losses = probe.losses(features, rows.expand(2, -1))
    assert found.shape == (2, len(features.labels))
    assert bool((found < 0).all())
    torch.testing.assert_close(-found.mean(1), losses, atol=1e-4, rtol=1e-5)
