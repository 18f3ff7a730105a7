"""The paper's pipeline, from a study to its steps. Every key is known here, and nothing runs.

For each encoder and task: tokenise → average → rank heads by λ or another method → a cell for each
substitute, head order and fraction, which a probe or the native head scores → baselines; in the
end: aggregate. The fraction is the share of heads that stay input-dependent: the first heads of the
order become constant, the others stay. Steps with equal keys are one step.
"""

from __future__ import annotations

import sys
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
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
from papa.spec.study import CONTROLLED
from papa.spec.substitutes import entry_of
from papa.spec.task import UNLABELLED_METRICS, is_custom_metric
from papa.tasks.aggregate import aggregate, command_line
from papa.tasks.average import average
from papa.tasks.cell import ConstantHeads
from papa.tasks.inputs import StudyInputs
from papa.tasks.native_head import answer, one_answer, score_answers
from papa.tasks.probe import baseline, probe
from papa.tasks.rank import score_heads, train_frozen_probe, train_lambda
from papa.tasks.results import PairSteps
from papa.tasks.step import Step
from papa.tasks.substitutes import (
    SubstituteSource,
    average_by_distance,
    constant_outputs,
    supplied_matrices,
)
from papa.tasks.sweep import METHOD, sweep_heads
from papa.tasks.tokenise import tokenise

_Spec = TypeVar("_Spec", bound=BaseModel)


@dataclass(frozen=True)
class Pipeline:
    """The steps of a study.

    Attributes:
        steps: Each once and after its inputs; the last one is ``aggregate``.
        pairs: The same steps by what they are for, an entry for each encoder and task.
    """

    steps: tuple[Step, ...]
    pairs: tuple[PairSteps, ...]


def build_pipeline(inputs: StudyInputs) -> Pipeline:
    """Build the steps of a study.

    Args:
        inputs: The study with its encoders and sources resolved.
    """
    study = inputs.study
    steps: dict[Step, Step] = {}
    pairs: list[PairSteps] = []
    for encoder, task in product(inputs.encoders, study.tasks):
        pair = _PairBuilder(inputs, encoder, task, steps)
        cells: dict[Cell, tuple[Step, ...]] = {}
        for substitute, order, fraction in product(study.substitutes, study.orders, study.keep):
            cell = Cell(pair.label, task.name, substitute.label, order, fraction)
            cells[cell] = pair.score_cell(substitute, cell)
        pairs.append(pair.finish(cells))
    paper_digest = sha256_of_file(study.reference) if study.reference else None
    invocation = (command_line(sys.argv), psutil.Process().create_time())
    report = aggregate(f"aggregate · {study.name}", study, tuple(pairs), paper_digest, invocation)
    return Pipeline(steps=(*steps, report), pairs=tuple(pairs))


