"""From a study to its steps, in the order in which they can run. Each stage is given no more of a
task than it reads (``cut``), so that nothing else can be in its result, or in its key.
"""

from __future__ import annotations

import sys
from collections.abc import Mapping
from dataclasses import dataclass, replace
from itertools import product
from typing import Any, TypeVar

import psutil
from pydantic import BaseModel

from papa.files import sha256_of_file
from papa.models.reference import EncoderReference
from papa.ranking.orders import HEAD_SCORES, draws_of, scored_by
from papa.ranking.seeds import order_of_rows
from papa.spec import Columns, ConstantsSpec, Order, TaskSpec
from papa.spec.orders import Cell, constant_count, without_name
from papa.spec.study import CONTROLLED, CONTROLS, OF_DECODERS, OPTIMAL, OUTPUTS, RESAMPLED
from papa.spec.task import UNLABELLED_METRICS, is_own
from papa.tasks.inputs import StudyInputs
from papa.tasks.results import StudyPart
from papa.tasks.aggregate import aggregate, command_line
from papa.tasks.average import average
from papa.tasks.substitutes import Constants, given, outputs, relative
from papa.tasks.probe import ConstantHeads, answers, baseline, one_answer, own, probe
from papa.tasks.rank import frozen_probe, rank, score_heads
from papa.tasks.tokenise import tokenise
from papa.tasks.step import Step

_Model = TypeVar("_Model", bound=BaseModel)


@dataclass(frozen=True)
class StudySteps:
    """A study's steps, each once and after those it reads, and its parts, encoder by encoder."""

    steps: tuple[Step, ...]
    parts: tuple[StudyPart, ...]


def study_steps(inputs: StudyInputs) -> StudySteps:
    """The steps of a study; the last is the aggregation."""
    study = inputs.study
    steps: dict[Step, Step] = {}
    parts = tuple(
        _Builder(inputs, encoder, task, steps).part()
        for encoder in inputs.encoders
        for task in study.tasks
    )
    paper = sha256_of_file(study.reference) if study.reference else None
    invocation = command_line(sys.argv), psutil.Process().create_time()
    report = aggregate(f"aggregate · {study.name}", study, parts, paper, invocation)
    return StudySteps((*steps, report), parts)


def cut(model: _Model, *names: str, **values: Any) -> _Model:
    """A part of a specification that has these alone: to ask for another is an AttributeError."""
    kept = {**{name: getattr(model, name) for name in names}, **values}
    found = type(model).model_construct(**kept)
    for name in vars(found).keys() - kept:
        del vars(found)[name]
    return found


def cut_task(task: TaskSpec, *names: str, **values: Any) -> TaskSpec:
    """Likewise of a task, which keeps its kind, its slots, and its name for messages."""
    return cut(task, "name", "kind", "slots", *names, **values)


def trained_on(task: TaskSpec, **values: Any) -> TaskSpec:
    """What of a task decides a loss. The metric is one for all that are trained alike."""
    metric = "agreement" if task.with_itself else "spearman" if task.regression else "accuracy"
    metric = "cosine" if task.of_embeddings else metric
    return cut_task(task, "head", "labels", columns=_labelled(task), metric=metric, **values)


def _labelled(task: TaskSpec) -> Columns:
    return cut(task.columns, label=task.columns.label and "label")


