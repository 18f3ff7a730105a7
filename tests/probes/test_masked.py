"""The masked-word probe and its loss against the plain table of logits."""

from __future__ import annotations

import pytest
import torch
import torch.nn.functional as F

from papa.corpora import TokenisedCorpus
from papa.encoders.encoder import Encoder
from papa.probes import masked
from papa.probes.features import compute_features
from papa.probes.masked import MaskedProbe, decoder_losses
from papa.probes.packed import PackedFeatures


@pytest.fixture(scope="module")
def features(encoder: Encoder, corpora: dict[str, TokenisedCorpus]) -> PackedFeatures:
    split = corpora["wikitext"].split("train")
    rows = torch.arange(12).numpy()
    return compute_features(encoder, split, 1024, "float32", rows=rows)


@pytest.mark.parametrize("chunk_logits", [1, 5 * 30522, 2**24])
def test_loss_and_gradients_are_those_of_the_whole_table(
    chunk_logits: int, encoder: Encoder, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(masked, "_CHUNK_LOGITS", chunk_logits)
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

    found = [tensor.clone().requires_grad_() for tensor in (hidden, bias)]
    losses = decoder_losses(found[0], embeddings, found[1], labels)
    (losses * scale).sum().backward()

    plain = [tensor.clone().requires_grad_() for tensor in (hidden, bias)]
    logits = plain[0] @ embeddings.T + plain[1][:, None]
    # A seed without labels has the loss 0.
    expected = torch.stack(
        [F.cross_entropy(logits[s], labels[s], ignore_index=-100).nan_to_num() for s in range(2)]
    )
    (expected * scale).sum().backward()

    torch.testing.assert_close(losses, expected, atol=1e-5, rtol=1e-5)
    for one, other in zip(found, plain, strict=True):
        assert one.grad is not None
        assert other.grad is not None
        assert bool(other.grad.any())
        other.grad.nan_to_num_()
        torch.testing.assert_close(one.grad, other.grad, atol=1e-6, rtol=1e-4)


def test_predictions_are_log_probabilities_of_the_true_words(
    encoder: Encoder, features: PackedFeatures
) -> None:
    probe = MaskedProbe(
        (0, 1), layers=encoder.layers + 1, width=384, word_embeddings=encoder.word_embeddings
    )
    rows = torch.arange(12)
    with torch.no_grad():
        found = probe.predictions(features, rows)
        losses = probe.losses(features, rows.expand(2, -1))
    assert found.shape == (2, len(features.labels))
    assert bool((found < 0).all())
    torch.testing.assert_close(-found.mean(1), losses, atol=1e-4, rtol=1e-5)


def test_narrow_word_embeddings_get_a_linear_map(features: PackedFeatures) -> None:
    embeddings = torch.randn(1000, 128, generator=torch.Generator().manual_seed(0))
    probe = MaskedProbe((0, 1), layers=7, width=384, word_embeddings=embeddings)
    assert probe(torch.zeros(2, 3, 7 * 384)).shape == (2, 3, 128)
    assert dict(probe.named_parameters())["narrow.weight"].shape == (2, 384, 128)
