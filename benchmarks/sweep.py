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
from dataclasses import dataclass
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
from papa.tasks.head_scores import SCORES
from papa.tasks.inputs import resolve_inputs
from papa.tasks.pipeline import build_pipeline
from papa.tasks.run import Session, run_here, run_once
from papa.tasks.step import Step, StepGroup, with_inputs
from papa.worker import Worker
from papa.workers import Executor, WorkerPool

TOKENS = 64
TEXTS = 32
TIMED_TEXTS = 16
"""One of two batches that the texts make; the other one takes as long."""
TEXTS_OF_WORKERS = 16
"""Of the comparison of workers, each of which has one thread."""
VOCABULARY = 5000
"""Smaller than GPT-2's: what the logits cost is the same for both ways, and none of the heads'."""


@dataclass(frozen=True)
class Sizes:
    """How large a decoder is; GPT-2's, unless they say otherwise."""

    layers: int = 12
    heads: int = 12
    width: int = 768


GPT2_SIZES = Sizes()


@cache
def random_decoder(sizes: Sizes = GPT2_SIZES) -> GPT2LMHeadModel:
    """Return a GPT-2 with random weights, on the CPU."""
    torch.manual_seed(0)
    config = GPT2Config(
        vocab_size=VOCABULARY,
        n_layer=sizes.layers,
        n_head=sizes.heads,
        n_embd=sizes.width,
        pad_token_id=0,
        bos_token_id=0,
        eos_token_id=0,
    )
    return GPT2LMHeadModel(config).eval().requires_grad_(False)


def random_ids(texts: int, device: str = "cpu") -> Tensor:
    """Return random texts, as ids [texts, tokens]."""
    generator = torch.Generator().manual_seed(1)
    return torch.randint(1, VOCABULARY, (texts, TOKENS), generator=generator).to(device)


def loss_by_text(logits: Tensor, ids: Tensor) -> Tensor:
    """Return the mean loss of the next token in each text."""
    losses = nn.functional.cross_entropy(logits[:, :-1].mT, ids[:, 1:], reduction="none")
    return losses.mean(dim=1)


def effects_by_papa(model: GPT2LMHeadModel, ids: Tensor) -> np.ndarray:
    """Return the effect of every head, [layers, heads]."""
    frame = papa.head_scores(
        model,
        [{"input_ids": ids}],
        method="effect",
        substitute="zeros",
        ranking_seeds=[0],
        progress=False,
    )
    return frame["score"].to_numpy().reshape(model.config.n_layer, model.config.n_head)


@torch.inference_mode()
def effects_by_hooks(model: GPT2LMHeadModel, ids: Tensor, heads_of_each_layer: int) -> np.ndarray:
    """Return the effect of the first heads of each layer: the part of one head is 0 at the input of
    the map that follows attention.
    """
    layers = model.config.n_layer
    width = model.config.n_embd // model.config.n_head
    before = loss_by_text(model(ids, use_cache=False).logits, ids)
    effects = np.zeros((layers, heads_of_each_layer))

    def without(head: int, module: nn.Module, inputs: tuple[Tensor]) -> tuple[Tensor]:
        states = inputs[0].clone()
        states[..., head * width : (head + 1) * width] = 0
        return (states,)

    for layer, head in np.ndindex(*effects.shape):
        projection = model.get_submodule(f"transformer.h.{layer}.attn.c_proj")
        hook = projection.register_forward_pre_hook(partial(without, head))
        after = loss_by_text(model(ids, use_cache=False).logits, ids)
        hook.remove()
        effects[layer, head] = float((after - before).mean())
    return effects


@cache
def bridge(model: GPT2LMHeadModel) -> Any:
    """Return the same weights in TransformerLens (4.0 or later)."""
    lens: Any = importlib.import_module("transformer_lens.model_bridge")
    with tempfile.TemporaryDirectory() as folder:
        model.config.save_pretrained(folder)
        vocabulary = Tokenizer(WordLevel({"a": 0, "b": 1}, unk_token="a"))
        special = {"bos_token": "a", "eos_token": "a", "pad_token": "b"}
        PreTrainedTokenizerFast(tokenizer_object=vocabulary, **special).save_pretrained(folder)
        # It asks the tokenizer for the folder that it came from.
        tokenizer = PreTrainedTokenizerFast.from_pretrained(folder)
        return lens.TransformerBridge.boot_transformers(folder, hf_model=model, tokenizer=tokenizer)


