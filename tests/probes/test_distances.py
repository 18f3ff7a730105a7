"""Averages by distance hold no matrix of positions."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
from torch.utils._python_dispatch import TorchDispatchMode
from transformers import GPT2Config, GPT2LMHeadModel

from papa.library.ablating import substitute_for

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
