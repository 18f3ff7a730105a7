"""Effect of every head of a random model of GPT-2's size: against loops with hooks, and on two
workers against one.

The plain way calls the whole model once a head, as public scripts do; TransformerLens's is the same
loop in its own hooks, measured where it is installed. Passes of a plain loop all take the same
time, so one head of each layer is timed, and counted as often as a layer has heads.
"""

from __future__ import annotations

import importlib
import importlib.util
import json
import tempfile
from collections.abc import Callable, Iterator
from functools import cache, partial
from pathlib import Path
from typing import Any

import numpy as np
import torch
from safetensors.numpy import load_file
from tokenizers import Tokenizer
from tokenizers.models import WordLevel
from tokenizers.pre_tokenizers import WhitespaceSplit
from torch import Tensor, nn
from transformers import GPT2Config, GPT2LMHeadModel, PreTrainedTokenizerFast

import papa
from benchmarks.timing import Comparison, Part, Row, in_turn
from papa.progress import Bars
from papa.spec import ExecutionSpec
from papa.spec.file import resolve_study
from papa.storage.artifacts import remove, verified
from papa.storage.store import Store
from papa.tasks.inputs import resolve_inputs
from papa.tasks.pipeline import build_pipeline
from papa.tasks.rank import SCORES
from papa.tasks.run import Session, run_here, run_once
from papa.tasks.step import Step, StepGroup, with_inputs
from papa.worker import Executor, Worker
from papa.workers import WorkerPool

LAYERS = 12
HEADS = 12
TEXTS = 32
TOKENS = 64
TIMED_TEXTS = 16
"""One of two batches that the texts make; the other one takes as long."""
TEXTS_OF_WORKERS = 8
"""Of the comparison of workers, each of which has one thread."""
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


def effects_by_papa() -> np.ndarray:
    """The effect of every head, [layers, heads]."""
    frame = papa.head_scores(
        gpt2_sized(),
        [{"input_ids": token_ids()}],
        method="effect",
        substitute="zeros",
        ranking_seeds=[0],
        progress=False,
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
    effects = effects_by_papa()
    expected = plain(range(1))
    difference = float(np.abs(effects[:, :1] - expected).max())
    if difference > 1e-4 or float(np.abs(expected).max()) < 1e-3:
        raise ValueError(f"the two ways differ by {difference} of {np.abs(expected).max()}")
    batches = TEXTS / TIMED_TEXTS
    passes = (LAYERS * HEADS + 1) / (LAYERS + 1)
    compared = in_turn(effects_by_papa, Part(lambda: plain(range(1)), passes))
    return Comparison(
        compared.ours * batches,
        compared.plain * batches,
        compared.low,
        compared.high,
        compared.pairs,
    )


def save_as_study(folder: Path) -> Step:
    """Save the model and texts as a study's files; return the step that sweeps all heads."""
    gpt2_sized().save_pretrained(folder / "model")
    tokenizer = Tokenizer(WordLevel({f"w{number}": number for number in range(VOCABULARY)}))
    tokenizer.pre_tokenizer = WhitespaceSplit()
    PreTrainedTokenizerFast(tokenizer_object=tokenizer).save_pretrained(folder / "model")
    texts = [" ".join(f"w{number}" for number in ids) for ids in token_ids().tolist()]
    lines = [json.dumps({"text": text}) for text in texts[:TEXTS_OF_WORKERS]]
    (folder / "texts.jsonl").write_text("\n".join(lines))
    task = {
        "name": "words",
        "kind": "causal",
        "head": "native",
        "metric": "negative_log_perplexity",
        "source": {"kind": "files", "train": "texts.jsonl", "validation": "texts.jsonl"},
        "columns": {"text": "text"},
        "slots": TOKENS,
    }
    document = {
        "name": "sweep",
        "encoders": [str(folder / "model")],
        "tasks": [task],
        "substitutes": ["zeros"],
        "orders": ["effect"],
        "keep": [0.5],
        "probe_seeds": [0],
        "ranking_seeds": [0],
    }
    study = resolve_study(document, folder=folder, origin="benchmarks")
    steps = build_pipeline(resolve_inputs(study).inputs()).steps
    (sweep,) = (step for step in steps if step.stage.name == "sweep_heads")
    return sweep


def effects_by_workers(sweep: Step, store: Store, workers: Executor) -> np.ndarray:
    """The effect of every head, computed again by the workers of a study."""
    remove(sweep.folder(store))
    run_once(StepGroup((sweep,)), Session(store, workers, ExecutionSpec(), Bars(False)))
    return load_file(verified(sweep.reference(store)) / SCORES)["effect"]


def two_workers_against_one() -> Comparison:
    """Time a study's sweep on two workers, and on one; both give the same bits."""
    with tempfile.TemporaryDirectory() as folder, WorkerPool(2, "cpu") as pool:
        sweep = save_as_study(Path(folder))
        store = Store(Path(folder) / "store")
        store.make()
        execution = ExecutionSpec(device="cpu")
        run_here(with_inputs(sweep.inputs), store, execution, Bars(False))
        worker = Worker("cpu")
        expected = effects_by_workers(sweep, store, worker)
        if not np.array_equal(effects_by_workers(sweep, store, pool), expected):
            raise ValueError("two workers and one give other effects")
        return in_turn(
            lambda: effects_by_workers(sweep, store, pool),
            Part(lambda: effects_by_workers(sweep, store, worker)),
        )


def sweep_rows() -> Iterator[Row]:
    """The effect of 144 heads on texts of 64 tokens."""
    heads = f"effect of {LAYERS} × {HEADS} heads"
    name = f"{heads}, {TEXTS} texts of {TOKENS} tokens"
    yield Row("sweep", f"{name}, against hooks", partial(against, effects_by_hooks))
    if importlib.util.find_spec("transformer_lens"):
        measure = partial(against, effects_by_transformer_lens)
        yield Row("sweep", f"{name}, against TransformerLens", measure)
    name = f"{heads}, {TEXTS_OF_WORKERS} texts of {TOKENS} tokens, two workers against one"
    yield Row("sweep", name, two_workers_against_one)
