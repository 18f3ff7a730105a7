"""Losses, predictions, dropout and start values of probes."""

from dataclasses import replace
from functools import partial

import pytest
import torch

from papa.models.encoder import Encoder
from papa.probes.features import compute_features
from papa.probes.packed_features import PackedFeatures
from papa.probes.probes import MaskedProbe, SequenceProbe, TokenProbe, dropped
from tests.probes.conftest import LAYERS, Corpora

sequence_probe = partial(SequenceProbe, state_count=LAYERS + 1, width=384, slots=64)
token_probe = partial(TokenProbe, state_count=LAYERS + 1, width=384, label_count=13)


@pytest.fixture
def features(encoder: Encoder, corpora: Corpora) -> PackedFeatures:
    split = corpora["reviews"].split("train")
    return compute_features(encoder, split, 512, "float32", rows=split.rows[:8])


def test_a_seeds_loss_is_its_own(encoder: Encoder, corpora: Corpora) -> None:
    features = compute_features(encoder, corpora["wnut17"].split("train"), 512, "float32")
    rows = torch.arange(6).view(2, 3)
    assert len({*features.lengths[:6].view(2, 3).sum(1).tolist()}) == 2, "seeds differ in tokens"
    seed_losses = token_probe((0, 1)).losses(features, rows)
    for seed in range(2):
        first, last = features.offsets[[3 * seed, 3 * seed + 3]]
        logits = token_probe((seed,))(features.values[first:last].flatten(1)[None])[0]
        chosen = torch.arange(len(logits)), features.labels[first:last]
        torch.testing.assert_close(seed_losses[seed], -logits.log_softmax(-1)[chosen].mean())


def test_a_seeds_loss_of_masked_words_is_its_own(encoder: Encoder, corpora: Corpora) -> None:
    features = compute_features(encoder, corpora["wikitext"].split("train"), 512, "float32")
    by_length = features.lengths.argsort()
    rows = torch.stack([by_length[:3], by_length[-3:]])
    assert features.lengths[rows].sum(1).diff() > 0, "seeds differ in masked words"
    masked_probe = partial(
        MaskedProbe,
        state_count=LAYERS + 1,
        width=384,
        word_embeddings=encoder.word_embeddings,
    )
    together = masked_probe((0, 1)).losses(features, rows)
    for seed in range(2):
        (alone,) = masked_probe((seed,)).losses(features, rows[seed][None])
        torch.testing.assert_close(together[seed], alone)


def test_dropout_drops_a_tenth_by_seed() -> None:
    values = torch.ones(2, 200, 384)
    with_dropout = dropped(values, 0.1, (7, 8))
    assert with_dropout.unique().tolist() == pytest.approx([0, 1 / 0.9])
    assert float((with_dropout == 0).float().mean()) == pytest.approx(0.1, abs=0.01)
    assert torch.equal(with_dropout[1], dropped(values[:1], 0.1, (8,))[0])
    assert not torch.equal(with_dropout[0], with_dropout[1])


def test_dropout_changes_losses_where_it_has_seeds(features: PackedFeatures) -> None:
    probe = sequence_probe((0,), label_count=2, dropout=0.1)
    rows = torch.arange(8)[None]
    losses = [probe.losses(features, rows, seeds).item() for seeds in (None, (1,), (1,), (2,))]
    assert losses[1] == losses[2]
    assert len(set(losses)) == 3


def test_probes_start_as_the_paper_says_each_from_its_seed_alone() -> None:
    probe, single_probe = (sequence_probe(seeds, label_count=2) for seeds in ((5, 9), (9,)))
    assert bool((probe.slot_weights == 1 / 64).all())
    for linear in (probe.dense, probe.classifier):
        assert float(linear.weight.detach().std()) == pytest.approx(0.02, rel=0.1)
        assert not linear.bias.any()
    assert not torch.equal(probe.dense.weight[0], probe.dense.weight[1])
    for name, parameter in single_probe.named_parameters():
        assert torch.equal(parameter[0], probe.get_parameter(name)[1])


def test_regression_is_scored_by_squared_error(features: PackedFeatures) -> None:
    probe = sequence_probe((0,), label_count=1, regression=True)
    features = replace(features, labels=torch.linspace(0, 1, 8))
    rows = torch.arange(8)
    predicted = probe.predictions(features, rows)
    assert predicted.shape == (1, 8)
    expected = (predicted[0] - features.labels).square().mean()
    torch.testing.assert_close(probe.losses(features, rows[None])[0], expected)


@pytest.mark.parametrize("width", [384, 128])
def test_predictions_are_log_probabilities(width: int, encoder: Encoder, corpora: Corpora) -> None:
    """Also where word embeddings are narrow, and one more linear map leads to them."""
    rows = torch.arange(12)
    embeddings = encoder.word_embeddings[:, :width]
    split = corpora["wikitext"].split("train")
    features = compute_features(encoder, split, 1024, "float32", rows=rows.numpy())
    probe = MaskedProbe((0, 1), state_count=LAYERS + 1, width=384, word_embeddings=embeddings)
    assert ("narrow.weight" in dict(probe.named_parameters())) == (width == 128)
    with torch.no_grad():
        predicted = probe.predictions(features, rows)
        losses = probe.losses(features, rows.expand(2, -1))
    assert predicted.shape == (2, len(features.labels))
    assert bool((predicted < 0).all())
    torch.testing.assert_close(-predicted.mean(1), losses, atol=1e-4, rtol=1e-5)
