"""What a report says of a decoder's cache."""

from __future__ import annotations

import pytest
from transformers import LlamaConfig, LlamaForCausalLM

import papa
from papa.reporting.cache import CachedCell, cache_table, whole_groups
from papa.spec import ConstantsSpec
from papa.spec.cells import Cell

LAYERS, HEADS, SHARING, TOKENS = 2, 4, 2, 100


def row(kind: dict[str, object], *heads: list[tuple[int, int]]) -> list[str]:
    constants = ConstantsSpec.model_validate(kind)
    cell = Cell("model", "task", constants.label, "random", 0.5)
    groups = LAYERS * HEADS // SHARING
    (found,) = cache_table([CachedCell(cell, constants, heads, SHARING, groups, TOKENS)]).rows
    return found[-3:]


def test_groups_are_those_of_the_library() -> None:
    sizes = {"hidden_size": 16, "intermediate_size": 16, "vocab_size": 20}
    shape = {"num_hidden_layers": LAYERS, "num_attention_heads": HEADS}
    model = LlamaForCausalLM(LlamaConfig(**sizes, **shape, num_key_value_heads=HEADS // SHARING))
    heads = [(0, 0), (0, 1), (0, 2), (1, 1), (1, 2), (1, 3)]
    saved = papa.cache_savings(model, heads)
    assert whole_groups(heads, SHARING) == len(saved.constant) == 2
    assert float(row({"kind": "average"}, heads)[1].removesuffix(" %")) == 100 * 2 / saved.groups
    window = papa.cache_savings(model, heads, window=3)
    keys, values = (float(one.removesuffix(" %")) for one in row({"kind": "local"}, heads)[1:])
    assert (keys + values) / 2 == pytest.approx(100 * window.share(TOKENS), abs=0.1)


@pytest.mark.parametrize(
    ("kind", "keys", "values"),
    [
        ({"kind": "average"}, "50.0 %", "0.0 %"),
        ({"kind": "zeros"}, "50.0 %", "50.0 %"),
        ({"kind": "local", "window": 9}, "50.0 %", "45.0 %"),
        ({"kind": "local", "window": 200}, "50.0 %", "0.0 %"),
        ({"kind": "streaming", "sinks": 4, "recent": 16}, "40.0 %", "40.0 %"),
    ],
)
def test_values_are_needed_as_far_as_constants_reach(
    kind: dict[str, object], keys: str, values: str
) -> None:
    whole = [(0, 0), (0, 1), (1, 2), (1, 3)]
    assert row(kind, whole) == ["2 of 4", keys, values]
    assert row(kind, [(0, 0), (0, 2), (1, 1), (1, 3)]) == ["0 of 4", "0.0 %", "0.0 %"]


def test_seeds_with_other_heads_give_a_span() -> None:
    whole = [(0, 0), (0, 1)], [(0, 0), (0, 1), (1, 0), (1, 1)]
    assert row({"kind": "average"}, *whole) == ["1 to 2 of 4", "25.0 % to 50.0 %", "0.0 %"]