@dataclass
class _PairBuilder:
    """The steps of one encoder on one task, beside the ``steps`` that the study has so far."""

    inputs: StudyInputs
    encoder: EncoderReference
    task: TaskSpec
    steps: dict[Step, Step]
    rankings: dict[str, Mapping[int, Step]] = field(default_factory=dict)
    substitutes: dict[str, SubstituteSource] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self.study = self.inputs.study
        self.label = self.inputs.labels[self.encoder]
        self.heads = self.encoder.layers * self.encoder.heads
        self.title = f"{self.label} · {self.task.name}"
        self.code = self.inputs.code.get(self.task)
        self.text = self.tokenise(self.task)

    def add(self, step: Step) -> Step:
        """Add a step to the study; return it, or the equal one that was there before."""
        return self.steps.setdefault(step, step)

    def tokenise(self, text: TaskSpec) -> Step:
        """A text in slots. Of the encoder it depends on the tokenizer alone."""
        tokenizer = replace(
            self.encoder, digest="", layers=0, heads=0, width=0, precision="float32"
        )
        settings = ["source", "columns", "labels", "train_rows", "validation_rows", "sample_seed"]
        if text.kind == "mlm":
            settings.append("mask_seed")
        # How rows are read depends on whether a metric needs labels, and on nothing else of it.
        metric = "accuracy" if is_custom_metric(text.metric) else text.metric
        if metric in UNLABELLED_METRICS or text.kind == "causal":
            metric = "agreement"
        return self.add(
            tokenise(
                f"tokenise · {self.label} · {text.name}",
                tokenizer,
                _task_with(text, *settings, "validation_slots", metric=metric),
                self.study.layout,
                self.inputs.fingerprints[text.source],
            )
        )

    def average(self, text: TaskSpec) -> Step:
        """The encoder's average attention over a text."""
        name = f"average · {self.label} · {text.name}"
        return self.add(average(name, self.encoder, self.tokenise(text), text.slots))

    def substitute(self, spec: ConstantsSpec, seed: int) -> SubstituteSource:
        """What takes attention's place, before any training of its own."""
        kind = spec.initial_kind
        entry = entry_of(kind)
        if entry.origin in ("slots", "attention"):
            return SubstituteSource(kind, spec.parameters)
        if entry.origin == "outputs":
            name = f"constant_outputs · {self.title} · {kind}"
            source = constant_outputs(
                f"{name} · seed {seed}" if entry.drawn else name,
                self.encoder,
                self.text,
                self.task.slots,
                kind,
                seed if entry.drawn else None,
            )
        elif entry.is_by_distance and self.encoder.causal:
            name = f"average_by_distance · {self.title}"
            source = average_by_distance(name, self.encoder, self.text)
        elif kind in self.inputs.matrices:
            name = f"supplied_matrices · {self.label} · {kind}"
            source = supplied_matrices(name, self.encoder, self.inputs.matrices[kind])
        else:
            source = self.average(self._averaged_text(spec))
        return SubstituteSource(kind, spec.parameters, self.add(source))

    def _averaged_text(self, spec: ConstantsSpec) -> TaskSpec:
        """The text that an average is over: the task's own, another one, or a sample of either."""
        text = (spec.corpus or self.task).model_copy(update={"slots": self.task.slots})
        if spec.rows is None:
            return text
        sample = {"name": f"{text.name}-{spec.rows}-rows", "train_rows": spec.rows}
        return text.model_copy(update=sample)

    def rank(self, order: Order) -> Mapping[int, Step]:
        """What computes the head scores that an order follows, by ranking seed.

        All substitutes share one order, by the task's own average, so that they are compared on
        the same heads. Methods that are means over rows of attention share one pass.
        """
        method = scored_by(order)
        if method is None:
            return {}
        if method == "lambda":
            return {seed: self._train_lambda(seed) for seed in self.study.ranking_seeds}
        # A pass over all rows draws nothing: one serves all seeds.
        draws_nothing = HEAD_SCORES[method].streamed and self.study.ranking.rows is None
        seeds = self.study.ranking_seeds[:1] if draws_nothing else self.study.ranking_seeds
        return {seed: self._score_heads(method, seed, draws_nothing) for seed in seeds}

    def _train_lambda(self, seed: int) -> Step:
        ranking = self.study.ranking
        epochs = ranking.epochs or self.task.probe.epochs
        learning_rate = ranking.learning_rate or self.task.probe.learning_rate
        probe_spec = self.task.probe.model_copy(
            update={"epochs": epochs, "learning_rate": learning_rate}
        )
        return self.add(
            train_lambda(
                self._name_by_seed("train_lambda", seed, self.study.ranking_seeds),
                self.encoder,
                self.text,
                self.average(self.task),
                _loss_of(self.task, probe=probe_spec),
                _only(ranking, "rows", epochs=epochs, learning_rate=learning_rate),
                seed,
                self._seeds_of_native(),
            )
        )

    def _score_heads(self, name: str, seed: int, draws_nothing: bool) -> Step:
        ranking = self.study.ranking
        method = HEAD_SCORES[name]
        streamed = tuple(sorted(key for key in HEAD_SCORES if HEAD_SCORES[key].streamed))
        frozen_probe: Step | None = None
        if method.label_free:
            loss = _task_with(self.task, *(["probe"] if "epochs" in method.reads else []))
        else:
            loss = _loss_of(self.task, probe=self.task.probe)
            if self.task.head == "probe" and method.frozen_probe:
                frozen_probe = self.add(
                    train_frozen_probe(
                        self._name_by_seed("train_frozen_probe", seed, self.study.ranking_seeds),
                        self.encoder,
                        self.text,
                        loss,
                        seed,
                    )
                )
        seeds = self.study.ranking_seeds[:1] if draws_nothing else self.study.ranking_seeds
        if name == METHOD and self.task.head == "native":
            return self.add(
                sweep_heads(
                    self._name_by_seed("sweep_heads", seed, seeds),
                    self.encoder,
                    self.text,
                    self.average(self.task),
                    loss,
                    _only(ranking, "rows", *method.reads),
                    seed,
                    self._seeds_of_native(),
                )
            )
        what = "all in one pass" if method.streamed else name
        return self.add(
            score_heads(
                self._name_by_seed(f"score_heads · {what}", seed, seeds),
                self.encoder,
                self.text,
                self.average(self.task),
                loss,
                _only(ranking, "rows", *method.reads),
                streamed if method.streamed else (name,),
                None if draws_nothing else seed,
                frozen_probe,
                () if method.label_free else self._seeds_of_native(),
            )
        )

    def _seeds_of_native(self) -> tuple[int, ...]:
        """The ranking seeds, where they divide the rows of a native head among them."""
        divides = self.task.head == "native" and self.study.ranking.rows is None
        return self.study.ranking_seeds if divides else ()

    def _name_by_seed(self, what: str, seed: int, seeds: tuple[int, ...]) -> str:
        name = f"{what} · {self.title}"
        return f"{name} · seed {seed}" if len(seeds) > 1 else name

    def shuffled_labels(self, rankings: Mapping[int, Step]) -> Mapping[int, Step]:
        """λ once more on shuffled labels, as a control; {} where it would say nothing.

        It compares seeds that observe different rows, of which there must be enough.
        """
        ranking = self.study.ranking
        rows = self.task.train_rows or sys.maxsize
        orders = {order_of_rows(rows, ranking.rows, seed) for seed in self.study.ranking_seeds}
        # Seeds draw different rows where all take a part of one order of the rows.
        share_rows = len(orders) > 1 or None in orders
        has_labels = self.task.columns.label is not None or self.task.kind in ("mlm", "causal")
        if (
            not ranking.control
            or share_rows
            or len(self.study.ranking_seeds) < CONTROLLED
            or not has_labels
            or self.task.with_itself
        ):
            return {}
        return {
            seed: self.add(step.changed(f"{step.name} · shuffled labels", shuffled=True))
            for seed, step in rankings.items()
        }

    def score_cell(self, substitute: ConstantsSpec, cell: Cell) -> tuple[Step, ...]:
        """What scores a cell: a step for each seed. A native head, which no seed changes, has one
        for all seeds with the same constant heads.
        """
        # Without a constant head the substitute changes nothing, with all heads the order.
        result = cell.result(self.heads)
        order = without_name(result.order) if result.order else None
        rankings = self.rank(result.order) if result.order else {}
        draws = draws_of(self.study, result.order or "first_to_last")
        is_drawn = bool(result.constants) and entry_of(substitute.kind).drawn
        if self.task.head == "probe" or is_drawn:
            draws = {(seed,): draw for seeds, draw in draws.items() for seed in seeds}
        steps: list[Step] = []
        for seeds, draw in draws.items():
            heads = ConstantHeads(
                size=(self.encoder.layers, self.encoder.heads),
                substitute=self.substitute(substitute, seeds[0]) if result.constants else None,
                order=order,
                count=constant_count(result.fraction, self.heads),
                rankings=rankings,
                draw=draw,
            )
            if heads.substitute:
                self.substitutes.setdefault(substitute.label, heads.substitute)
            name = f"{self.title} · {_condition(result, self.heads)}"
            if seeds != self.study.probe_seeds:
                name = f"{name} · seed {seeds[0]}"
            if self.task.head == "native":
                steps.append(self._score_native_head(name, heads, seeds))
            else:
                steps.append(self._score_probe(name, heads, seeds, substitute))
        if rankings and (method := scored_by(cell.order)):
            self.rankings[method] = rankings
        return tuple(steps)

    def _score_probe(
        self, name: str, heads: ConstantHeads, seeds: tuple[int, ...], substitute: ConstantsSpec
    ) -> Step:
        return self.add(
            probe(
                f"probe · {name}",
                self.encoder,
                self.text,
                heads,
                self._scored_task("probe"),
                heads.substitute is not None and substitute.is_trained,
                seeds,
                self.study.features,
                self.code,
            )
        )

    def _score_native_head(self, name: str, heads: ConstantHeads, seeds: tuple[int, ...]) -> Step:
        return self.add(
            score_answers(
                f"score_answers · {name}",
                self.text,
                heads,
                self._answer(name, heads),
                self._answer(f"{self.title} · no constant head", ConstantHeads(heads.size)),
                self._scored_task("labels", columns=_label_column(self.task)),
                seeds,
                self.code,
            )
        )

    def _answer(self, name: str, heads: ConstantHeads) -> Step:
        """What the native head answers; all metrics of the text share it."""
        metric = "cosine" if self.task.of_embeddings else "agreement"
        columns = _label_column(self.task)
        task = _task_with(self.task, "head", "labels", columns=columns, metric=metric)
        code = self.code if self.code and self.code.score else None
        return self.add(answer(f"answer · {name}", self.encoder, self.text, heads, task, code))

    def baselines(self) -> tuple[Step, ...]:
        """What scores are compared with: a step for each seed of a probe; of a native head, where
        labels are scored, always one answer.
        """
        if self.task.head == "probe":
            return tuple(self._baseline(seed) for seed in self.study.probe_seeds)
        has_metric = self.code is not None and self.code.metric is not None
        if self.task.columns.label is None or (self.task.with_itself and not has_metric):
            return ()
        name = f"one_answer · {self.title}"
        return (self.add(one_answer(name, self.text, self._scored_task(), self.code)),)

    def _baseline(self, seed: int) -> Step:
        return self.add(
            baseline(
                self._name_by_seed("baseline", seed, self.study.probe_seeds),
                self.encoder,
                self.text,
                self._scored_task("probe"),
                (seed,),
                self.study.features,
                self.code,
            )
        )

    def _scored_task(self, *settings: str, **values: Any) -> TaskSpec:
        """What of the task decides a score."""
        return _task_with(self.task, "metric", "positive", *settings, **values)

    def finish(self, cells: Mapping[Cell, tuple[Step, ...]]) -> PairSteps:
        """The steps of the pair, with its baselines and its control."""
        return PairSteps(
            encoder_label=self.label,
            encoder=self.encoder,
            task=self.task,
            text=self.text,
            cells=cells,
            substitutes=self.substitutes,
            rankings=self.rankings,
            baselines=self.baselines(),
            controls=self.shuffled_labels(self.rankings.get("lambda", {})),
            frozen_probes=tuple(
                frozen_probe
                for steps_by_seed in self.rankings.values()
                for step in steps_by_seed.values()
                if (frozen_probe := step.arguments.get("frozen_probe"))
            ),
        )


