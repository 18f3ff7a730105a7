"""The probes against plain formulas and plain tables, and themselves trained alone."""

from __future__ import annotations

from dataclasses import replace

import pytest
import torch
import torch.nn.functional as F

from papa.models.encoder import Encoder
from papa.probes import probes
from papa.probes.features import PackedFeatures, compute_features
from papa.probes.probes import MaskedProbe, SequenceProbe, TokenProbe, decoder_losses, dropped
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
        first, last = features.offsets[[3 * seed, 3 * seed + 3]]
        logits = TokenProbe((seed,), **sizes)(features.values[first:last].flatten(1)[None])[0]
        chosen = torch.arange(len(logits)), features.labels[first:last]
        torch.testing.assert_close(found[seed], -logits.log_softmax(-1)[chosen].mean())


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


@pytest.mark.parametrize("chunk_logits", [1, 5 * 30522, 2**24])
def test_loss_and_gradients_are_those_of_the_whole_table(
    chunk_logits: int, encoder: Encoder, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(probes, "_CHUNK_LOGITS", chunk_logits)
    generator = torch.Generator().manual_seed(0)
    embeddings = encoder.word_embeddings.detach()
    vocabulary, width = embeddings.shape
    hidden = torch.randn(2, 7, width, generator=generator)
    bias = torch.randn(2, vocabulary, generator=generator)
    labels = torch.randint(vocabulary, (2, 7), generator=generator)
    labels[0, 3:] = -100
    if chunk_logits == 1:
        labels[1] = -100
    scale = torch.tensor([1.0, 3.0])

    found, plain = ([one.clone().requires_grad_() for one in (hidden, bias)] for _ in range(2))
    losses = decoder_losses(found[0], embeddings, found[1], labels)
    (losses * scale).sum().backward()
    logits = plain[0] @ embeddings.T + plain[1][:, None]
    # A seed without labels has the loss 0.
    expected = torch.stack(
        [F.cross_entropy(logits[s], labels[s], ignore_index=-100).nan_to_num() for s in range(2)]
    )
    (expected * scale).sum().backward()

    torch.testing.assert_close(losses, expected, atol=1e-5, rtol=1e-5)
    for one, other in zip(found, plain, strict=True):
        assert other.grad is not None
        assert bool(other.grad.any())
        torch.testing.assert_close(one.grad, other.grad.nan_to_num(), atol=1e-6, rtol=1e-4)


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
