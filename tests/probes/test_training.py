"""How probes are trained: dropout of the authors' sequence probes, clipping as PyTorch's, steps by
the formula of transformers 4.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor, nn

from papa.corpora import TokenisedCorpus
from papa.encoders.encoder import Encoder
from papa.probes.evaluate import build_probe
from papa.probes.features import features_of
from papa.probes.probes import SequenceProbe
from papa.probes.training import adamw, clip_gradients, train_probes
from papa.scores.own import scorer
from papa.spec import ProbeSpec, TaskSpec

SPEC = ProbeSpec(learning_rate=1e-2, batch_size=1, epochs=1)


@pytest.mark.parametrize(
    ("task", "model_type", "dropout", "share"),
    [
        ("cola", "bert", True, 0.1),
        ("rte", "deberta", True, 0.1),
        ("cola", "bert", False, 0.0),
        ("cola", "roberta", True, 0.0),
        ("cola", "electra", True, 0.0),
        ("wnut17", "bert", True, None),
    ],
)
def test_sequence_probes_have_the_authors_dropout_with_the_encoders(
    task: str,
    model_type: str,
    dropout: bool,
    share: float | None,
    encoder: Encoder,
    tasks: dict[str, TaskSpec],
    corpora: dict[str, TokenisedCorpus],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(encoder.config, "model_type", model_type, raising=False)
    probe_spec = tasks[task].probe.model_copy(update={"encoder_dropout": dropout})
    probe = build_probe(
        encoder, corpora[task], tasks[task].model_copy(update={"probe": probe_spec}), [0]
    )
    assert getattr(probe, "dropout", None) == share


def test_a_probes_dropout_follows_from_its_seed_alone(
    encoder: Encoder,
    corpora: dict[str, TokenisedCorpus],
    tasks: dict[str, TaskSpec],
    tmp_path: Path,
) -> None:
    """Trained on stored features, so that the probe's own dropout is all there is."""
    train, validation = (corpora["cola"].split(name) for name in ("train", "validation"))
    options: dict[str, Any] = {"batch_tokens": 512, "dtype": "float32"}

    with (
        features_of(encoder, train, tmp_path, kept=True, **options) as of_train,
        features_of(encoder, validation, tmp_path, kept=True, **options) as of_validation,
    ):

        def trained(seeds: Sequence[int], dropout: float) -> torch.Tensor:
            layers, width = encoder.layers + 1, encoder.width
            probe = SequenceProbe(
                seeds, layers=layers, width=width, slots=64, labels=2, dropout=dropout
            )
            train_probes(
                probe,
                of_train,
                of_validation,
                seeds=seeds,
                spec=tasks["cola"].probe,
                score=scorer(tasks["cola"], None, None),
                token_values=layers * width,
            )
            return probe.classifier.weight.detach()

        beside = trained((0, 5), 0.1)
        torch.testing.assert_close(trained((5,), 0.1)[0], beside[1], atol=1e-5, rtol=0)
        assert torch.equal(trained((0, 5), 0.1), beside)
        assert float((trained((5,), 0.0)[0] - beside[1]).abs().max()) > 1e-3


def gradients() -> list[Tensor]:
    """Of three seeds: far above the limit of 1, below it, and none at all."""
    generator = torch.Generator().manual_seed(0)
    sizes = torch.tensor([3.0, 0.01, 0.0])
    return [
        torch.randn(3, *rest, generator=generator) * sizes.view(3, *[1] * len(rest))
        for rest in ((4, 5), (6,))
    ]


def test_every_seed_is_clipped_as_if_alone() -> None:
    clipped = gradients()
    norms = clip_gradients(clipped, 1.0)
    for seed in range(3):
        alone = [nn.Parameter(torch.zeros_like(gradient[seed])) for gradient in clipped]
        for parameter, gradient in zip(alone, gradients(), strict=True):
            parameter.grad = gradient[seed].clone()
        expected = nn.utils.clip_grad_norm_(alone, 1.0)
        torch.testing.assert_close(norms[seed], expected)
        for parameter, gradient in zip(alone, clipped, strict=True):
            torch.testing.assert_close(gradient[seed], parameter.grad)
    assert norms[0] > 1 > norms[1] > norms[2] == 0
    assert torch.equal(clipped[0][1:], gradients()[0][1:])


def test_a_limit_of_nought_clips_nothing() -> None:
    found = gradients()
    assert clip_gradients(found, 0.0)[0] > 1
    assert all(torch.equal(one, other) for one, other in zip(found, gradients(), strict=True))


@pytest.mark.parametrize("decay", [0.0, 0.1])
def test_steps_follow_the_formula_of_transformers_4(decay: float) -> None:
    """m / ((√v + ε) / √(1 - β₂ᵗ)): for a gradient as small as ε this is another step than
    PyTorch's.
    """
    spec = SPEC.model_copy(update={"weight_decay": decay})
    parameter, first, second, expected = (
        nn.Parameter(torch.ones(2)),
        torch.zeros(2),
        torch.zeros(2),
        torch.ones(2),
    )
    plain = nn.Parameter(torch.ones(2))
    ours, theirs = (
        adamw([parameter], spec, 1e-2),
        torch.optim.AdamW([plain], lr=1e-2, weight_decay=decay),
    )
    for step in range(1, 4):
        gradient = torch.tensor([1e-8, 1.0]) * step
        parameter.grad, plain.grad = gradient.clone(), gradient.clone()
        ours.step()
        theirs.step()
        first, second = 0.9 * first + 0.1 * gradient, 0.999 * second + 0.001 * gradient**2
        correction = math.sqrt(1 - 0.999**step) / (1 - 0.9**step)
        expected = expected * (1 - 1e-2 * decay) - 1e-2 * correction * first / (
            second.sqrt() + 1e-8
        )
        torch.testing.assert_close(parameter.detach(), expected, atol=1e-6, rtol=0)
    assert abs(float((parameter - plain).detach()[0])) > 1e-3
