"""What heads are worth to a model's own head: against its answers and finite differences."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from papa.probes.own import opened_own
from papa.ranking.scores.asked import Asked
from papa.ranking.scores.gradient import gradient
from papa.ranking.scores.sets import LossValue
from papa.spec.orders import Head
from tests.ranking.planted import asked_of, planted

HEAD = (1, 1)


@pytest.fixture(scope="module")
def asked(tmp_path_factory: pytest.TempPathFactory) -> Asked:
    folder = tmp_path_factory.mktemp("own")
    return asked_of(planted(folder, HEAD, own_head=True), folder / "scratch")


def answered(asked: Asked, constant: list[Head]) -> np.ndarray:
    """The log-probability of every true tag, by the path that scores answers."""
    reference, split = asked.encoder.reference, asked.corpus.split("train")
    assert reference is not None
    found = opened_own(asked.task, reference).answers(split, asked.constants, constant)
    logits = torch.from_numpy(found["logits"]).log_softmax(-1)
    truth = torch.from_numpy(split.labels[split.labels >= 0])[:, None]
    tags = logits.gather(1, truth)[:, 0]
    return np.array([one.mean() for one in tags.split(found["lengths"].tolist())])


def test_a_set_is_worth_what_the_answers_say(asked: Asked) -> None:
    """Of all training rows, that a budget of 256 takes; rows have several tags."""
    value, split = LossValue(asked), asked.corpus.split("train")
    lengths = np.array([(split.labels_of([row]) >= 0).sum() for row in split.rows.tolist()])
    everyone = frozenset(value.heads)
    for constant in ([], [HEAD], [(0, 0), (1, 2)], value.heads):
        expected = np.average(answered(asked, constant), weights=lengths)
        assert value(everyone - {*constant}) == pytest.approx(expected, abs=1e-4)
    assert value(everyone) > value(everyone - {HEAD}) + 0.3
    assert value.evaluations == 6


def test_gradients_are_finite_differences(asked: Asked) -> None:
    found, step = gradient(asked), 0.02
    reference, width = asked.encoder.reference, asked.encoder.head_width
    assert reference is not None
    model, _ = opened_own(asked.task, reference)
    for layer, head in (HEAD, (0, 2)):
        weight = model.bert.encoder.layer[layer].attention.output.dense.weight
        columns, losses = slice(head * width, (head + 1) * width), []
        kept = weight.detach().clone()
        with torch.no_grad():
            for sign in (1, -1):
                weight[:, columns] = kept[:, columns] * (1 + sign * step)
                losses.append(answered(asked, []))
                weight.copy_(kept)
        expected = np.abs(losses[0] - losses[1]).mean() / (2 * step)
        assert found.values[layer, head] == pytest.approx(expected, rel=0.05, abs=1e-5)
    assert np.unravel_index(found.values.argmax(), found.values.shape) == HEAD