def _condition(result: Cell, heads_in_all: int) -> str:
    """What is constant in the cells of a result, in words."""
    if not result.constants:
        return "no constant head"
    if not result.order:
        return f"{result.constants} · every head constant"
    count = constant_count(result.fraction, heads_in_all)
    return f"{result.constants} · {result.order} · {count} of {heads_in_all} heads constant"


def _only(model: _Spec, *names: str, **values: Any) -> _Spec:
    """Return a specification that has these settings alone.

    A stage gets no more of a specification than it uses, so nothing else can be in its result, or
    in its key: to read another setting is an AttributeError.
    """
    settings = {**{name: getattr(model, name) for name in names}, **values}
    reduced = type(model).model_construct(**settings)
    for default in vars(reduced).keys() - settings:
        del vars(reduced)[default]
    return reduced


def _task_with(task: TaskSpec, *names: str, **values: Any) -> TaskSpec:
    """A task with these settings alone; it keeps its kind, its slots, and its name for messages."""
    return _only(task, "name", "kind", "slots", *names, **values)


def _loss_of(task: TaskSpec, **values: Any) -> TaskSpec:
    """What of a task decides a loss: all metrics that are trained alike are one."""
    metric = "accuracy"
    if task.of_embeddings:
        metric = "cosine"
    elif task.with_itself:
        metric = "agreement"
    elif task.regression:
        metric = "spearman"
    return _task_with(task, "head", "labels", columns=_label_column(task), metric=metric, **values)


def _label_column(task: TaskSpec) -> Columns:
    """Whether a task has labels, whatever their column is called."""
    return _only(task.columns, label="label" if task.columns.label else None)
