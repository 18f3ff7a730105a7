"""Decoders in their own use: what a cache is spared, averages by distance without a matrix of
positions, and λ trained on the model's own answers.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import pytest
import torch
from torch.utils._python_dispatch import TorchDispatchMode
from transformers import (
    BertForMaskedLM,
    BertForSequenceClassification,
    BertModel,
    GPT2Config,
    GPT2LMHeadModel,
)

import papa
from papa.ablation.substitutes import Mixed, Zeros
from papa.errors import DataError, EncoderError, SpecError
from papa.library.ablating import substitute_for
from papa.library.fidelity import answers
from papa.scores.fidelity import divergence
from tests.ablation.models import DECODERS, random_model
from tests.library.test_fidelity import EVERY_HEAD, alone, bert, gpt, texts

OPTIONS: dict[str, Any] = {"progress": False, "seeds": (0,)}


@pytest.mark.parametrize("name", DECODERS)
def test_a_cache_is_spared_where_a_whole_group_is_constant(name: str) -> None:
    model = random_model(name)
    shared = 1 if name == "gpt2" else 2
    found = papa.cache_savings(model, {0: [0, 1], 1: [1, 2], 2: [3]})
    assert found.groups == 12 // shared
    assert found.constant == (
        ((0, 0), (0, 1), (1, 1), (1, 2), (2, 3)) if shared == 1 else ((0, 0),)
    )
    assert found.partly == (() if shared == 1 else ((1, 0), (1, 1), (2, 1)))
    assert found.share(100) == pytest.approx(len(found.constant) / found.groups / 2)
    keys = model(input_ids=torch.tensor([[7, 8, 9]]), use_cache=True).past_key_values.layers[0].keys
    assert keys.shape[1] * 3 == found.groups
    with_window = papa.cache_savings(model, {0: [0, 1]}, window=10)
    assert with_window.share(10) == papa.cache_savings(model, {0: [0, 1]}).share(10)
    assert with_window.share(40) == pytest.approx(with_window.share(10) * (1 + 3 / 4))
    assert "constant as a whole and need no keys" in str(with_window)


def test_a_cache_that_is_none_is_one_sentence() -> None:
    with pytest.raises(EncoderError, match="BertModel is no decoder"):
        papa.cache_savings(bert(BertModel), [])
    with pytest.raises(SpecError, match="window is 0, expected 1 token or more"):
        papa.cache_savings(gpt(), [], window=0)
    with pytest.raises(SpecError, match="there is no head"):
        papa.cache_savings(gpt(), [(0, 9)])


@torch.no_grad()
def test_the_divergence_of_next_tokens_is_that_of_a_plain_loop() -> None:
    model, data = gpt(), alone(texts())
    before = torch.cat([model(**one).logits[0, :-1] for one in data]).numpy()
    with papa.ablated(model, EVERY_HEAD):
        after = torch.cat([model(**one).logits[0, :-1] for one in data]).numpy()
    expected = divergence(before, after).mean()
    assert expected > 0.01
    found = papa.fidelity(model, EVERY_HEAD, data=texts())
    assert found.measures["divergence"].mean == pytest.approx(expected, abs=1e-4)


@pytest.mark.parametrize(
    "model",
    [
        gpt(),
        bert(BertForMaskedLM),
        bert(BertForSequenceClassification, num_labels=3),
        bert(BertModel),
    ],
)
def test_lambda_of_any_model_is_trained_without_labels(model: Any) -> None:
    """A loss that only moves λ: less is lost of the model's answers than at its start, and the
    model stays whole.
    """
    weights = {name: one.clone() for name, one in model.state_dict().items()}
    found = papa.train_own_lambda(model, texts(), by="zeros", epochs=8, **OPTIONS)
    assert found.by_seed.shape == (1, 2, 4)
    assert found.by_epoch[0].shape == (8, 2, 4)
    assert np.abs(found.mean - 0.5).max() > 0.05
    assert all(torch.equal(one, weights[name]) for name, one in model.state_dict().items())
    assert all(one.requires_grad and one.grad is None for one in model.parameters())
    again = papa.train_own_lambda(model, texts(), by="zeros", epochs=8, **OPTIONS)
    assert np.array_equal(found.by_seed, again.by_seed)


def test_the_gradient_of_theta_is_that_of_finite_differences() -> None:
    """One step of AdamW goes by the learning rate against the gradient's sign."""
    model, data = gpt(), texts()[:1]
    step = papa.train_own_lambda(model, data, by="zeros", epochs=1, learning_rate=0.1, **OPTIONS)

    def loss(theta: torch.Tensor) -> float:
        with papa.ablated(model, EVERY_HEAD, by=Mixed(Zeros(), theta.sigmoid())):
            return float(answers(model, data)["loss"].mean())

    signs = np.empty((2, 4))
    for layer in range(2):
        for head in range(4):
            moved = torch.zeros(2, 4)
            moved[layer, head] = 0.02
            signs[layer, head] = np.sign(loss(moved) - loss(-moved))
    assert np.array_equal(np.sign(0.5 - step.mean), signs)
    assert len(set(signs.flatten())) == 2
    assert np.abs(np.log(step.mean / (1 - step.mean))) == pytest.approx(
        np.full((2, 4), 0.1), abs=1e-3
    )


def test_what_cannot_be_trained_on_is_one_sentence() -> None:
    with pytest.raises(SpecError, match="epochs is 0, learning_rate is"):
        papa.train_own_lambda(gpt(), texts(), epochs=0)
    with pytest.raises(DataError, match="a batch of data holds no token that counts"):
        papa.train_own_lambda(gpt(), [{"input_ids": torch.tensor([[3]])}], by="zeros", **OPTIONS)
    with pytest.raises(EncoderError, match="in train mode"):
        papa.train_own_lambda(gpt().train(), texts(), **OPTIONS)


TOKENS, LAYERS, HEADS = 4096, 1, 4


class Largest(TorchDispatchMode):
    """Bytes of the largest tensor that any operation makes."""

    found = 0

    def __torch_dispatch__(
        self, function: Any, _: Any, given: Sequence[Any] = (), named: Any = None
    ) -> Any:
        output = function(*given, **(named or {}))
        for one in output if isinstance(output, tuple | list) else [output]:
            if isinstance(one, torch.Tensor):
                self.found = max(self.found, one.untyped_storage().nbytes())
        return output


def largest(by: str, tokens: int) -> int:
    sizes = {"n_layer": LAYERS, "n_head": HEADS, "n_embd": 16, "vocab_size": 20}
    model = GPT2LMHeadModel(GPT2Config(n_positions=tokens, **sizes)).eval()
    ids = torch.arange(tokens)[None] % 20
    with Largest() as seen:
        substitute_for(model, by, data=[{"input_ids": ids}])
    return seen.found


def test_distances_of_4096_tokens_need_no_matrix_for_each_head() -> None:
    """The model's own mask has a number for each pair of positions; no head has a matrix beside
    it.
    """
    each_pair = 4 * TOKENS**2
    assert largest("relative", TOKENS) <= each_pair
    few = 512
    assert largest("average", few) >= 8 * LAYERS * HEADS * few**2, "by position each head has one"
