"""How probes are trained: the order of rows, dropout, steps by the formula of transformers 4."""

import math

import numpy as np
import pytest
import torch
from torch import nn

from papa.models.encoder import Encoder
from papa.probes.evaluate import build_probe
from papa.probes.features import FeatureSource
from papa.probes.probes import SequenceProbe
from papa.probes.training import (
    Learner,
    MinibatchLosses,
    OpenWindow,
    adamw,
    probe_window,
    train,
)
from papa.spec import ProbeSpec
from tests.probes.conftest import LAYERS, Corpora, Tasks, with_probe

SPEC = ProbeSpec(learning_rate=1e-2, batch_size=1, epochs=1)


def noting(rows_by_epoch: dict[int, list[np.ndarray]]) -> OpenWindow:

    def window(rows: np.ndarray, epoch: int, index: int) -> list[MinibatchLosses]:
        def losses(batch: torch.Tensor, step: int) -> torch.Tensor:
            rows_by_epoch.setdefault(epoch, []).append(rows[batch.numpy()])
            return torch.ones(2)

        return [losses]

    return window


@pytest.mark.parametrize(("rows", "window"), [(1, 8), (8, 8), (9, 8), (100, 16), (5000, 4096)])
def test_each_epoch_of_a_seed_shuffles_all_rows(rows: int, window: int) -> None:
    twice: tuple[dict[int, list[np.ndarray]], ...] = {}, {}
    progress_calls = list[tuple[int, int]]()
    spec = SPEC.model_copy(update={"batch_size": 4, "epochs": 2})
    for rows_by_epoch in twice:
        learner = Learner([{"params": [nn.Parameter(torch.ones(2, 1))]}], [5, 7])
        train(
            [learner],
            noting(rows_by_epoch),
            spec,
            rows=rows,
            rows_per_window=window,
            progress=lambda *both: progress_calls.append(both),
        )
    orders, rerun = ([np.concatenate(order, axis=1) for order in each.values()] for each in twice)
    assert np.array_equal(np.sort(orders), [[range(rows)] * 2] * 2)
    assert np.array_equal(orders, rerun)
    assert rows == 1 or len({tuple(order) for epoch in orders for order in epoch}) == 4
    for epoch in orders:
        first = np.sort(epoch[:, :window])
        assert np.array_equal(*first), "seeds share windows"
    assert rows <= window or not np.array_equal(*(np.sort(order[0, :window]) for order in orders))
    assert progress_calls[-1] == (2 * rows, 2 * rows)


@pytest.mark.parametrize(
    ("task", "model_type", "encoder_dropout", "share"),
    [
        ("reviews", "bert", True, 0.1),
        ("review_pairs", "deberta", True, 0.1),
        ("reviews", "bert", False, 0.0),
        ("reviews", "roberta", True, 0.0),
        ("wnut17", "bert", True, 0.0),
    ],
)
def test_sequence_probes_have_the_authors_dropout(
    encoder: Encoder,
    tasks: Tasks,
    corpora: Corpora,
    monkeypatch: pytest.MonkeyPatch,
    task: str,
    model_type: str,
    encoder_dropout: bool,
    share: float,
) -> None:
    monkeypatch.setattr(encoder.config, "model_type", model_type, raising=False)
    spec = with_probe(tasks[task], encoder_dropout=encoder_dropout)
    assert build_probe(encoder, corpora[task], spec, [0]).dropout == share


def test_dropout_is_drawn_anew_in_each_step(encoder: Encoder, corpora: Corpora) -> None:
    split = corpora["reviews"].split("train")
    source = FeatureSource(encoder, split, 512, "float32")
    probe = SequenceProbe(
        (0,), state_count=LAYERS + 1, width=384, slots=64, label_count=2, dropout=0.1
    )

    def loss(epoch: int, window: int, step: int) -> float:
        (losses,) = probe_window([probe], source)(split.rows[:8], epoch, window)
        return losses(torch.arange(8)[None], step).item()

    steps = [(0, 0, 0), (0, 0, 1), (0, 1, 0), (1, 0, 0)]
    drawn = [loss(*step) for step in steps]
    assert len(set(drawn)) == len(steps)
    assert loss(*steps[1]) == drawn[1]


@pytest.mark.parametrize("decay", [0.0, 0.1])
def test_steps_follow_the_formula_of_transformers_4(decay: float) -> None:
    """m / ((√v + ε) / √(1 - β₂ᵗ)) differs from PyTorch's step for a gradient as small as ε."""
    spec = SPEC.model_copy(update={"weight_decay": decay})
    parameter = nn.Parameter(torch.ones(2))
    plain = nn.Parameter(torch.ones(2))
    first = torch.zeros(2)
    second = torch.zeros(2)
    expected = torch.ones(2)
    ours = adamw([{"params": [parameter]}], spec)
    theirs = torch.optim.AdamW([plain], lr=1e-2, weight_decay=decay)
    for step in range(1, 4):
        gradient = torch.tensor([1e-8, 1.0]) * step
        parameter.grad = gradient.clone()
        plain.grad = gradient.clone()
        ours.step()
        theirs.step()
        first = 0.9 * first + 0.1 * gradient
        second = 0.999 * second + 0.001 * gradient**2
        scale = math.sqrt(1 - 0.999**step) / (1 - 0.9**step)
        expected = expected * (1 - 1e-2 * decay) - 1e-2 * scale * first / (second.sqrt() + 1e-8)
        torch.testing.assert_close(parameter.detach(), expected, atol=1e-6, rtol=0)
    assert abs(float((parameter - plain).detach()[0])) > 1e-3
