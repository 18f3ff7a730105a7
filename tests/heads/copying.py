"""A small GPT-2 that learns, once a test session, to go on with what stands 23 tokens before."""

from __future__ import annotations

from collections.abc import Callable
from functools import lru_cache
from typing import Any

import torch
from torch import Tensor
from transformers import GPT2Config, GPT2LMHeadModel

LAYERS = 2
HEADS = 4
HALF = 24
TOKENS = 64


def repeated(seed: int, texts: int = 64) -> Tensor:
    half = torch.randint(TOKENS, (texts, HALF), generator=torch.Generator().manual_seed(seed))
    return torch.cat([half, half], dim=1)


@torch.enable_grad()
def small_gpt2(
    positions: int,
    words: int,
    loss_of: Callable[[Any, int], Tensor],
    enough: float,
    **settings: Any,
) -> GPT2LMHeadModel:
    """A small GPT-2, trained step by step until its loss is small enough."""
    torch.manual_seed(0)
    sizes = {"n_layer": LAYERS, "n_head": HEADS, "n_embd": 64, "n_positions": positions}
    drops = dict.fromkeys(("resid_pdrop", "embd_pdrop", "attn_pdrop"), 0.0)
    special_tokens = dict.fromkeys(("bos_token_id", "eos_token_id"), 0)
    model = GPT2LMHeadModel(
        GPT2Config(**sizes, **drops, **special_tokens, vocab_size=words, **settings)
    )
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)
    for step in range(1000):
        loss = loss_of(model, step)
        if loss.item() < enough:
            break
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
    return model.eval()


@lru_cache
def trained_copier() -> GPT2LMHeadModel:
    """A small GPT-2 that has learned to go on with a sequence that it saw before."""

    def loss(model: GPT2LMHeadModel, step: int) -> Tensor:
        """Of each token of the second half but the first, as only the first half tells it."""
        ids = repeated(step, 16)
        logits = model(input_ids=ids).logits[:, HALF:-1]
        return torch.nn.functional.cross_entropy(logits.flatten(0, 1), ids[:, HALF + 1 :].flatten())

    return small_gpt2(2 * HALF, TOKENS, loss, 0.05)
