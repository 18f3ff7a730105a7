"""λ and a probe's cell on a GPU, against the CPU; devices are refused."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch

from papa.errors import SpecError
from papa.models.encoder import Encoder, load_encoder
from papa.models.reference import check_device
from papa.probes.evaluate import evaluate_cell
from papa.ranking.learned import train_lambda
from papa.spec import ExecutionSpec, FeaturesSpec, RankingSpec
from tests.ranking.planted import planted
from tests.virtual_gpu import virtual_gpu


def test_lambda_and_a_cell_are_those_of_the_cpu(tmp_path: Path) -> None:
    given = planted(tmp_path, (1, 1)).asked
    probe = given.task.probe.model_copy(update={"epochs": 1})
    task = given.task.model_copy(update={"probe": probe})
    ranking = RankingSpec(epochs=1, learning_rate=0.05)

    def found(encoder: Encoder, heads: list[tuple[int, int]]) -> tuple[torch.Tensor, list[float]]:
        constants, corpus = given.constants, given.corpus
        lambdas = train_lambda(encoder, constants, corpus, task, ranking, seed=0)
        options = {"features": FeaturesSpec(), "execution": ExecutionSpec()}
        options |= {"constants": constants, "heads": heads, "scratch": tmp_path / "scratch"}
        scores = evaluate_cell(encoder, corpus, task, [0, 1], **options)
        return lambdas, [one.score for one in scores]

    lambdas, scores = found(given.encoder, [(0, 0)])
    assert given.encoder.reference is not None
    with virtual_gpu():
        ours, of_gpu = found(load_encoder(given.encoder.reference, "cuda"), [(0, 0)])
    assert float((ours - lambdas).abs().max()) < 1e-6
    assert float((lambdas - 0.5).abs().max()) > 0.01, "negative control"
    assert of_gpu == pytest.approx(scores, abs=1e-6)
    assert found(given.encoder, [(1, 1)])[1] != pytest.approx(scores, abs=1e-6)


@pytest.mark.parametrize("device", ["mps", "nosuch"])
def test_a_device_that_papa_does_not_compute_on_is_refused(device: str) -> None:
    with pytest.raises(SpecError, match=f"does not compute on the device '{device}': use cpu or"):
        check_device(device)
