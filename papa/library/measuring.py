"""A small study in one call: the same cells, probes, metrics and intervals as ``papa run`` has."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from contextlib import nullcontext
from dataclasses import replace
from pathlib import Path
from tempfile import TemporaryDirectory

import pandas
from torch import nn
from transformers import PreTrainedTokenizerBase

from papa.errors import SpecError
from papa.heads.constants import ConstantMatrices
from papa.library.batches import Data
from papa.library.encoder import Encoder, check_measurable
from papa.library.in_memory import measure_in_memory
from papa.library.measurement import Measurement, head_score_attrs
from papa.library.redundancy import JointEffects
from papa.library.running import run_steps
from papa.library.substitutes import RequestedSubstitute, constants_for, substitute_names
from papa.library.tasks import Task, as_list, study_inputs, task_in_memory
from papa.library.unit_orders import check_unit
from papa.ranking.external_scores import CustomOrder, named_orders
from papa.ranking.head_scores import TrainedLambda
from papa.ranking.kv_groups import with_group_column
from papa.reporting.redundancy import redundancy_sentences
from papa.reporting.sentences import (
    certainty_sentences,
    corpus_warnings,
    examples_sentence,
    score_sentences,
    seed_warnings,
)
from papa.scores.custom import RequestedScore
from papa.scores.summary import summarise
from papa.spec import Order, StudySpec, SubstituteSpec
from papa.spec.orders import Cell, Head, Unit, default_order
from papa.storage.artifacts import ArtifactReference, read_metadata
from papa.storage.store import Store
from papa.tasks.cell import read_scores
from papa.tasks.inputs import StudyInputs
from papa.tasks.joint_effects import joint_effects_table
from papa.tasks.pair_steps import PairSteps
from papa.tasks.pipeline import build_pipeline
from papa.tasks.results import results_table
from papa.tasks.step import Step

_IN_MEMORY_TASK_ARGUMENTS = ("text", "text_pair", "label", "name", "metric", "head", "score")
"""The arguments of a task that an in-memory model takes."""


def measure(
    model: Encoder | nn.Module,
    data: Data,
    *,
    task: Task | None = None,
    substitutes: Sequence[RequestedSubstitute] = ("average",),
    orders: Sequence[Order | CustomOrder] | pandas.DataFrame | None = None,
    keep: Sequence[float] = (1.0, 0.5, 0.125, 0.0625, 0.0),
    probe_seeds: Sequence[int] = (0, 1, 2),
    ranking_seeds: Sequence[int] = (0, 1, 2),
    train_rows: int | None = None,
    validation_rows: int | None = None,
    ranking_rows: int | None = None,
    store: str | Path | None = None,
    tokenizer: PreTrainedTokenizerBase | None = None,
    score: RequestedScore | None = None,
    part: str | None = None,
    unit: Unit = "head",
    joint_effects: bool = True,
    progress: bool = True,
) -> Measurement:
    """Measure how far a model's score falls as its heads become constant: a study in one call.

    An ``Encoder`` is measured with probes on labelled data, in this process with one thread; the
    scores are those of ``papa run`` for the same study, to the bit. An in-memory model (a
    classifier, a sentence encoder, a language model, one of images or sound) is measured as it is,
    with its native head.

    Examples:
        >>> data = {"text": ["good", "bad", "fine", "poor"], "label": ["yes", "no", "yes", "no"]}
        >>> splits = {"train": data, "validation": data}
        >>> measurement = papa.measure(encoder, splits, keep=[1], probe_seeds=[0])
        >>> measurement.summary["constant_heads"].tolist()
        [0]
        >>> papa.measure(model, batches, orders=["random"], keep=[1, 0]).summary["metric"][0]
        'negative_log_perplexity'

    Args:
        model: An ``Encoder``, or an in-memory model of transformers in eval mode.
        data: For an encoder, a task's name (``papa tasks``), or tables under "train" and
            "validation". For an in-memory model, batches or texts under "train" (for averages and
            head scores) and "validation" (measured); or one set, of which every other text, by
            length, is either.
        task: Which columns of ``data`` hold what; None takes ``text``, ``label`` and, if there is
            one, ``text_pair``; for a loaded decoder ``papa.Task(label=None,
            metric="negative_log_perplexity", head="native")``.
        substitutes: What takes attention's place, each measured by itself: names as in a study
            (docs/method.md), with parameters ``{"kind": "local", "window": 3}``; or matrices, which
            tables call ``custom``, ``custom-2``, …. For an in-memory model, what ``ablated`` takes.
        orders: In which order heads become constant: names (docs/method.md); or custom orders,
            which tables call by the function's name, or ``scores:custom``, ``scores:custom 2``, …:
            a list of heads, after which those that it leaves out follow by layer and head; scores,
            or a function of (layer, head), the smallest first. A frame of ``head_scores`` may stand
            without a list. Orders of an in-memory model follow the first of the substitutes. None
            takes ["effect"] for a native head, with a pass over up to 256 texts for each head and
            ranking seed, and ["lambda"] for a probe.
        keep: Shares of heads that stay input-dependent; [1] scores the model as it is.
        probe_seeds: Seeds: a probe is trained with each; intervals need two or more. Of an
            in-memory model nothing is trained with them: they draw random orders, and the texts of
            "resampled_output", each by a pass over the training texts.
        ranking_seeds: Seeds: heads are scored once with each, and the mean is followed.
        train_rows: For an encoder, the size of a sample of training rows; None takes all.
        validation_rows: For an encoder, the size of a sample of validation rows; None takes all.
        ranking_rows: For an encoder, the size of the sample that heads are scored on; None takes
            all training rows.
        store: A folder or address that keeps what is computed, also for ``papa run``; None keeps
            nothing.
        tokenizer: The tokenizer of an in-memory model, if ``data`` holds texts.
        score: What an in-memory model is scored by: "negative_log_perplexity" (the negative loss
            in nats), "agreement" with its original answers, "accuracy" where a table has labels,
            "cosine" and other measures of embeddings, or a function as for ``fidelity``. None takes
            the first for a language model, "spearman" for a number with labels, else what the model
            keeps of its original answers, without labels.
        part: For an in-memory model of several parts, the part whose heads are measured, as for
            ``ablated``.
        unit: What is scored and becomes constant as a whole: "head", or "kv_group", the heads of a
            decoder or an in-memory model that share keys and values, as for ``head_scores``. A
            custom order takes a group by the highest score of its heads.
        joint_effects: Whether to measure also what sets of heads cost together, with the order
            "effect" of a native head: a pass over up to 256 validation texts for each value of
            ``keep``, each head in these sets, and each of up to 120 pairs, often most of the time.
        progress: Whether to show progress bars.

    Returns:
        The measurement: results, tables, figures and sentences.

    Raises:
        SpecError: An argument is wrong, or not for this kind of model.
        DataError: ``data`` is missing or does not fit the task.
        EncoderError: The model is in train mode, or its heads cannot be replaced.
        ArtifactError: Matrices do not fit the model.
    """
    if not isinstance(substitutes, list | tuple) or not substitutes:
        name = type(substitutes).__name__
        raise SpecError(f"substitutes is {name}, expected a list of one or more")
    check_unit(unit)
    if isinstance(model, nn.Module):
        task = task_in_memory(task, _IN_MEMORY_TASK_ARGUMENTS)
        if callable(task.metric):
            raise SpecError(
                "metric: a function of classes scores probes: give an in-memory model "
                "papa.Task(score=…), a function of its output"
            )
        of_studies = (train_rows, validation_rows, ranking_rows, store)
        if any(argument is not None for argument in of_studies):
            raise SpecError(
                "an in-memory model is measured on all of data, without a store: leave out "
                "train_rows, validation_rows, ranking_rows and store"
            )
        metric = task.metric if isinstance(task.metric, str) else None
        return measure_in_memory(
            model,
            data,
            substitutes=substitutes,
            orders=[default_order(["native"])] if orders is None else orders,
            keep=keep,
            probe_seeds=probe_seeds,
            ranking_seeds=ranking_seeds,
            task=task,
            tokenizer=tokenizer,
            score=score or task.score or metric,
            part=part,
            unit=unit,
            joint_effects=joint_effects,
            progress=progress,
        )
    check_measurable(model, tokenizer=tokenizer, score=score, part=part)
    if store is not None and not model.path:
        raise SpecError(
            "an encoder loaded from memory has no files, by which a store identifies it: "
            "leave out store"
        )
    by_name = [substitute for substitute in substitutes if isinstance(substitute, str | Mapping)]
    supplied = [
        substitute for substitute in substitutes if not isinstance(substitute, str | Mapping)
    ]
    matrices = [constants_for(model, substitute) for substitute in supplied]
    custom = dict(zip(substitute_names(supplied), matrices, strict=True))
    ordered = {} if orders is None else named_orders(orders, model.layers, model.heads)
    settings = {
        # A study names at least one substitute; where all are matrices, they take its place below.
        "substitutes": by_name or ["zeros"],
        **ordered,
        "keep": as_list(keep),
        "unit": unit,
        "probe_seeds": as_list(probe_seeds),
        "ranking_seeds": as_list(ranking_seeds),
        "ranking": {"rows": ranking_rows},
    }
    sampled = {"train_rows": train_rows, "validation_rows": validation_rows}
    with (
        study_inputs(model, data, task, sampled=sampled, settings=settings) as inputs,
        nullcontext(store) if store is not None else TemporaryDirectory(prefix="papa-") as folder,
    ):
        if custom:
            inputs = _with_matrices(inputs, custom, replaces_all=not by_name)
        _check_code(inputs, is_stored=store is not None)
        pipeline = build_pipeline(inputs)
        (pair,) = pipeline.pairs
        steps = pipeline.steps[:-1]
        if not joint_effects:
            steps = tuple(step for step in steps if step != pair.joint_effects)
            pair = replace(pair, joint_effects=None)
        artifacts = run_steps(steps, Store(folder), model, inputs, progress)
        return _measurement(pair, artifacts, inputs.study)


def _with_matrices(
    inputs: StudyInputs, custom: Mapping[str, ConstantMatrices], replaces_all: bool
) -> StudyInputs:
    """Return a study's inputs with matrices of the caller's among, or as, its substitutes."""
    kinds = () if replaces_all else inputs.study.substitutes
    kinds += tuple(SubstituteSpec.model_construct(kind=label) for label in custom)
    study = inputs.study.model_copy(update={"substitutes": kinds})
    return replace(inputs, study=study, matrices=custom)


def _check_code(inputs: StudyInputs, is_stored: bool) -> None:
    """Refuse custom code that trained substitutes, or a store, cannot take."""
    is_trained = any(substitute.is_trained for substitute in inputs.study.substitutes)
    for code in inputs.code.values():
        if code.probe is not None and is_trained:
            raise SpecError(
                "trained substitutes need PAPA's own probe: leave out 'trained' or the custom probe"
            )
        if is_stored and code.digest is None:
            raise SpecError(
                "a store identifies custom code by its file: import it from a module, or "
                "leave out store"
            )


def _measurement(
    pair: PairSteps, artifacts: Mapping[Step, ArtifactReference], study: StudySpec
) -> Measurement:
    """Return what the finished steps of an encoder and its task say."""
    scores = pair.head_scores(artifacts)
    frames = [method_scores.frame(method) for method, method_scores in scores.items()]
    if study.unit == "kv_group":
        heads_per_group = pair.encoder.heads_per_unit(study.unit)
        frames = [with_group_column(frame, heads_per_group) for frame in frames]
    results = results_table([pair], artifacts)
    text = read_metadata(artifacts[pair.text])
    examples = text["rows"]
    sentences = [
        *score_sentences(summarise(results)),
        examples_sentence(examples["train"], examples["validation"]),
    ]
    trained = scores.get("lambda")
    if isinstance(trained, TrainedLambda):
        sentences.append(certainty_sentences(pair.lambda_agreement(trained, study)))
    sentences += seed_warnings(results) + corpus_warnings(results, {pair.task.name: text})
    heads: dict[Cell, tuple[Head, ...] | None] = {}
    for cell, steps in pair.cells.items():
        by_seed = {read_scores(artifacts[step]).constant_heads for step in steps}
        heads[Cell.from_row(vars(cell))] = by_seed.pop() if len(by_seed) == 1 else None
    frame = pandas.concat(frames, ignore_index=True) if frames else pandas.DataFrame()
    frame.attrs = head_score_attrs("average", study.ranking_seeds, examples["train"])
    effects = joint_effects_table([pair], artifacts)
    if effects is None:
        return Measurement(results, frame, sentences, heads)
    sentences += redundancy_sentences(effects)
    return Measurement(results, frame, sentences, heads, JointEffects(effects))
