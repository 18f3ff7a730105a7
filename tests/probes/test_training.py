"""How probes are trained: the order of rows, dropout of the authors' sequence probes, steps by the
formula of transformers 4.
"""

from __future__ import annotations

import math

import numpy as np
import pytest
import torch
from torch import nn

from papa.corpora import TokenisedCorpus
from papa.encoders.encoder import Encoder
from papa.probes.evaluate import build_probe
from papa.probes.minibatches import WINDOW_ROWS, epoch_windows, window_order
from papa.probes.training import adamw
from papa.spec import ProbeSpec, TaskSpec
from tests.probes.conftest import with_probe

SPEC = ProbeSpec(learning_rate=1e-2, batch_size=1, epochs=1)


@pytest.mark.parametrize(
    ("rows", "window"), [(1, 8), (8, 8), (9, 8), (100, 16), (5000, WINDOW_ROWS)]
)
def test_an_epoch_holds_every_row_once_and_seeds_share_its_windows(rows: int, window: int) -> None:
    windows = epoch_windows(rows, 3, window)
    assert np.array_equal(np.sort(np.concatenate(windows)), np.arange(rows))
    for index, members in enumerate(windows):
        places = (3, 0, index), (3, 0, index), (3, 1, index), (4, 0, index)
        one, again, of_seed, of_epoch = (window_order(members, *place) for place in places)
        assert np.array_equal(np.sort(one), members)
        assert np.array_equal(one, again)
        if len(members) > 7:
            assert not np.array_equal(one, of_seed), "a seed has an order of its own"
            assert not np.array_equal(one, of_epoch)
    if len(windows) > 1 and len(windows[1]) > 7:
        assert not np.array_equal(windows[0], epoch_windows(rows, 4, window)[0])
        first, second = (window_order(np.arange(8), 3, 0, index) for index in (0, 1))
        assert not np.array_equal(first, second)


@pytest.mark.parametrize(
    ("task", "model_type", "dropout", "share"),
    [
        ("cola", "bert", True, 0.1),
        ("rte", "deberta", True, 0.1),
        ("cola", "bert", False, 0.0),
        ("cola", "roberta", True, 0.0),
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
    spec = with_probe(tasks[task], encoder_dropout=dropout)
    probe = build_probe(encoder, corpora[task], spec, [0])
    assert getattr(probe, "dropout", None) == share


@pytest.mark.parametrize("decay", [0.0, 0.1])
def test_steps_follow_the_formula_of_transformers_4(decay: float) -> None:
    """m / ((√v + ε) / √(1 - β₂ᵗ)): for a gradient as small as ε this is another step than
    PyTorch's.
    """
    spec = SPEC.model_copy(update={"weight_decay": decay})
    parameter, plain = nn.Parameter(torch.ones(2)), nn.Parameter(torch.ones(2))
    first, second, expected = torch.zeros(2), torch.zeros(2), torch.ones(2)
    ours = adamw([{"params": [parameter]}], spec)
    theirs = torch.optim.AdamW([plain], lr=1e-2, weight_decay=decay)
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
