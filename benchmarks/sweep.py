"""Effect of every head of a random model of GPT-2's size, against loops with hooks.

The plain way calls the whole model once a head, as public scripts do; TransformerLens's is the same
loop in its own hooks, measured where it is installed. Passes of a plain loop all take the same
time, so one head of each layer is timed, and counted as often as a layer has heads.
"""

from __future__ import annotations

import importlib
import importlib.util
import tempfile
from collections.abc import Callable, Iterator
from functools import cache, partial
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn
from transformers import GPT2Config, GPT2LMHeadModel, PreTrainedTokenizerFast

import papa
from benchmarks.timing import Comparison, Part, Row, in_turn

LAYERS = 12
HEADS = 12
TEXTS = 32
TOKENS = 64
TIMED_TEXTS = 16
"""One of two batches that the texts make; the other one takes as long."""
VOCABULARY = 5000
"""Smaller than GPT-2's: what the logits cost is the same for both ways, and none of the heads'."""


@cache
def gpt2_sized() -> GPT2LMHeadModel:
    """A model of GPT-2's size with random weights."""
    torch.manual_seed(0)
    config = GPT2Config(vocab_size=VOCABULARY, n_layer=LAYERS, n_head=HEADS, pad_token_id=0)
    config.bos_token_id = config.eos_token_id = 0
    return GPT2LMHeadModel(config).eval().requires_grad_(False)


@cache
def token_ids() -> Tensor:
    """Random texts, as ids [texts, tokens]."""
    generator = torch.Generator().manual_seed(1)
    return torch.randint(1, VOCABULARY, (TIMED_TEXTS, TOKENS), generator=generator)


def loss_by_text(logits: Tensor, ids: Tensor) -> Tensor:
    """The mean loss of the next token in each text."""
    losses = nn.functional.cross_entropy(logits[:, :-1].mT, ids[:, 1:], reduction="none")
    return losses.mean(dim=1)


def effect_by_papa() -> np.ndarray:
    """The effect of every head, [layers, heads]."""
    batches = [{"input_ids": token_ids()}]
    frame = papa.head_scores(
        gpt2_sized(), batches, method="effect", substitute="zeros", progress=False
    )
    return frame["score"].to_numpy().reshape(LAYERS, HEADS)


@torch.inference_mode()
def effects_by_hooks(heads_of_each_layer: range) -> np.ndarray:
    """The effect of some heads of each layer: the part of one head is 0 at the input of the map
    that follows attention.
    """
    model = gpt2_sized()
    ids = token_ids()
    width = model.config.n_embd // HEADS
    before = loss_by_text(model(ids, use_cache=False).logits, ids)
    effects = np.zeros((LAYERS, len(heads_of_each_layer)))

    def without(head: int, module: nn.Module, inputs: tuple[Tensor]) -> tuple[Tensor]:
        states = inputs[0].clone()
        states[..., head * width : (head + 1) * width] = 0
        return (states,)

    for layer in range(LAYERS):
        for index, head in enumerate(heads_of_each_layer):
            projection = model.get_submodule(f"transformer.h.{layer}.attn.c_proj")
            hook = projection.register_forward_pre_hook(partial(without, head))
            after = loss_by_text(model(ids, use_cache=False).logits, ids)
            hook.remove()
            effects[layer, index] = float((after - before).mean())
    return effects


@cache
def bridge() -> Any:
    """The same weights in TransformerLens (4.0 or later)."""
    words: Any = importlib.import_module("tokenizers.models")
    tokenizers: Any = importlib.import_module("tokenizers")
    lens: Any = importlib.import_module("transformer_lens.model_bridge")
    with tempfile.TemporaryDirectory() as folder:
        gpt2_sized().config.save_pretrained(folder)
        vocabulary = tokenizers.Tokenizer(words.WordLevel({"a": 0, "b": 1}, unk_token="a"))
        special = {"bos_token": "a", "eos_token": "a", "pad_token": "b"}
        PreTrainedTokenizerFast(tokenizer_object=vocabulary, **special).save_pretrained(folder)
        # It asks the tokenizer for the folder that it came from.
        tokenizer = PreTrainedTokenizerFast.from_pretrained(folder)
        return lens.TransformerBridge.boot_transformers(
            folder, hf_model=gpt2_sized(), tokenizer=tokenizer
        )


@torch.inference_mode()
def effects_by_transformer_lens(heads_of_each_layer: range) -> np.ndarray:
    """As ``effects_by_hooks``, with TransformerLens's hooks at ``hook_z``."""
    model = bridge()
    ids = token_ids()
    before = loss_by_text(model(ids), ids)
    effects = np.zeros((LAYERS, len(heads_of_each_layer)))

    def without(outputs: Tensor, hook: object, head: int) -> Tensor:
        outputs = outputs.clone()
        outputs[:, :, head] = 0
        return outputs

    for layer in range(LAYERS):
        for index, head in enumerate(heads_of_each_layer):
            hooks = [(f"blocks.{layer}.attn.hook_z", partial(without, head=head))]
            after = loss_by_text(model.run_with_hooks(ids, fwd_hooks=hooks), ids)
            effects[layer, index] = float((after - before).mean())
    return effects


def against(plain: Callable[[range], np.ndarray]) -> Comparison:
    """Time all heads ours, and one head of each layer plainly; both give the same effects."""
    found = effect_by_papa()
    expected = plain(range(1))
    difference = float(np.abs(found[:, :1] - expected).max())
    if difference > 1e-4 or float(np.abs(expected).max()) < 1e-3:
        raise ValueError(f"the two ways differ by {difference} of {np.abs(expected).max()}")
    times = TEXTS / TIMED_TEXTS
    passes = (LAYERS * HEADS + 1) / (LAYERS + 1)
    compared = in_turn(effect_by_papa, Part(lambda: plain(range(1)), passes))
    return Comparison(
        compared.ours * times,
        compared.plain * times,
        compared.low,
        compared.high,
        compared.pairs,
    )


def sweep_rows() -> Iterator[Row]:
    """The effect of 144 heads on 32 texts of 64 tokens."""
    name = f"effect of {LAYERS} × {HEADS} heads, {TEXTS} texts of {TOKENS} tokens"
    yield Row("sweep", f"{name}, against hooks", partial(against, effects_by_hooks))
    if importlib.util.find_spec("transformer_lens"):
        measure = partial(against, effects_by_transformer_lens)
        yield Row("sweep", f"{name}, against TransformerLens", measure)