@dataclass
class _Builder:
    """The steps of one encoder on one task, beside those that a study has so far."""

    inputs: StudyInputs
    encoder: EncoderReference
    task: TaskSpec
    steps: dict[Step, Step]

    def __post_init__(self) -> None:
        self.study, self.label = self.inputs.study, self.inputs.labels[self.encoder]
        self.heads = self.encoder.layers * self.encoder.heads
        self.where, self.code = f"{self.label} · {self.task.name}", self.inputs.code.get(self.task)
        self.text = self.corpus(self.task)

    def once(self, step: Step) -> Step:
        """The step, or its equal that was there before."""
        return self.steps.setdefault(step, step)

    def part(self) -> StudyPart:
        """Every combination of constants, orders and fractions."""
        study, task = self.study, self.task
        worth: tuple[Step, ...] = ()
        cells: dict[Cell, tuple[Step, ...]] = {}
        constants: dict[str, Constants] = {}
        rankings: dict[str, Mapping[int, Step]] = {}
        for spec, order, fraction in product(study.constants, study.orders, study.fractions):
            cell = Cell(self.label, task.name, spec.label, order, fraction)
            cells[cell] = self.probes(spec, cell)
            heads = cells[cell][0]["heads"]
            if heads.constants:
                constants[spec.label] = heads.constants
            if (method := scored_by(order)) and heads.rankings:
                rankings[method] = heads.rankings
        if task.head != "own":
            worth = tuple(self.baseline(seed) for seed in study.seeds)
        elif task.columns.label is not None and (self._has_metric or not task.with_itself):
            name = f"one answer · {self.where}"
            worth = (self.once(one_answer(name, self.text, self.scored(), self.code)),)
        controls = self.controls(rankings.get("lambda", {}))
        scoring = (step for by_seed in rankings.values() for step in by_seed.values())
        frozen = tuple(probe for step in scoring if (probe := step.arguments.get("probe")))
        made = cells, constants, rankings, worth, controls, frozen
        return StudyPart(self.label, self.encoder, task, self.text, *made)

    @property
    def _has_metric(self) -> bool:
        """Whether the task is scored by a function of labels and predictions of the user's."""
        return self.code is not None and self.code.metric is not None

    def corpus(self, text: TaskSpec) -> Step:
        """A text: of an encoder it takes the tokenizer alone."""
        unread: dict[str, Any] = {"digest": "", "layers": 0, "heads": 0, "width": 0}
        tokenizer = replace(self.encoder, **unread, precision="float32")
        # Of metrics without labels none decides how it is read, nor do functions of the user's.
        metric = "accuracy" if is_own(text.metric) else text.metric
        if metric in UNLABELLED_METRICS or text.kind == "causal":
            metric = "agreement"
        rows = ["source", "columns", "labels", "train_rows", "validation_rows", "sample_seed"]
        rows += ["mask_seed"] if text.kind == "mlm" else []
        task = cut_task(text, *rows, "validation_slots", metric=metric)
        name, content = f"tokenise · {self.label} · {text.name}", self.inputs.fingerprints
        layout = self.study.layout
        return self.once(tokenise(name, tokenizer, task, layout, content[text.source]))

    def average(self, text: TaskSpec) -> Step:
        """The average over a text."""
        name = f"average · {self.label} · {text.name}"
        return self.once(average(name, self.encoder, self.corpus(text), text.slots))

    def constants(self, spec: ConstantsSpec, seed: int) -> Constants:
        """The constants of a cell, before any training of their own."""
        kind = spec.start if spec.is_trained and spec.kind != OPTIMAL else spec.kind
        text, slots = (self.encoder, self.text), self.task.slots
        if kind in OUTPUTS:
            kind = "mean_output" if kind == OPTIMAL else kind
            drawn = seed if kind == RESAMPLED else None
            alone = f" · seed {seed}" if kind == RESAMPLED else ""
            made = outputs(f"outputs · {self.where} · {kind}{alone}", *text, slots, kind, drawn)
        elif kind == "relative" and self.encoder.causal:
            made = relative(f"relative · {self.where}", *text)
        elif kind in (*CONTROLS, *OF_DECODERS):
            return Constants(kind, spec.parameters)
        elif matrices := self.inputs.matrices.get(kind):
            made = given(f"given · {self.label} · {kind}", self.encoder, matrices)
        else:
            source = (spec.corpus or self.task).model_copy(update={"slots": slots})
            if spec.rows:
                sample = {"name": f"{source.name}-{spec.rows}-rows", "train_rows": spec.rows}
                source = source.model_copy(update=sample)
            made = self.average(source)
        return Constants(kind, spec.parameters, self.once(made))

    def rankings(self, order: Order | None) -> Mapping[int, Step]:
        """What gives the scores that an order follows, by ranking seed, against the task's own
        average: one order for every kind of constants, so kinds meet on the same heads. Streamed
        methods share steps, of one seed where seeds would draw nothing.
        """
        method = scored_by(order) if order else None
        if method is None:
            return {}
        task, ranking, read = self.task, self.study.ranking, (self.encoder, self.text)
        matrices = self.average(task)
        streamed = tuple(sorted(name for name in HEAD_SCORES if HEAD_SCORES[name].streamed))
        shared = method in streamed and ranking.rows is None
        seeds = ranking.seeds[:1] if shared else ranking.seeds
        found: dict[int, Step] = {}
        for seed in seeds:
            alone = f" · seed {seed}" if len(seeds) > 1 else ""
            if method == "lambda":
                found[seed] = self._lambda(f"rank · {self.where}{alone}", matrices, seed)
                continue
            asked, frozen = HEAD_SCORES[method], None
            loss = cut_task(task, "probe") if "epochs" in asked.reads else cut_task(task)
            if not asked.label_free:
                loss = trained_on(task, probe=task.probe)
                if task.head == "probe" and asked.frozen_probe:
                    name = f"frozen probe · {self.where}{alone}"
                    frozen = self.once(frozen_probe(name, *read, loss, seed))
            what, methods = ("one pass", streamed) if asked.streamed else (method, (method,))
            name, drawn = f"scores · {self.where} · {what}{alone}", None if shared else seed
            how = loss, cut(ranking, "rows", *asked.reads), methods, drawn, frozen
            found[seed] = score_heads(name, *read, matrices, *how)
        return {seed: self.once(step) for seed, step in found.items()}

    def _lambda(self, name: str, matrices: Step, seed: int) -> Step:
        task, ranking = self.task, self.study.ranking
        used = {
            "epochs": ranking.epochs or task.probe.epochs,
            "learning_rate": ranking.learning_rate or task.probe.learning_rate,
        }
        loss = trained_on(task, probe=task.probe.model_copy(update=used))
        settings = cut(ranking, "rows", **used)
        return rank(name, self.encoder, self.text, matrices, loss, settings, seed)

    def controls(self, rankings: Mapping[int, Step]) -> Mapping[int, Step]:
        """The same trainings on shuffled labels, where enough seeds may have rows of their own."""
        task, ranking = self.task, self.study.ranking
        count = task.train_rows or sys.maxsize
        orders = {order_of_rows(count, ranking.rows, seed) for seed in ranking.seeds}
        shared = len(ranking.seeds) < CONTROLLED or len(orders) > 1 or None in orders
        unlabelled = task.columns.label is None and task.kind not in ("mlm", "causal")
        if shared or not ranking.control or unlabelled or task.with_itself:
            return {}
        return {
            seed: self.once(step.changed(f"{step.name} · shuffled labels", shuffled=True))
            for seed, step in rankings.items()
        }

    def baseline(self, seed: int) -> Step:
        """What scores are compared with, of one seed."""
        alone = f" · seed {seed}" if len(self.study.seeds) > 1 else ""
        asked = self.encoder, self.text, self.scored("probe"), (seed,), self.study.features
        return self.once(baseline(f"baseline · {self.where}{alone}", *asked, self.code))

    def scored(self, *names: str, **values: Any) -> TaskSpec:
        """What of the task scores answers."""
        return cut_task(self.task, "metric", "positive", *names, **values)

    def probes(self, spec: ConstantsSpec, cell: Cell) -> tuple[Step, ...]:
        """What scores a cell: a step for each seed; a native head, which no seed changes, has one
        for all seeds with the same constant heads.
        """
        study, result = self.study, cell.result(self.heads)
        order, features = without_name(result.order) if result.order else None, study.features
        count, rankings = constant_count(result.fraction, self.heads), self.rankings(result.order)
        size, read = (self.encoder.layers, self.encoder.heads), (self.encoder, self.text)
        # Where the order changes nothing it is drawn from nothing.
        draws = list(draws_of(study, result.order or "first_to_last").items())
        if self.task.head != "own" or (result.constants and spec.kind == RESAMPLED):
            draws = [((seed,), draw) for seeds, draw in draws for seed in seeds]
        found: list[Step] = []
        for seeds, draw in draws:
            constants = self.constants(spec, seeds[0]) if result.constants else None
            heads = ConstantHeads(size, constants, order, count, rankings, draw)
            alone = f" · seed {seeds[0]}" if seeds != study.seeds else ""
            what = f"{self.where} · {_condition(result, self.heads)}{alone}"
            if self.task.head == "own":
                after = self.answers(what, heads)
                before = self.answers(f"{self.where} · no constant head", ConstantHeads(size))
                asked = self.scored("labels", columns=_labelled(self.task)), seeds, self.code
                found.append(own(f"own · {what}", self.text, heads, after, before, *asked))
            else:
                trained = constants is not None and spec.is_trained
                how = self.scored("probe"), trained, seeds, features, self.code
                found.append(probe(f"probe · {what}", *read, heads, *how))
        return tuple(map(self.once, found))

    def answers(self, what: str, heads: ConstantHeads) -> Step:
        """What the model's own head answers; metrics on one text share it, as they come later."""
        code = self.code if self.code and self.code.score else None
        metric = "cosine" if self.task.of_embeddings else "agreement"
        task = cut_task(self.task, "labels", columns=_labelled(self.task), metric=metric)
        return self.once(answers(f"answers · {what}", self.encoder, self.text, heads, task, code))


def _condition(result: Cell, heads_in_all: int) -> str:
    """What is constant in the cells of a result."""
    if not result.constants:
        return "no constant head"
    if not result.order:
        return f"{result.constants} · every head constant"
    count = constant_count(result.fraction, heads_in_all)
    return f"{result.constants} · {result.order} · {count} of {heads_in_all} heads constant"
