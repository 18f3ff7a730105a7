"""Causal head gating on a decoder with planted heads: one writes what comes next, one writes
against it, two write nothing.
"""

from __future__ import annotations

from typing import Any

import pytest
import torch
from transformers import GPT2Config, GPT2LMHeadModel

import papa
from tests.library.test_fidelity import bert, gpt, texts

WORDS, WIDTH, HEADS = 4, 32, 4
OWN = WIDTH // HEADS


def planted() -> Any:
    """Its first numbers say which word a token is; the head of the model reads the next ones. Each
    text is one word over and over.
    """
    sizes = {"n_layer": 1, "n_embd": WIDTH, "n_head": HEADS, "n_positions": 16, "n_inner": 4}
    marks = {"bos_token_id": 0, "eos_token_id": 0, "tie_word_embeddings": False}
    model: Any = GPT2LMHeadModel(GPT2Config(vocab_size=WORDS, **sizes, **marks)).eval()
    block, word = model.transformer.h[0], torch.eye(WORDS)
    with torch.no_grad():
        for one in model.parameters():
            if one.dim() > 1 or not one.eq(1).all():
                one.zero_()
        model.transformer.wte.weight[:, :WORDS] = word
        model.lm_head.weight[:, WORDS : 2 * WORDS] = word / 2
        for head, strength in ((0, 0.2), (1, -0.1)):
            start = head * OWN
            block.attn.c_attn.weight[:WORDS, 2 * WIDTH + start :][:, :WORDS] = word
            block.attn.c_proj.weight[start : start + WORDS, WORDS : 2 * WORDS] = strength * word
    return model


DATA = [{"input_ids": torch.arange(WORDS)[:, None].expand(WORDS, size)} for size in (5, 6, 7, 8)]


def test_planted_heads_have_their_roles() -> None:
    model = planted()
    options: dict[str, Any] = {"by": "causal_gates", "constants": "zeros", "progress": False}
    found = papa.head_scores(model, DATA, epochs=40, seeds=[0, 1], **options)
    assert found["role"].tolist() == ["facilitating", "interfering", *["irrelevant"] * 2]
    loss = papa.head_scores(model, DATA, **{**options, "by": "effect"})["score"]
    assert loss[0] > 0.05 > 0 > loss[1], "what the roles say"
    assert loss[2:].abs().max() < 1e-6
    assert found["score"][0] > 0.9 > 0.1 > found["score"][1:].max()
    options["constants"] = "first"
    alike = papa.head_scores(model, DATA, epochs=40, seeds=[0], **options)
    assert set(alike["role"]) == {"irrelevant"}, "of one word over and over the first is like any"


def test_it_follows_a_loss() -> None:
    with pytest.raises(papa.PapaError, match="follows the loss of a language model"):
        papa.head_scores(bert(), texts(), by="causal_gates", constants="zeros", progress=False)
    found = papa.head_scores(gpt(), texts(), by="causal_gates", seeds=[0], progress=False)
    shares = found[["facilitating", "interfering", "irrelevant"]]
    assert shares.min(axis=None) >= 0
    assert shares.max(axis=None) <= 1
