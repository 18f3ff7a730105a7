"""bfloat16 as it runs on a CPU: the laws hold within its rounding."""

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch

from papa.errors import SpecError
from papa.heads.replacement import mixed_by, replaced
from papa.models.encoder import Encoder, load_encoder
from papa.models.reference import EMBEDDED, check_device, resolve_encoder
from papa.probes.evaluate import evaluate_cell
from papa.ranking.learned import train_lambda
from papa.spec import EncoderSpec, ExecutionSpec, FeaturesSpec
from tests.heads.cases import EVERY, Case
from tests.make import ENCODERS
from tests.ranking.planted import planted
from tests.virtual_gpu import virtual_gpu

WITHIN = 0.05
"""Of the difference that the negative control makes: bfloat16 keeps 8 bits."""


@torch.no_grad()
@pytest.mark.usefixtures("bfloat16_on_any_cpu")
@pytest.mark.parametrize("variant", ENCODERS)
def test_the_laws_hold_within_its_rounding(variant: str) -> None:
    full = Case(variant)
    half = Case(variant, precision="bfloat16")
    inputs = full.inputs(1)
    other_inputs = full.inputs(2)
    constants = half.average(other_inputs)
    for heads in ([], EVERY[:5]):
        with replaced(full.encoder, constants, heads):
            expected = full.states(inputs)
        with replaced(half.encoder, constants, heads):
            difference = half.away(inputs, expected)
            assert 0 < difference < WITHIN * half.away(other_inputs, expected)
    original_states = half.states(inputs)
    assert all(states.dtype == torch.float32 for states in original_states)
    with mixed_by(half.encoder, constants, torch.ones(3, 4)):
        difference = half.away(inputs, original_states)
    with mixed_by(half.encoder, constants, torch.full((3, 4), 0.5)):
        assert difference < WITHIN * half.away(inputs, original_states)
    assert half.sums(inputs).sums.dtype == np.float64, "sums are exact, so shards merge"


def test_a_cpu_without_bfloat16_refuses_it(monkeypatch: pytest.MonkeyPatch) -> None:
    without = dict.fromkeys(torch.cpu.get_capabilities(), False)
    monkeypatch.setattr(torch.cpu, "get_capabilities", lambda: without)
    reference = resolve_encoder(EncoderSpec(name=EMBEDDED), "bfloat16")
    with pytest.raises(SpecError, match="precision: bfloat16"):
        load_encoder(replace(reference, folder="/nowhere"))  # Before weights are read.


def test_lambda_with_a_cell_is_that_of_the_cpu(tmp_path: Path) -> None:
    request = planted(tmp_path, (1, 1)).scoring_request
    probe = request.task.probe.model_copy(update={"epochs": 1})
    task = request.task.model_copy(update={"probe": probe})
    training = probe.model_copy(update={"learning_rate": 0.05})
    lambda_task = task.model_copy(update={"probe": training})

    def lambda_and_scores(
        encoder: Encoder, heads: list[tuple[int, int]]
    ) -> tuple[torch.Tensor, list[float]]:
        constants = request.constants
        corpus = request.corpus
        lambdas = train_lambda(encoder, constants, corpus, lambda_task, seed=0)
        scores = evaluate_cell(
            encoder,
            corpus,
            task,
            [0, 1],
            substitute=constants,
            heads=heads,
            features=FeaturesSpec(),
            execution=ExecutionSpec(),
            scratch=tmp_path / "scratch",
        )
        return lambdas, [seed_score.score for seed_score in scores]

    lambdas, scores = lambda_and_scores(request.encoder, [(0, 0)])
    reference = resolve_encoder(EncoderSpec(name=str(tmp_path / "encoder")))
    with virtual_gpu():
        ours, of_gpu = lambda_and_scores(load_encoder(reference, "cuda"), [(0, 0)])
    assert float((ours - lambdas).abs().max()) < 1e-6
    assert float((lambdas - 0.5).abs().max()) > 0.01, "negative control"
    assert of_gpu == pytest.approx(scores, abs=1e-6)
    assert lambda_and_scores(request.encoder, [(1, 1)])[1] != pytest.approx(scores, abs=1e-6)


@pytest.mark.parametrize("device", ["mps", "nosuch"])
def test_a_device_that_papa_does_not_compute_on_is_refused(device: str) -> None:
    with pytest.raises(SpecError, match=f"'{device}'"):
        check_device(device)
