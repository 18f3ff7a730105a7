"""The probes against the golden logits, plain formulas, and themselves trained alone."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch
from safetensors.torch import load_file
from torch import Tensor

from papa.corpora import TokenisedCorpus
from papa.corpora.batches import MicroBatch
from papa.corpora.ragged import PackedTokens
from papa.encoders.encoder import Encoder
from papa.probes.features import compute_features
from papa.probes.packed import PackedFeatures, pack_states
from papa.probes.probes import Probe, SequenceProbe, TokenProbe, dropped


@pytest.fixture(scope="module")
def golden(shared: Path) -> dict[str, Tensor]:
    return load_file(shared / "golden" / "minilm_cola_s64.safetensors")


@pytest.fixture(scope="module")
def golden_features(minilm: Encoder, golden: dict[str, Tensor]) -> PackedFeatures:
    mask = golden["attention_mask"].bool()
    lengths = mask.sum(dim=1).numpy()
    tokens = PackedTokens(
        input_ids=golden["input_ids"][mask].numpy(),
        slot_ids=mask.nonzero()[:, 1].numpy(),
        token_type_ids=golden["token_type_ids"][mask].numpy(),
        lengths=lengths,
        first_lengths=lengths - 2,
    )
    batch = MicroBatch.of(np.arange(8), tokens)
    with torch.no_grad():
        values = pack_states(minilm.token_states(batch), None)
    return PackedFeatures(
        values=values,
        offsets=torch.cat([torch.zeros(1, dtype=torch.int64), mask.sum(1).cumsum(0)]),
        slot_ids=torch.arange(64).expand(8, 64)[mask],
        labels=torch.arange(8) % 2,
        token_labels=False,
    )


def golden_probe(
    golden: dict[str, Tensor], seeds: Sequence[int] = (0,), place: int = 0
) -> SequenceProbe:
    probe = SequenceProbe(seeds, layers=7, width=384, slots=64, labels=2)
    with torch.no_grad():
        probe.slot_weights[place] = golden["probe.weights_per_layer"]
        probe.dense.weight[place] = golden["probe.dense.weight"].T
        probe.dense.bias[place] = golden["probe.dense.bias"]
        probe.classifier.weight[place] = golden["probe.classifier.weight"].T
        probe.classifier.bias[place] = golden["probe.classifier.bias"]
    return probe


def test_the_sequence_probe_gives_the_golden_logits(
    golden: dict[str, Tensor], golden_features: PackedFeatures
) -> None:
    probe = golden_probe(golden, seeds=(0, 1, 2), place=1)
    with torch.no_grad():
        logits = probe(golden_features, torch.arange(8).expand(3, 8))
    torch.testing.assert_close(logits[1], golden["logits_0"], atol=1e-5, rtol=0)
    # Negative controls: fresh probes beside it, and other inputs, give other logits.
    assert (logits[0] - golden["logits_0"]).abs().max() > 1e-2
    assert (logits[1].flip(0) - golden["logits_0"]).abs().max() > 1e-3


def test_bfloat16_features_are_summed_in_float32(
    golden: dict[str, Tensor], golden_features: PackedFeatures
) -> None:
    probe = golden_probe(golden)
    rows = torch.arange(8)[None]
    half = replace(golden_features, values=golden_features.values.to(torch.bfloat16))
    exact = probe.pooled(replace(half, values=half.values.float()), rows)
    torch.testing.assert_close(probe.pooled(half, rows), exact, atol=1e-6, rtol=1e-6)
    torch.testing.assert_close(probe(half, rows)[0], golden["logits_0"], atol=1e-2, rtol=0)


def test_pooling_is_the_weighted_sum_over_real_slots(golden_features: PackedFeatures) -> None:
    probe = SequenceProbe((0, 1), layers=7, width=384, slots=64, labels=2)
    with torch.no_grad():
        probe.slot_weights.normal_(generator=torch.Generator().manual_seed(0))
    rows = torch.tensor([[3, 0, 3], [7, 1, 2]])
    pooled = probe.pooled(golden_features, rows).view(2, 3, 7, 384)
    for seed in range(2):
        for place, row in enumerate(rows[seed].tolist()):
            span = slice(*golden_features.offsets[row : row + 2].tolist())
            weights = probe.slot_weights[seed][:, golden_features.slot_ids[span]]
            expected = torch.einsum("lt,tld->ld", weights, golden_features.values[span])
            torch.testing.assert_close(pooled[seed, place], expected, atol=1e-5, rtol=1e-5)


def test_gradients_reach_features_and_slot_weights(golden_features: PackedFeatures) -> None:
    probe = SequenceProbe((0,), layers=7, width=384, slots=64, labels=2)
    values = golden_features.values.clone().requires_grad_()
    probe.losses(replace(golden_features, values=values), torch.tensor([[0, 1]])).sum().backward()
    assert values.grad is not None
    end = int(golden_features.offsets[2])
    assert bool((values.grad[:end].abs().amax((1, 2)) > 0).all())
    assert not values.grad[end:].any()
    assert probe.slot_weights.grad is not None
    seen = golden_features.slot_ids[:end].unique()
    unseen = [slot for slot in range(64) if slot not in seen.tolist()]
    assert bool((probe.slot_weights.grad[0][:, seen] != 0).all())
    assert not probe.slot_weights.grad[0][:, unseen].any()


def test_dropout_drops_a_tenth_and_seeds_draw_their_own() -> None:
    values = torch.ones(2, 200, 384)
    found = dropped(values, 0.1, (7, 8))
    assert found.unique().tolist() == pytest.approx([0, 1 / 0.9])
    assert float((found == 0).float().mean()) == pytest.approx(0.1, abs=0.01)
    assert torch.equal(found[1], dropped(values[:1], 0.1, (8,))[0])
    assert not torch.equal(found[0], found[1])


def test_the_sequence_probe_drops_only_where_a_seed_is_given(
    golden_features: PackedFeatures,
) -> None:
    probe = SequenceProbe((0, 1), layers=7, width=384, slots=64, labels=2, dropout=0.1)
    same = SequenceProbe((0, 1), layers=7, width=384, slots=64, labels=2)
    rows = torch.arange(8).expand(2, 8)
    assert torch.equal(probe.losses(golden_features, rows), same.losses(golden_features, rows))
    assert torch.equal(
        same.losses(golden_features, rows, (3, 4)), same.losses(golden_features, rows)
    )
    found = probe.losses(golden_features, rows, (3, 4))
    assert bool((found != probe.losses(golden_features, rows)).all())
    moved = probe.losses(golden_features, rows, (3, 5))
    assert found[0] == moved[0]
    assert found[1] != moved[1]


def test_probes_start_as_the_paper_says() -> None:
    probe = SequenceProbe((0, 1), layers=7, width=384, slots=64, labels=2)
    assert bool((probe.slot_weights == 1 / 64).all())
    for linear in (probe.dense, probe.classifier):
        assert float(linear.weight.detach().std()) == pytest.approx(0.02, rel=0.1)
        assert not linear.bias.any()
    assert not torch.equal(probe.dense.weight[0], probe.dense.weight[1])


def test_a_start_depends_on_its_seed_alone() -> None:
    together = TokenProbe((5, 0, 9), layers=3, width=8, labels=4)
    alone = TokenProbe((9,), layers=3, width=8, labels=4)
    for name, parameter in alone.named_parameters():
        assert torch.equal(parameter[0], together.get_parameter(name)[2])


def test_regression_is_scored_by_squared_error(golden_features: PackedFeatures) -> None:
    probe = SequenceProbe((0,), layers=7, width=384, slots=64, labels=1, regression=True)
    features = replace(golden_features, labels=torch.linspace(0, 1, 8))
    rows = torch.arange(8)
    predicted = probe.predictions(features, rows)
    assert predicted.shape == (1, 8)
    expected = (predicted[0] - features.labels).square().mean()
    torch.testing.assert_close(probe.losses(features, rows[None])[0], expected)


@pytest.fixture(scope="module")
def words(minilm: Encoder, corpora: dict[str, TokenisedCorpus]) -> PackedFeatures:
    split = corpora["wnut17"].split("train")
    rows = torch.arange(40).numpy()
    return compute_features(minilm, split, rows, batch_tokens=1024, dtype="float32")


def test_token_losses_are_means_over_each_seeds_own_tokens(words: PackedFeatures) -> None:
    probe = TokenProbe((0, 1), layers=7, width=384, labels=13)
    rows = torch.tensor([[0, 1, 2], [30, 31, 32]])
    losses = probe.losses(words, rows)
    for seed in range(2):
        tokens, _ = words.tokens_of(rows[seed])
        logits = probe(words.values[tokens].flatten(1).expand(2, -1, -1))[seed]
        expected = torch.nn.functional.cross_entropy(logits, words.labels[tokens])
        torch.testing.assert_close(losses[seed], expected)


def test_a_batch_without_labelled_tokens_costs_nothing(words: PackedFeatures) -> None:
    empty = PackedFeatures(
        values=words.values[:0],
        offsets=torch.zeros(3, dtype=torch.int64),
        slot_ids=words.slot_ids[:0],
        labels=words.labels[:0],
        token_labels=True,
    )
    probe = TokenProbe((0, 1), layers=7, width=384, labels=13)
    losses = probe.losses(empty, torch.tensor([[0, 1], [1, 0]]))
    losses.sum().backward()
    assert losses.tolist() == [0, 0]
    assert probe.predictions(empty, torch.tensor([0, 1])).shape == (2, 0)


def trained(
    probe: Probe, features: PackedFeatures, orders: Tensor, steps: int = 20
) -> dict[str, Tensor]:
    optimizer = torch.optim.AdamW(probe.parameters(), lr=5e-4, fused=True)
    for step in range(steps):
        rows = orders[:, step * 2 : step * 2 + 2]
        optimizer.zero_grad()
        probe.losses(features, rows).sum().backward()
        optimizer.step()
    return {name: parameter.detach() for name, parameter in probe.named_parameters()}


def test_seeds_trained_together_are_seeds_trained_alone(words: PackedFeatures) -> None:
    orders = torch.stack(
        [torch.randperm(40, generator=torch.Generator().manual_seed(s)) for s in range(3)]
    )

    def probe(seeds: Sequence[int]) -> TokenProbe:
        return TokenProbe(seeds, layers=7, width=384, labels=13)

    together = trained(probe((0, 1, 2)), words, orders)
    for seed in range(3):
        alone = trained(probe((seed,)), words, orders[seed : seed + 1])
        for name, parameter in alone.items():
            torch.testing.assert_close(parameter[0], together[name][seed], atol=1e-5, rtol=0)
            # Negative control: training moved the seed, and the next seed went elsewhere.
            assert (parameter[0] - together[name][(seed + 1) % 3]).abs().max() > 1e-3
