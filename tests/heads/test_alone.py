"""Each text is as it is alone: padded on either side, behind caches, under 4-D masks."""

from collections.abc import Callable
from itertools import pairwise

import pytest
import torch
from transformers import PreTrainedModel, StaticCache

import papa
from papa.errors import DataError
from tests.make import Make, decoder, generated, random_model

HEADS = [(0, 1), (1, 0), (1, 2), (2, 3)]
LONG = torch.tensor([[1, 21, 22, 23, 24, 25, 26, 2]])
TEXT = torch.tensor([[1, 11, 12, 13, 2]])
PADDED = len(LONG[0]) - len(TEXT[0])
LEFT = torch.cat([LONG, torch.nn.functional.pad(TEXT, (PADDED, 0))])
RIGHT = torch.cat([LONG, torch.nn.functional.pad(TEXT, (0, PADDED))])
DRAWN = torch.Generator().manual_seed(3)
DATA = [{"input_ids": torch.randint(3, 300, (16, size), generator=DRAWN)} for size in (5, 8, 5, 8)]
STREAMING = {"kind": "streaming", "sinks": 1, "recent": 2}
MATRICES = torch.rand(3, 4, 16, 16, generator=DRAWN)
Inputs = dict[str, object]
Substitute = str | dict[str, object] | torch.Tensor | Callable[[int, int, int], torch.Tensor]
SUBSTITUTES: dict[str, Substitute] = {
    "mean_output": "mean_output",
    "average": "average",
    "relative": "relative",
    "resampled_output": "resampled_output",
    "streaming": STREAMING,
    "matrices": MATRICES,
}
PACKED = torch.cat([LONG, TEXT], dim=1)
POSITIONS = torch.stack([torch.cat([torch.arange(8), torch.arange(5)]), torch.arange(13)])


@torch.no_grad()
def states(model: PreTrainedModel, inputs: Inputs) -> torch.Tensor:
    outputs = model(**inputs)
    return outputs.logits if "logits" in outputs else outputs.last_hidden_state


def padded(ids: torch.Tensor) -> dict[str, torch.Tensor]:
    """With a mask of their padding, which is 0."""
    return {"input_ids": ids, "attention_mask": (ids != 0).long()}


def last_token(layer: int, head: int, slots: int) -> torch.Tensor:
    """Every token looks at the last one of its text."""
    return torch.eye(slots)[-1:].expand(slots, slots)


def boolean(mask: torch.Tensor, causal: bool) -> torch.Tensor:
    length = mask.shape[1]
    visible = torch.ones(length, length, dtype=torch.bool)
    return (visible.tril() if causal else visible) & mask[:, None, None].bool()


def four_dimensions(mask: torch.Tensor) -> torch.Tensor:
    return torch.where(boolean(mask, causal=True), 0.0, torch.finfo(torch.float32).min)


@pytest.mark.parametrize("substitute", [*SUBSTITUTES.values(), last_token])
def test_padding_on_either_side_of_an_encoder_changes_nothing(substitute: Substitute) -> None:
    model = random_model("modernbert")
    with papa.ablated(model, HEADS, substitute=substitute, data=DATA):
        unpadded = states(model, {"input_ids": TEXT})[0]
        left = states(model, padded(LEFT))[1, PADDED:]
        right = states(model, padded(RIGHT))[1, :-PADDED]
    torch.testing.assert_close(left, unpadded, atol=2e-5, rtol=0)
    torch.testing.assert_close(right, unpadded, atol=2e-5, rtol=0)
    assert float((states(model, {"input_ids": TEXT})[0] - unpadded).abs().max()) > 0.01


@pytest.mark.parametrize("family", ["gpt2", "llama", "mistral", "qwen3", "gemma2", "gemma3"])
@pytest.mark.parametrize("name", SUBSTITUTES)
def test_padding_on_the_left_of_a_decoder_changes_nothing(family: str, name: str) -> None:
    """With a mask of two and of four dimensions, and token by token behind a static cache."""
    model = random_model(family)
    substitute = SUBSTITUTES[name]
    mask = (LEFT != 0).long()
    positions = (mask.cumsum(1) - 1).clamp(min=0)
    inputs = {"input_ids": LEFT, "position_ids": positions}
    with papa.ablated(model, HEADS, substitute=substitute, data=DATA):
        unpadded = states(model, {"input_ids": TEXT})[0]
        two = states(model, inputs | {"attention_mask": mask})[1, PADDED:]
        torch.testing.assert_close(two, unpadded, atol=1e-4, rtol=0)
        four = states(model, inputs | {"attention_mask": four_dimensions(mask)})[1, PADDED:]
        if family in ("gpt2", "llama", "qwen3"):  # Of the others some layers slide.
            torch.testing.assert_close(four, unpadded, atol=1e-4, rtol=0)
        cache = StaticCache(config=model.config, max_cache_len=12)
        # The first 4 of the 8 tokens, then the rest one by one.
        bounds = [0, *range(4, LEFT.shape[1] + 1)]
        pieces = []
        for start, end in pairwise(bounds):
            piece = {key: values[:, start:end] for key, values in inputs.items()}
            piece |= {"attention_mask": mask[:, :end], "past_key_values": cache, "use_cache": True}
            pieces.append(states(model, piece)[1])
        pieces[0] = pieces[0][PADDED:]
        if name != "resampled_output":  # A token alone does not tell its text.
            torch.testing.assert_close(torch.cat(pieces), unpadded, atol=1e-4, rtol=0)
    assert float((states(model, {"input_ids": TEXT})[0] - unpadded).abs().max()) > 0.01


