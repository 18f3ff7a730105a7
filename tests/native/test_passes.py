"""Passes of a native head: one value of a set of heads, whatever sets were valued before it."""

import numpy as np
import pytest
import torch
from transformers import GPT2Config, GPT2LMHeadModel

from papa.heads.substitutes import Zeros
from papa.native.in_memory import open_in_memory
from papa.native.passes import NativeHead

TEXTS = 24


@pytest.fixture(scope="module")
def native() -> NativeHead:
    """Of a random decoder whose own attention rounds otherwise than replaced heads do."""
    torch.manual_seed(0)
    config = GPT2Config(n_layer=3, n_head=4, n_embd=32, vocab_size=100, initializer_range=0.3)
    config._attn_implementation = "eager"
    ids = torch.randint(100, (TEXTS, 16))
    batch = {"input_ids": ids, "attention_mask": torch.ones_like(ids)}
    return open_in_memory(GPT2LMHeadModel(config).eval(), [batch])


def test_a_set_has_the_same_bits_whichever_sets_come_before_it(native: NativeHead) -> None:
    first = [(2, 1)]
    single_set = native.values_of_sets(Zeros(), [first])[-1].sums
    after_others = native.values_of_sets(Zeros(), [[], [(1, 0)], first])[-1].sums
    np.testing.assert_array_equal(after_others, single_set)
    plain = native.losses(next(native.texts.batches()), None).values.detach().numpy()
    routed = native.losses(next(native.texts.batches()), {}).values.detach().numpy()
    assert (routed != plain).any(), "negative control: the model's own attention rounds otherwise"
    np.testing.assert_allclose(routed, plain, atol=1e-4)
