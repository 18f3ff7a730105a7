"""A small study in one call: the same cells, probes, metrics and intervals as ``papa run`` has."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from contextlib import nullcontext
from dataclasses import replace
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING, Any

import pandas
from torch import nn
from transformers import PreTrainedTokenizerBase

from papa.errors import SpecError
from papa.library.encoder import Encoder, check_loaded
from papa.library.held import measure_held
from papa.library.measurement import Measurement, compared_with_random
from papa.library.renamed import formerly
from papa.library.running import run_steps
from papa.library.substitutes import constants_for
from papa.library.tasks import Task, as_list, study_inputs, text_warnings
from papa.ranking.given import OwnOrder, named_orders
from papa.ranking.seeds import TrainedLambda
from papa.reporting.answers import answers, certainty, corpus_warnings
from papa.scores.custom import CustomScore
from papa.scores.summary import summarise
from papa.spec import ConstantsSpec, Order
from papa.spec.orders import Cell, Head
from papa.storage.artifacts import read_metadata
from papa.storage.store import Store
from papa.tasks.cell import read_scores
from papa.tasks.pipeline import build_pipeline
from papa.tasks.results import results_table

if TYPE_CHECKING:
    pass


@formerly(
    encoder="model",
    dataset="data",
    constants="substitutes",
    fractions="keep",
    seeds="probe_seeds",
)
def measure(
    model: Encoder | nn.Module,
    data: Any,
    *,
    task: Task | None = None,
    substitutes: Sequence[Any] = ("average",),
    orders: Sequence[Order | OwnOrder] = ("lambda",),
    keep: Sequence[float] = (1.0, 0.5, 0.125, 0.0625, 0.0),
    probe_seeds: Sequence[int] = (0, 1, 2),
    ranking_seeds: Sequence[int] = (0, 1, 2),
    train_rows: int | None = None,
    validation_rows: int | None = None,
    ranking_rows: int | None = None,
    store: str | Path | None = None,
    tokenizer: PreTrainedTokenizerBase | None = None,
    score: str | CustomScore | None = None,
    progress: bool = True,
) -> Measurement:
    """How far an encoder's score falls as its heads become constant: a study in one call, in this
    process with one thread, with the scores of ``papa run`` for the same study, to the bit.

    Or how far the answers of a model that you hold change, a classifier, a sentence encoder, a
    language model, one of images or sound: as it is, with its own head. Its data are "train", of
    which averages and λ come, and "validation"; or one set of texts or batches, of which every
    other text, by length, is either.

    Examples:
        >>> data = {"text": ["good", "bad", "fine", "poor"], "label": ["yes", "no", "yes", "no"]}
        >>> splits = {"train": data, "validation": data}
        >>> papa.measure(encoder, splits, keep=[1], probe_seeds=[0]).summary["constant_heads"][0]
        0
        >>> papa.measure(model, batches, orders=["random"], keep=[1, 0]).summary["metric"][0]
        'negative_log_perplexity'

    Args:
        model: from ``load_encoder``, or a model that you hold, in eval mode.
        task: which columns hold what; None takes ``text``, ``label`` and, where a table has it,
            ``text_pair``, which of a model that you hold every task takes. A loaded decoder's is
            ``papa.Task(label=None, metric="negative_log_perplexity", head="native")``.
        substitutes: names as of a study (docs/method.md), with parameters ``{"kind": "local",
            "window": 3}``; or matrices, which tables call ``custom``, ``custom-2``, …. Of a model
            that you hold, what ``ablated`` takes.
        orders: names, or orders of one's own, which tables call by the function's name, or
            ``scores:custom``, ``scores:custom 2``, …: a list of heads, scores, or a function of
            (layer, head), the smallest first. Of a model that you hold, "lambda" and "effect"
            follow the first of the substitutes.
        keep: shares of heads that stay input-dependent; [1] scores the encoder as it is.
        probe_seeds: a probe for each.
        ranking_seeds: λ is trained once with each, and its mean counts.
        train_rows: a sample of so many; None takes all.
        validation_rows: likewise.
        ranking_rows: likewise, to score heads on.
        store: a folder or address that keeps what is computed, also for ``papa run``.
        tokenizer: of a model that you hold, where its data are texts.
        score: of a model that you hold: "negative_log_perplexity" (the negative loss in nats),
            "agreement" with its own answers, "accuracy" where a table has labels, "cosine" and
            other measures of embeddings; or as for ``fidelity``. None takes the first for a
            language model, or what the model keeps of its own answers.
    """
    if not isinstance(substitutes, list | tuple) or not substitutes:
        name = type(substitutes).__name__
        raise SpecError(f"substitutes is {name}, expected a list of one or more")
    rows = train_rows, validation_rows, ranking_rows
    if isinstance(model, nn.Module):
        task = Task() if task is None else task
        if not isinstance(task, Task):
            name = type(task).__name__
            raise SpecError(f"task is a {name}, expected papa.Task: name others, as tokenizer=")
        taken = ("text", "text_pair", "label", "name", "head", "score")
        plain = Task(**{name: getattr(task, name) for name in taken})
        if any(one is not None for one in (*rows, store)) or task != plain:
            raise SpecError(
                "a model that you hold is measured on all data by score=: leave out store, numbers "
                f"of rows, and all of the task but {', '.join(taken)}"
            )
        measurement = measure_held(
            model,
            data,
            task,
            tokenizer,
            score or task.score,
            substitutes,
            orders,
            keep,
            probe_seeds,
            ranking_seeds,
            progress,
        )
        warnings = [f"Beware, {task.name}: {text}." for text in text_warnings(data, task)]
        return replace(measurement, answers=[*measurement.answers, *warnings])
    check_loaded(model, decoder=True, whole=True)
    if tokenizer is not None or score is not None:
        raise SpecError("tokenizer and score are of a model that you hold: give papa.Task(score=…)")
    if store is not None and model.path is None:
        raise SpecError("a store knows encoders by their files: leave store out")
    named = [substitute for substitute in substitutes if isinstance(substitute, str | Mapping)]
    supplied = [
        substitute for substitute in substitutes if not isinstance(substitute, str | Mapping)
    ]
    custom = {
        f"custom-{number}" if number > 1 else "custom": constants_for(model, matrices)
        for number, matrices in enumerate(supplied, 1)
    }
    parts = {
        "substitutes": named or ["zeros"],
        **named_orders(orders, model.layers, model.heads),
        "keep": as_list(keep),
        "probe_seeds": as_list(probe_seeds),
        "ranking_seeds": as_list(ranking_seeds),
        "ranking": {"rows": ranking_rows},
    }
    sampled = {"train_rows": train_rows, "validation_rows": validation_rows}
    with (
        study_inputs(model, data, task, sampled=sampled, **parts) as inputs,
        nullcontext(store) if store is not None else TemporaryDirectory(prefix="papa-") as folder,
    ):
        if custom:
            kinds = inputs.study.substitutes if named else ()
            kinds += tuple(ConstantsSpec.model_construct(kind=label) for label in custom)
            study = inputs.study.model_copy(update={"substitutes": kinds})
            inputs = replace(inputs, study=study, matrices=custom)
        for code in inputs.code.values():
            if code.probe is not None and any(one.is_trained for one in inputs.study.substitutes):
                raise SpecError("trained constants have PAPA's own probe: leave them or probe out")
            if store is not None and code.digest is None:
                raise SpecError("a store knows code by a module's file: import the task's from one")
        steps = build_pipeline(inputs)
        found = run_steps(steps.steps[:-1], Store(folder), model, inputs, progress)
        (part,) = steps.pairs
        scores = part.head_scores(found)
        frames = [one.frame(method) for method, one in scores.items()]
        results = results_table([part], found)
        told = answers(summarise(results)) + compared_with_random(results)
        trained = scores.get("lambda")
        if isinstance(trained, TrainedLambda):
            told.append(certainty(trained.facts(inputs.study.keep)))
        told += corpus_warnings(results, {part.task.name: read_metadata(found[part.text])})
        heads: dict[Cell, tuple[Head, ...] | None] = {}
        for cell, made in part.cells.items():
            every = {read_scores(found[step]).constant_heads for step in made}
            heads[Cell.of(vars(cell))] = every.pop() if len(every) == 1 else None
        frame = pandas.concat(frames, ignore_index=True) if frames else pandas.DataFrame()
        return Measurement(results, frame, told, heads)