@torch.inference_mode()
def effects_by_transformer_lens(
    model: GPT2LMHeadModel, ids: Tensor, heads_of_each_layer: int
) -> np.ndarray:
    """As ``effects_by_hooks``, with TransformerLens's hooks at ``hook_z``."""
    lens = bridge(model)
    before = loss_by_text(lens(ids), ids)
    effects = np.zeros((model.config.n_layer, heads_of_each_layer))

    def without(outputs: Tensor, hook: object, head: int) -> Tensor:
        outputs = outputs.clone()
        outputs[:, :, head] = 0
        return outputs

    for layer, head in np.ndindex(*effects.shape):
        hooks = [(f"blocks.{layer}.attn.hook_z", partial(without, head=head))]
        after = loss_by_text(lens.run_with_hooks(ids, fwd_hooks=hooks), ids)
        effects[layer, head] = float((after - before).mean())
    return effects


def against(plain: Callable[[GPT2LMHeadModel, Tensor, int], np.ndarray]) -> Comparison:
    """Time all heads ours, and one head of each layer plainly; both give the same effects."""
    model = random_decoder()
    ids = random_ids(TIMED_TEXTS)
    effects = effects_by_papa(model, ids)
    expected = plain(model, ids, 1)
    difference = float(np.abs(effects[:, :1] - expected).max())
    if difference > 1e-4 or float(np.abs(expected).max()) < 1e-3:
        raise ValueError(f"the two ways differ by {difference} of {np.abs(expected).max()}")
    batches = TEXTS / TIMED_TEXTS
    compared = in_turn(
        lambda: effects_by_papa(model, ids),
        Part(lambda: plain(model, ids, 1), passes_of_one_head(GPT2_SIZES)),
    )
    return Comparison(
        compared.ours * batches,
        compared.plain * batches,
        compared.low,
        compared.high,
        compared.pairs,
    )


def passes_of_one_head(sizes: Sizes) -> float:
    """Return how many times the passes of one head of each layer are those of all heads."""
    return (sizes.layers * sizes.heads + 1) / (sizes.layers + 1)


def save_as_study(model: GPT2LMHeadModel, folder: Path) -> Step:
    """Save a model and texts as a study's files; return the step that sweeps all heads."""
    model.save_pretrained(folder / "model")
    tokenizer = Tokenizer(WordLevel({f"w{number}": number for number in range(VOCABULARY)}))
    tokenizer.pre_tokenizer = WhitespaceSplit()
    PreTrainedTokenizerFast(tokenizer_object=tokenizer).save_pretrained(folder / "model")
    texts = [
        " ".join(f"w{number}" for number in ids) for ids in random_ids(TEXTS_OF_WORKERS).tolist()
    ]
    lines = [json.dumps({"text": text}) for text in texts]
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


def store_with_inputs(sweep: Step, folder: Path) -> Store:
    """Return a store in a folder that holds what a sweep reads."""
    store = Store(folder / "store")
    store.make()
    run_here(with_inputs(sweep.inputs), store, ExecutionSpec(device="cpu"), Bars(False))
    return store


def effects_by_workers(sweep: Step, store: Store, workers: Executor) -> np.ndarray:
    """Return the effect of every head, computed again by the workers of a study."""
    remove(sweep.folder(store))
    run_once(StepGroup((sweep,)), Session(store, workers, ExecutionSpec(), Bars(False)))
    return load_file(verified(sweep.reference(store)) / SCORES)["effect"]


def two_workers_against_one() -> Comparison:
    """Time a study's sweep on two workers, and on one; both give the same bits."""
    with tempfile.TemporaryDirectory() as folder, WorkerPool(2, "cpu") as pool:
        sweep = save_as_study(random_decoder(), Path(folder))
        store = store_with_inputs(sweep, Path(folder))
        worker = Worker("cpu")
        expected = effects_by_workers(sweep, store, worker)
        if not np.array_equal(effects_by_workers(sweep, store, pool), expected):
            raise ValueError("two workers and one give other effects")
        return in_turn(
            lambda: effects_by_workers(sweep, store, pool),
            Part(lambda: effects_by_workers(sweep, store, worker)),
        )


def sweep_rows() -> Iterator[Row]:
    """Yield the effect of 144 heads on texts of 64 tokens."""
    heads = f"effect of {GPT2_SIZES.layers} × {GPT2_SIZES.heads} heads"
    name = f"{heads}, {TEXTS} texts of {TOKENS} tokens"
    yield Row("sweep", f"{name}, against hooks", partial(against, effects_by_hooks))
    if importlib.util.find_spec("transformer_lens"):
        measure = partial(against, effects_by_transformer_lens)
        yield Row("sweep", f"{name}, against TransformerLens", measure)
    name = f"{heads}, {TEXTS_OF_WORKERS} texts of {TOKENS} tokens, two workers against one"
    yield Row("sweep", name, two_workers_against_one)
