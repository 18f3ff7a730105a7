"""Dropout of the authors' sequence probes: which have it, and that seeds never share it."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest
import torch

from papa.corpora import TokenisedCorpus
from papa.encoders.encoder import Encoder
from papa.probes.evaluate import build_probe
from papa.probes.feature_sources import stored
from papa.probes.probes import SequenceProbe
from papa.probes.training import train_probes
from papa.scores.own import scorer
from papa.spec import TaskSpec


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
        stored(encoder, train, tmp_path, **options) as of_train,
        stored(encoder, validation, tmp_path, **options) as of_validation,
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
