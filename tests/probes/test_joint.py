"""Gradients of parts add up to those of the whole minibatch, whatever the probe."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import numpy as np
import pytest
import torch

from papa.attention.constants import ConstantMatrices, control
from papa.corpora import TokenisedCorpus
from papa.encoders.encoder import Encoder, load_encoder
from papa.encoders.reference import EncoderReference
from papa.probes.joint import JointGradients, joint_step, train_jointly
from papa.probes.minibatches import Part, parts_of
from papa.probes.training import adamw
from papa.progress import ignore_progress
from papa.ranking.learned import lambda_gradients
from papa.spec import TaskSpec

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
        task = task.model_copy(
            update={"probe": task.probe.model_copy(update={"encoder_dropout": dropout})}
        )
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
    from papa.attention.mixing import mixed
    from papa.corpora.batches import micro_batch
    from papa.probes.evaluate import build_probe
    from papa.probes.packed import live_features

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


@pytest.mark.parametrize("name", ["wnut17", "wikitext"])
def test_probes_on_tokens_train_with_lambda(
    build: Build, tasks: dict[str, TaskSpec], name: str
) -> None:
    gradients, corpus = build(name)
    before = [parameter.detach().clone() for parameter in gradients.trained]
    told: list[tuple[int, int]] = []
    train_jointly(
        gradients._encoder,
        gradients.of_parts,
        gradients.trained,
        corpus,
        spec=tasks[name].probe,
        rows=np.arange(16),
        epochs=1,
        rate=1e-3,
        seed=0,
        progress=lambda done, of: told.append((done, of)) or ignore_progress(done, of),
    )
    assert told == [(8, 16), (16, 16)]
    moved = [
        float((a - b).detach().abs().max()) for a, b in zip(gradients.trained, before, strict=True)
    ]
    assert min(moved) > 1e-4


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


def test_theta_in_bfloat16_is_float32s_within_its_eight_bits(
    build: Build, reference: EncoderReference
) -> None:
    """The encoder's own way on a CPU, without autocast. Seven roundings of 2⁻⁹ a layer, both ways,
    as random errors.
    """
    if not torch.ops.mkldnn._is_mkldnn_bf16_supported():
        pytest.skip("this CPU has no bfloat16")
    full = load_encoder(reference)
    found = {}
    for name, on in (
        ("float32", full),
        ("bfloat16", Encoder(load_encoder(reference).model, precision="bfloat16")),
    ):
        gradients, corpus = build("cola", on=on)
        found[name] = total(gradients, parts_of(corpus.split("train"), MINIBATCH, 10**6, (0,)))[1][
            0
        ]
    bound = 2**-9 * (2 * 7 * full.layers) ** 0.5
    away = float((found["bfloat16"] - found["float32"]).norm() / found["float32"].norm())
    assert 0 < away < bound
    others, corpus = build("cola")
    other_rows = total(others, parts_of(corpus.split("train"), MINIBATCH + 16, 10**6, (0,)))[1][0]
    assert float((other_rows - found["float32"]).norm() / found["float32"].norm()) > 3 * bound
