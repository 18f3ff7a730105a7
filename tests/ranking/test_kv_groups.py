"""Heads that share keys and values, scored and made constant as one unit."""

from collections.abc import Callable
from functools import partial

import numpy as np
import pandas
import pytest
import torch
from transformers import LlamaForCausalLM

import papa
from papa.errors import EncoderError, SpecError
from papa.heads.attention_layers import heads_per_kv_group
from tests.make import Settings, decoder

LAYERS = 2
HEADS = 8
GROUPS = 4
PAIRS = [(2 * group, 2 * group + 1) for group in range(GROUPS)]
SIZES: Settings = {
    "num_hidden_layers": LAYERS,
    "num_attention_heads": HEADS,
    "num_key_value_heads": GROUPS,
    "vocab_size": 50,
}
Batches = list[dict[str, torch.Tensor]]


quick_scores = partial(
    papa.head_scores, evaluations=80, epochs=1, ranking_seeds=[0], progress=False
)
quick_measure = partial(papa.measure, probe_seeds=[3], ranking_seeds=[0], progress=False)


@pytest.fixture(scope="module")
def llama() -> LlamaForCausalLM:
    torch.manual_seed(0)
    return decoder("Llama", SIZES)().eval()


@pytest.fixture(scope="module")
def batches() -> Batches:
    generator = torch.Generator().manual_seed(1)
    return [{"input_ids": torch.randint(1, 50, (8, 12), generator=generator)} for _ in range(2)]


def scores_of(frame: pandas.DataFrame) -> np.ndarray:
    return frame["score"].to_numpy().reshape(LAYERS, GROUPS, HEADS // GROUPS)


def test_effect_of_a_group_is_that_of_its_set(llama: LlamaForCausalLM, batches: Batches) -> None:
    frame = quick_scores(llama, batches, method="effect", unit="kv_group")
    sets = [[(layer, head) for head in pair] for layer in range(LAYERS) for pair in PAIRS]
    effects = papa.joint_effects(llama, batches, head_sets=sets, progress=False).effects
    expected = effects["joint"].to_numpy().reshape(LAYERS, GROUPS)
    np.testing.assert_allclose(scores_of(frame)[..., 0], expected, atol=1e-6)
    np.testing.assert_allclose(scores_of(frame)[..., 1], expected, atol=1e-6)
    assert np.abs(effects["joint"] - effects["single_sum"]).max() > 0.01, "negative control"
    assert (frame["low"] < frame["high"]).all()
    assert frame["kv_group"].tolist() == [group for group in range(GROUPS) for _ in "ab"] * LAYERS
    assert frame["head"].tolist() == [*range(HEADS)] * LAYERS


def test_text_means_are_those_of_a_groups_heads(llama: LlamaForCausalLM, batches: Batches) -> None:
    by_group = quick_scores(llama, batches, method="output_norm", unit="kv_group")
    by_head = quick_scores(llama, batches, method="output_norm")
    expected = scores_of(by_head).mean(axis=2)
    np.testing.assert_allclose(scores_of(by_group)[..., 1], expected, rtol=1e-6)
    assert np.ptp(scores_of(by_head), axis=2).max() > 0.01, "negative control"


@pytest.mark.parametrize("method", ["lambda", "gradient", "greedy", "shapley", "gates"])
def test_a_group_has_one_score(llama: LlamaForCausalLM, batches: Batches, method: str) -> None:
    grouped = scores_of(quick_scores(llama, batches, method=method, unit="kv_group"))
    np.testing.assert_array_equal(grouped[..., 0], grouped[..., 1])
    assert np.ptp(grouped) > 0, "negative control"


@pytest.mark.filterwarnings("ignore:data holds one text")
def test_the_gradient_of_a_group_is_that_of_one_gate_for_its_heads(llama: LlamaForCausalLM) -> None:
    text = {"input_ids": torch.arange(1, 13)[None]}
    grouped = quick_scores(llama, [text], method="gradient", unit="kv_group")
    by_head = quick_scores(llama, [text], method="gradient")
    # |a + b| of one text lies between ||a| - |b|| and |a| + |b|.
    first, second = np.moveaxis(scores_of(by_head), -1, 0)
    group = scores_of(grouped)[..., 0]
    near = np.minimum(np.abs(group - (first + second)), np.abs(group - np.abs(first - second)))
    assert near.max() < 1e-5


@pytest.mark.parametrize("order", ["lambda", "random", "first_to_last", "reversed:effect"])
def test_orders_take_whole_groups(llama: LlamaForCausalLM, batches: Batches, order: str) -> None:
    measured = quick_measure(
        llama, batches, unit="kv_group", orders=[order], keep=[1, 0.875, 0.5, 0]
    )
    for cell, heads in measured.constant_heads.items():
        assert heads is not None
        assert len(heads) == round((1 - cell.fraction) * LAYERS * HEADS)
        groups = {(layer, head // 2) for layer, head in heads}
        assert len(groups) == len(heads) / 2


def test_random_heads_break_groups(llama: LlamaForCausalLM, batches: Batches) -> None:
    measurement = quick_measure(llama, batches, orders=["random"], keep=[0.5])
    (heads,) = measurement.constant_heads.values()
    assert heads is not None
    assert len({(layer, head // 2) for layer, head in heads}) > len(heads) / 2


def test_custom_orders_go_by_the_highest_head(llama: LlamaForCausalLM, batches: Batches) -> None:
    scores = np.ones((LAYERS, HEADS))
    scores[1, [2, 3]] = 0.0
    scores[0, 0] = -5.0  # The other head of its group is kept, and so is the group.
    measurement = quick_measure(llama, batches, unit="kv_group", orders=[scores], keep=[0.875])
    assert [*measurement.constant_heads.values()] == [((1, 2), (1, 3))]


@pytest.mark.unchecked
@pytest.mark.parametrize("call", [papa.measure, papa.head_scores])
def test_an_unknown_unit_is_refused(
    llama: LlamaForCausalLM, batches: Batches, call: Callable[..., object]
) -> None:
    with pytest.raises(SpecError) as error:
        call(llama, batches, unit="kv_groups")
    assert "'kv_groups'" in str(error.value)


def test_groups_of_different_sizes_are_refused(llama: LlamaForCausalLM) -> None:
    single_heads = decoder("Llama", SIZES | {"num_key_value_heads": HEADS})()
    modules = [model.model.layers[0].self_attn for model in (llama, single_heads)]
    with pytest.raises(EncoderError) as error:
        heads_per_kv_group(modules)
    assert "1" in str(error.value)
    assert heads_per_kv_group(modules[:1]) == HEADS // GROUPS


def test_a_search_takes_whole_groups(llama: LlamaForCausalLM, batches: Batches) -> None:
    frame = quick_scores(llama, batches, method="effect", unit="kv_group")
    # So high a limit that every group is within it.
    search = papa.search_heads(llama, batches, scores=frame, max_effect=1e3, progress=False)
    assert search.heads == papa.constant_heads(frame, keep=0)
    assert set(search.trials["constant_heads"] % 2) == {0}
