"""Scores of the heads of a model that is held: effects are the numbers of a plain loop, λ follows
its gradient.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import pandas
import pytest
import torch

import papa
from papa.heads.substitutes import Mixed, Zeros
from papa.library.ablating import answers
from tests.library.test_fidelity import EVERY_HEAD, HEADS, LAYERS, bert, gpt, texts

EVERY = [(layer, head) for layer in range(LAYERS) for head in range(HEADS)]


def scores(model: Any, data: Any, by: str, constants: Any = "zeros", **more: Any) -> Any:
    return papa.head_scores(model, data, by=by, constants=constants, progress=False, **more)


@pytest.mark.parametrize(
    ("model", "measure", "of"),
    [
        (bert(), "cosine", lambda one: 1 - one["cosine"]),
        (
            bert("ForSequenceClassification", num_labels=3),
            "divergence",
            lambda one: one["divergence"],
        ),
        (bert("ForMaskedLM"), "agreement", lambda one: 1 - one["agreement"]),
        (gpt(), "loss", lambda one: one["loss_difference"]),
    ],
    ids=lambda one: type(one).__name__,
)
@pytest.mark.parametrize("by", ["zeros", "mean"])
def test_each_head_is_measured_as_if_it_were_replaced_by_hand(
    model: Any, measure: str, of: Any, by: str
) -> None:
    found = scores(model, texts(), "effect", by)
    assert found[["layer", "head"]].to_records(index=False).tolist() == EVERY
    assert (set(found["method"]), found.attrs["measure"]) == ({"effect"}, measure)
    expected = [of(papa.fidelity(model, [head], by, data=texts())["value"]) for head in EVERY]
    np.testing.assert_allclose(found["score"], expected, atol=1e-6)
    assert (found["low"] < found["score"]).all()
    assert (found["score"] < found["high"]).all()
    assert found["score"].abs().max() > 0.001, "negative control"


def test_a_substitute_is_made_once_and_the_model_left_as_it_was() -> None:
    model, passes = bert(), list[int]()
    before = model(**texts()[0]).last_hidden_state
    handle = model.register_forward_hook(lambda *_: passes.append(1))
    scores(model, iter(texts()), "effect", "mean", made_from=iter(texts()))
    handle.remove()
    assert len(passes) == len(texts()) * (1 + 1 + len(EVERY)), "the original, the means, each head"
    assert model(**texts()[0]).last_hidden_state.equal(before)


@pytest.mark.parametrize("model", [gpt(), bert("ForMaskedLM"), bert()])
def test_lambda_of_any_model_is_trained_without_labels(model: Any) -> None:
    """A loss that only moves λ: less is lost of the model's answers than at its start, and the
    model stays whole.
    """
    weights = {name: one.clone() for name, one in model.state_dict().items()}
    found = scores(model, texts(), "lambda", epochs=4, seeds=[0, 1])
    assert found[["layer", "head"]].to_records(index=False).tolist() == EVERY
    assert (found["score"] - 0.5).abs().max() > 0.05
    assert (found["low"] < found["score"]).all()
    assert all(torch.equal(one, weights[name]) for name, one in model.state_dict().items())
    assert all(one.requires_grad and one.grad is None for one in model.parameters())
    pandas.testing.assert_frame_equal(
        scores(model, texts(), "lambda", epochs=4, seeds=[0, 1]), found
    )


def test_the_gradient_of_theta_is_that_of_finite_differences() -> None:
    """One step of AdamW goes by the learning rate against the gradient's sign."""
    model, data = gpt(), texts()[:1]
    step = scores(model, data, "lambda", epochs=1, learning_rate=0.1, seeds=[0])
    assert step["low"].isna().all(), "of one seed nothing is known"
    values = step["score"].to_numpy().reshape(LAYERS, HEADS)

    def loss(theta: torch.Tensor) -> float:
        with papa.ablated(model, EVERY_HEAD, by=Mixed(Zeros(), theta.sigmoid())):
            return float(answers(model, data)["loss"].mean())

    signs = np.empty((2, 4))
    for layer in range(2):
        for head in range(4):
            moved = torch.zeros(2, 4)
            moved[layer, head] = 0.02
            signs[layer, head] = np.sign(loss(moved) - loss(-moved))
    assert np.array_equal(np.sign(0.5 - values), signs)
    assert len(set(signs.flatten())) == 2
    assert np.abs(np.log(values / (1 - values))) == pytest.approx(np.full((2, 4), 0.1), abs=1e-3)
