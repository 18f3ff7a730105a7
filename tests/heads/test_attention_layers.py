"""Which layers have heads: some have no attention, and cross-attention may never be called."""

from collections.abc import Iterator
from contextlib import contextmanager

import pytest
import torch
from transformers import PreTrainedModel

import papa
from papa.errors import PapaError
from tests.make import WHISPER, Make, Settings, answers, decoder, inputs_of, model_factory

LAYERS: Settings = {"num_hidden_layers": 4, "layer_types": ["conv", "full_attention"] * 2}
HYBRID = decoder("Lfm2", LAYERS)
BART: Settings = {
    **{name: value for name, value in WHISPER.items() if not name.startswith("num_mel")},
    "vocab_size": 300,
    "max_position_embeddings": 64,
    "decoder_layers": 3,
    "decoder_attention_heads": 4,
    "decoder_ffn_dim": 64,
}


@contextmanager
def without_head(projection: torch.nn.Module, head: int) -> Iterator[None]:
    """Nothing of one head of width 8 reaches W_O."""

    def zeroed(_: torch.nn.Module, arguments: tuple[torch.Tensor]) -> tuple[torch.Tensor]:
        mask = torch.ones(32, dtype=arguments[0].dtype)
        mask[8 * head : 8 * head + 8] = 0
        return (arguments[0] * mask,)

    hook = projection.register_forward_pre_hook(zeroed)
    try:
        yield
    finally:
        hook.remove()


@pytest.fixture
def hybrid() -> PreTrainedModel:
    """A model whose layers 1 and 3 alone have attention."""
    torch.manual_seed(0)
    return HYBRID().eval().double()


@pytest.mark.parametrize("layer", [1, 3])
@pytest.mark.parametrize("form", ["mapping", "mask", "function", "matrices"])
def test_layer_numbers_are_the_models(hybrid: PreTrainedModel, layer: int, form: str) -> None:
    inputs = {"input_ids": inputs_of("llama")["input_ids"][:1]}
    mask = torch.ones(4, 4)
    mask[layer, 1] = 0
    matrices = mask[:, :, None, None].expand(4, 4, 9, 9)
    heads, substitute = {
        "mapping": ({layer: [1]}, "zeros"),
        "mask": (mask, "zeros"),
        "function": ([(layer, 1)], lambda layer, head, slots: matrices[layer, head]),
        "matrices": ([(layer, 1)], matrices),
    }[form]
    original = answers(hybrid, inputs)
    with without_head(hybrid.model.layers[layer].self_attn.out_proj, 1):
        expected = answers(hybrid, inputs)
    with papa.ablated(hybrid, heads, substitute=substitute):
        torch.testing.assert_close(answers(hybrid, inputs), expected)
    assert not torch.allclose(original, expected), "negative control"


def test_a_layer_without_attention_has_no_heads(hybrid: PreTrainedModel) -> None:
    block = papa.ablated(hybrid, {0: [1]}, substitute="zeros")
    with pytest.raises(PapaError, match=r"\(0, 1\)"), block:
        pytest.fail("the block was entered")


@pytest.mark.filterwarnings("ignore:data holds one text")
@pytest.mark.unchecked
@pytest.mark.parametrize("method", ["effect", "lambda"])
def test_only_layers_with_attention_have_scores(hybrid: PreTrainedModel, method: str) -> None:
    inputs = {"input_ids": inputs_of("llama")["input_ids"][:1]}
    scores = papa.head_scores(hybrid, [inputs], method=method, substitute="zeros", progress=False)
    assert scores["layer"].unique().tolist() == [1, 3]
    assert {layer for layer, _ in papa.constant_heads(scores, count=8)} == {1, 3}


@pytest.mark.parametrize(
    "make",
    [
        model_factory("Bart", BART, "ForCausalLM"),
        lambda: model_factory("Bart", BART)().get_decoder(),
        model_factory("BigBirdPegasus", BART, "ForCausalLM"),
    ],
    ids=["causal", "get_decoder", "no is_causal"],
)
def test_cross_attention_of_a_decoder_is_no_layer(make: Make) -> None:
    torch.manual_seed(0)
    model = make().eval().double()
    inputs = {"input_ids": inputs_of("llama")["input_ids"][:1]}
    original = answers(model, inputs)
    with papa.ablated(model, {2: [0]}, substitute="zeros"):
        assert (answers(model, inputs) - original).abs().max() > 0.01
    block = papa.ablated(model, {3: [0]}, substitute="zeros")
    with pytest.raises(PapaError, match=r"\(3, 0\)"), block:
        pass


def test_cross_attention_is_served_where_something_calls_it() -> None:
    torch.manual_seed(0)
    model = model_factory("Bart", BART)().get_decoder().eval().double()
    states = torch.randn(2, 5, 32, dtype=torch.float64)
    mask = torch.tensor([[1, 1, 1, 1, 1], [1, 1, 1, 0, 0]])
    inputs = {**inputs_of("llama"), "encoder_hidden_states": states, "encoder_attention_mask": mask}
    original = answers(model, inputs)
    with papa.ablated(model, {}, substitute="zeros"):
        torch.testing.assert_close(answers(model, inputs), original)
    with papa.ablated(model, {1: [2]}, substitute="zeros"):
        replaced_output = answers(model, inputs)
    with without_head(model.layers[1].self_attn.out_proj, 2):
        torch.testing.assert_close(replaced_output, answers(model, inputs))
    assert not torch.allclose(replaced_output, original), "negative control"
