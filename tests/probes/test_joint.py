"""Gradients of parts add up to those of the whole minibatch, whatever the probe."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import numpy as np
import pytest
import torch

from papa.attention.constants import ConstantMatrices, control
from papa.attention.replacement import mixed
from papa.corpora import TokenisedCorpus
from papa.corpora.batches import micro_batch
from papa.encoders.encoder import Encoder
from papa.probes.evaluate import build_probe
from papa.probes.joint import JointGradients, joint_step
from papa.probes.minibatches import Part, parts_of
from papa.probes.packed import live_features
from papa.probes.training import adamw
from papa.ranking.learned import lambda_gradients
from papa.spec import TaskSpec
from tests.probes.conftest import with_probe

Build = Callable[..., tuple[JointGradients, TokenisedCorpus]]
MINIBATCH = np.arange(16)


@pytest.fixture
def build(
    encoder: Encoder, tasks: dict[str, TaskSpec], corpora: dict[str, TokenisedCorpus]
) -> Build:
    """What finds λ's gradients on a task, and its corpus."""

    def built(
        name: str, dropout: bool = False, on: Encoder = encoder
    ) -> tuple[JointGradients, TokenisedCorpus]:
        task, corpus = tasks[name], corpora[name]
        task = with_probe(task, encoder_dropout=dropout)
        constants: ConstantMatrices = control("toeplitz", encoder.layers, encoder.heads, task.slots)
        found = lambda_gradients(encoder=on, constants=constants, corpus=corpus, task=task, seed=0)
        return found, corpus

    return built


def total(gradients: JointGradients, parts: list[Part]) -> tuple[float, list[torch.Tensor]]:
    found = gradients.of_parts(parts)
    sums = [torch.stack(tensors).sum(0) for tensors in zip(*(one for _, one in found), strict=True)]
    return sum(loss for loss, _ in found), sums


def far_apart(one: list[torch.Tensor], other: list[torch.Tensor]) -> float:
    """The largest difference of any parameter's gradient, relative to the gradient's
    largest entry.
    """
    return max(float((a - b).abs().max() / b.abs().max()) for a, b in zip(one, other, strict=True))


@pytest.mark.parametrize("name", ["cola", "rte", "wnut17", "wikitext"])
def test_parts_add_up_to_the_whole_minibatch(build: Build, name: str) -> None:
    gradients, corpus = build(name)
    split = corpus.split("train")
    parts = parts_of(split, MINIBATCH, 60, (0,))
    whole_loss, whole = total(gradients, parts_of(split, MINIBATCH, 10**6, (0,)))
    loss, found = total(gradients, parts)
    assert len(parts) > 2
    assert loss == pytest.approx(whole_loss, rel=1e-6)
    # Float32 sums of other shapes: 1e-6 of the largest entry and a few roundings.
    assert far_apart(found, whole) < 5e-6
    equal = [replace(part, share=1 / len(parts)) for part in parts]
    assert far_apart(total(gradients, equal)[1], whole) > 1e-3


def test_the_whole_is_the_probes_own_mean_loss(
    build: Build, encoder: Encoder, tasks: dict[str, TaskSpec], corpora: dict[str, TokenisedCorpus]
) -> None:
    """Negative log-probabilities, averaged over the labelled tokens: by hand."""
    gradients, corpus = build("wnut17")
    split = corpus.split("train")
    loss, _ = total(gradients, parts_of(split, MINIBATCH, 60, (0,)))
    probe = build_probe(encoder, corpus, tasks["wnut17"], [0])
    batch = micro_batch(split, MINIBATCH)
    constants = control("toeplitz", encoder.layers, encoder.heads, corpus.slots)
    with torch.no_grad(), mixed(encoder, constants, torch.zeros(encoder.layers, encoder.heads)):
        features = live_features(encoder.token_states(batch), split, batch)
        logits = probe(features.values.flatten(1)[None])[0]
    expected = -logits.log_softmax(-1)[torch.arange(len(logits)), features.labels].mean()
    assert loss == pytest.approx(float(expected), rel=1e-5)


def test_dropout_follows_from_the_parts_seed(build: Build) -> None:
    gradients, corpus = build("cola", dropout=True)
    part = parts_of(corpus.split("train"), MINIBATCH, 60, (0,))[0]
    loss, _ = gradients.gradient(part)
    torch.manual_seed(5)
    assert gradients.gradient(part)[0] == loss
    assert gradients.gradient(replace(part, dropout_seed=1))[0] != loss


def test_a_minibatch_without_labels_is_a_step_without_gradient(
    build: Build, tasks: dict[str, TaskSpec]
) -> None:
    """As for a probe on stored features: only what earlier steps set in motion moves on."""
    gradients, corpus = build("wnut17")
    optimizer = adamw(gradients.trained, tasks["wnut17"].probe, 1e-3)
    steps = []
    for parts in ([], parts_of(corpus.split("train"), MINIBATCH, 10**6, (0,)), []):
        before = [parameter.detach().clone() for parameter in gradients.trained]
        loss, norm = joint_step(
            gradients.of_parts, gradients.trained, optimizer, parts, max_grad_norm=1.0
        )
        assert (loss, norm) == (0, 0) or parts
        steps.append(
            max(
                float((a - b).detach().abs().max())
                for a, b in zip(gradients.trained, before, strict=True)
            )
        )
    assert steps[0] == 0
    assert 0 < steps[2] < steps[1]