WINDOWED = {
    "mistral": decoder("Mistral", {"sliding_window": 4}),
    "phi3": decoder("Phi3", {"sliding_window": 4}),
    "qwen2": decoder(
        "Qwen2", {"sliding_window": 4, "use_sliding_window": True, "max_window_layers": 0}
    ),
    "starcoder2": decoder("Starcoder2", {"sliding_window": 4}),
    # Some layers see all: these need nothing of what a window lost.
    "gemma3": decoder(
        "Gemma3", {"sliding_window": 4, "sliding_window_pattern": 2}, config="TextConfig"
    ),
}


@pytest.mark.parametrize("make", WINDOWED.values(), ids=WINDOWED)
@pytest.mark.parametrize("substitute", [MATRICES, "first", STREAMING])
def test_a_window_in_a_static_cache_keeps_positions(make: Make, substitute: Substitute) -> None:
    """Of texts that outgrow the window, one of them padded on the left."""
    torch.manual_seed(0)
    model = make().eval().double()
    inputs = padded(LEFT)
    original = generated(model, inputs)
    with papa.ablated(model, HEADS, substitute=substitute):
        expected = generated(model, inputs)
        static = generated(model, inputs, cache="static")
    torch.testing.assert_close(static, expected, atol=1e-4, rtol=0)
    assert float((expected - original).abs().max()) > 0.01, "negative control"


@pytest.mark.parametrize("family", ["modernbert", "llama"])
@pytest.mark.parametrize("rows", [[0, 0], [0, 1]], ids=["both rows", "one row"])
def test_packing_by_positions_is_refused(family: str, rows: list[int]) -> None:
    model = random_model(family)
    with papa.ablated(model, HEADS, substitute="average", data=DATA), pytest.raises(DataError):
        states(model, {"input_ids": PACKED.expand(2, -1), "position_ids": POSITIONS[rows]})


@pytest.mark.parametrize("family", ["bert", "llama"])
@pytest.mark.parametrize("substitute", ["zeros", "average"])
@pytest.mark.parametrize("hidden", [None, -1e4], ids=["boolean", "additive"])
def test_packing_by_a_mask_is_refused(family: str, substitute: str, hidden: float | None) -> None:
    model = random_model(family)
    mask = torch.block_diag(torch.ones(8, 8), torch.ones(5, 5)).bool()[None, None]
    mask = mask.tril() if family == "llama" else mask
    mask = mask if hidden is None else torch.where(mask, 0.0, hidden)
    block = papa.ablated(model, HEADS, substitute=substitute, data=DATA)
    with block, pytest.raises(DataError, match="attention_mask"):
        states(model, {"input_ids": PACKED, "attention_mask": mask})


@pytest.mark.parametrize("family", ["bert", "llama"])
@pytest.mark.parametrize("substitute", ["average", "relative", "first", last_token])
def test_masks_of_four_dimensions_are_those_of_two(family: str, substitute: Substitute) -> None:
    model = random_model(family)
    mask = (RIGHT != 0).long()
    whole = boolean(mask, causal=family == "llama")
    zeros = torch.zeros(whole.shape, dtype=torch.float64)
    lowest = torch.finfo(torch.float64).min
    masks = [whole, *(zeros.masked_fill(~whole, hidden) for hidden in (lowest, -1e4, -torch.inf))]
    with papa.ablated(model, HEADS, substitute=substitute, data=DATA):
        expected = states(model, padded(RIGHT))[mask.bool()]
        for four in masks:
            masked_states = states(model, {"input_ids": RIGHT, "attention_mask": four})[mask.bool()]
            torch.testing.assert_close(masked_states, expected, atol=1e-5, rtol=0)
    original = states(model, padded(RIGHT))[mask.bool()]
    assert float((original - expected).abs().max()) > 0.01, "negative control"


def test_a_donor_is_another_text() -> None:
    model = random_model("bert")
    texts = [{"input_ids": torch.randint(3, 300, (1, 4 + n), generator=DRAWN)} for n in range(6)]
    whole = [(layer, head) for layer in range(3) for head in range(4)]
    original = [states(model, text) for text in texts]
    with papa.ablated(model, whole, substitute="resampled_output", data=texts):
        replaced_states = [states(model, text) for text in texts]
    for before, after in zip(original, replaced_states, strict=True):
        assert float((before - after).abs().max()) > 0.01
    # The same text twice is one text.
    for same_text in (texts[:1], [texts[0], dict(texts[0])]):
        block = papa.ablated(model, whole, substitute="resampled_output", data=same_text)
        with block, pytest.raises(DataError):
            states(model, texts[0])
