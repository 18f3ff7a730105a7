"""Layers below the first changed one are reused: passes output what plain passes do."""

from collections.abc import Iterator, Sequence
from itertools import product

import pytest
import torch
from torch import Tensor, nn
from transformers import BertConfig, BertModel, PreTrainedModel

import papa
from papa.heads.reuse import LayerReuse, reuse_in
from papa.spec.orders import Head
from tests.make import WORDS, inputs_of, random_model

FAMILIES = ("bert", "modernbert", "distilbert", "gpt2", "llama", "qwen3")
LAYERS = 3
HEADS = 4
SINGLE_HEADS = [[head] for head in product(range(LAYERS), range(HEADS))]
SETS = [
    [],
    [(2, 1)],
    [(1, 0), (2, 1)],
    [(1, 0), (1, 3), (2, 1)],
    [(0, 2), (1, 0), (1, 3), (2, 1)],
    [(2, 0)],
    [(2, 0)],
    [*product(range(LAYERS), range(HEADS))],
]
EXACT = 1e-6


class CountedLayers:
    """How often layers of a model compute something."""

    def __init__(self, model: PreTrainedModel) -> None:
        self.calls = 0
        for module in model.modules():
            # Layers that are reused call none of their maps.
            if isinstance(module, nn.LayerNorm) or "Norm" in type(module).__name__:
                module.register_forward_pre_hook(self._count)

    def _count(self, *_: object) -> None:
        self.calls += 1


def first_output(model: PreTrainedModel, inputs: dict[str, Tensor]) -> Tensor:
    return model(**inputs)[0]


def outputs_of(
    model: PreTrainedModel, sets: Sequence[list[Head]], reuse: LayerReuse, substitute: str = "zeros"
) -> Iterator[Tensor]:
    """What the model outputs for two batches in turn, with each set of heads replaced."""
    name = model.config.model_type
    batches = [inputs_of(name, seed=seed) for seed in (1, 2)]
    for heads in sets:
        for number, inputs in enumerate(batches):
            with torch.inference_mode(), papa.ablated(model, heads, substitute=substitute):
                yield reuse.run(
                    number, substitute, heads, lambda inputs=inputs: first_output(model, inputs)
                )


def reuse_of(model: PreTrainedModel) -> LayerReuse:
    inputs = inputs_of(model.config.model_type)
    return reuse_in(model, lambda: model(**inputs))


@pytest.mark.parametrize("name", FAMILIES)
@pytest.mark.parametrize("sets", [SINGLE_HEADS, SETS], ids=["single heads", "sets"])
def test_passes_that_reuse_layers_equal_plain_passes(name: str, sets: list[list[Head]]) -> None:
    model = random_model(name)
    reuse = reuse_of(model)
    assert len(reuse.layers) == LAYERS
    plain = list(outputs_of(model, sets, LayerReuse()))
    for reused, expected in zip(outputs_of(model, sets, reuse), plain, strict=True):
        torch.testing.assert_close(reused, expected, atol=EXACT, rtol=0)
    assert max(float((passed - plain[0]).abs().max()) for passed in plain[::2]) > 0.01, "control"


@pytest.mark.parametrize("name", FAMILIES)
def test_lower_layers_are_not_computed_again(name: str) -> None:
    model = random_model(name)
    reuse = reuse_of(model)
    counted = CountedLayers(model)
    list(outputs_of(model, SINGLE_HEADS, LayerReuse()))
    plain_calls = counted.calls
    counted.calls = 0
    list(outputs_of(model, SINGLE_HEADS, reuse))
    assert counted.calls < 0.85 * plain_calls


@pytest.mark.parametrize("heads", [[(0, 1)], [(1, 0), (2, 1)]])
def test_another_substitute_changes_the_layers_that_it_is_in(heads: list[Head]) -> None:
    model = random_model("gpt2")
    reuse = reuse_of(model)
    zeros = list(outputs_of(model, [heads], reuse))
    reused = list(outputs_of(model, [heads], reuse, substitute="first"))
    expected = list(outputs_of(model, [heads], LayerReuse(), substitute="first"))
    torch.testing.assert_close(reused, expected, atol=EXACT, rtol=0)
    assert float((expected[0] - zeros[0]).abs().max()) > 0.01


def test_with_gradients_nothing_is_reused() -> None:
    model = random_model("bert")
    reuse = reuse_of(model)
    inputs = inputs_of("bert")
    reuse.run("batch", "zeros", [], lambda: first_output(model, inputs))
    output = reuse.run("batch", "zeros", [(2, 0)], lambda: first_output(model, inputs))
    assert output.requires_grad


def test_a_model_whose_layers_share_a_module_runs_plainly() -> None:
    model = random_model("albert")
    reuse = reuse_of(model)
    assert not reuse.layers
    plain = list(outputs_of(model, SINGLE_HEADS, LayerReuse()))
    for reused, expected in zip(outputs_of(model, SINGLE_HEADS, reuse), plain, strict=True):
        torch.testing.assert_close(reused, expected, atol=EXACT, rtol=0)


class RememberingModel(BertModel):
    """The last layer adds what the first layer output in the same pass, which its module keeps."""

    def __init__(self, config: BertConfig) -> None:
        super().__init__(config)
        first = self.encoder.layer[0]
        last = self.encoder.layer[-1]
        computed: list[Tensor] = []
        first.attention.register_forward_hook(lambda *call: computed.append(call[2][0]))
        last.register_forward_hook(lambda *call: call[2] + computed[-1])


def test_a_model_with_state_between_its_layers_runs_plainly() -> None:
    torch.manual_seed(0)
    config = BertConfig.from_dict(WORDS)
    assert not reuse_of(RememberingModel(config).eval()).layers
    plain_model = BertModel(config)
    assert reuse_of(plain_model.eval()).layers, "negative control"
