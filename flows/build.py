"""From a study to its steps."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from itertools import product
from typing import TypeVar

from flows import costs
from flows.inputs import StudyInputs, laid_out_like
from papa.encoders.reference import EncoderReference
from papa.ranking import drawn_from, needs_lambda
from papa.spec import ConstantsSpec, TaskSpec
from papa.spec.cells import Cell, Result, constant_count, partial_counts
from tasks.aggregate import Aggregate, Averaged
from tasks.average import Average
from tasks.baseline import Baseline
from tasks.controls import Controls
from tasks.mlflow_parents import ParentRun, ProbedParent
from tasks.mlflow_texts import texts_of
from tasks.probe import Probe
from tasks.rank import Rank
from tasks.results import ProbedCell
from tasks.step import Step
from tasks.tokenise import Tokenise
from tasks.track import Track

_Of = TypeVar("_Of", bound=Step)


@dataclass(frozen=True)
class StudySteps:
    """A study's steps.

    Attributes:
        steps: each once and after those it reads; the last two are the aggregation and the tracking.
        cells: what scores each cell, encoder by encoder, task by task: one step for all seeds, or one per seed where
            each has its own constant heads. Cells that share a result share its steps.
        parents: each encoder on each task, as MLflow shows it, and its steps that train for all of its cells.
    """

    steps: tuple[Step, ...]
    cells: Mapping[Cell, tuple[Probe, ...]]
    parents: Mapping[ParentRun, tuple[Step, ...]]


def study_steps(inputs: StudyInputs, tracking_address: str) -> StudySteps:
    """The steps of a study.

    Args:
        inputs: the study, its encoders and the content of its sources.
        tracking_address: where MLflow keeps its runs.
    """
    return _Builder(inputs).build(tracking_address)


@dataclass(frozen=True)
class _Part:
    """One encoder on one task."""

    probed: ProbedParent
    cells: Mapping[Cell, tuple[Probe, ...]]
    baseline: Baseline

    @property
    def place(self) -> tuple[str, str]:
        return self.probed.parent.place

    @property
    def averaged(self) -> list[Averaged]:
        """Its average, where a cell uses it."""
        parent = self.probed.parent
        averages = [step for label, step in self.probed.constants.items() if label == "average"]
        return [Averaged(parent.encoder_label, parent.encoder, parent.task, step) for step in averages]


class _Builder:
    def __init__(self, inputs: StudyInputs) -> None:
        self.study, self.inputs = inputs.study, inputs
        self.steps: dict[Step, Step] = {}

    def build(self, tracking_address: str) -> StudySteps:
        study = self.study
        parts = [self._part(encoder, task) for encoder in self.inputs.encoders for task in study.tasks]
        cells = {cell: probes for part in parts for cell, probes in part.cells.items()}
        rows = len(cells) * len(study.seeds)
        aggregate = self._once(
            Aggregate(
                f"aggregate · {study.name}",
                costs.aggregating_flops(rows),
                study,
                tuple(cell for part in parts for cell in part.probed.cells),
                {part.place: part.baseline for part in parts},
                {task.name: self._corpus(self.inputs.encoders[0], task) for task in study.tasks},
                tuple(averaged for part in parts for averaged in part.averaged),
                {part.place: part.probed.rankings for part in parts if part.probed.rankings},
            )
        )
        probed, flops = tuple(part.probed for part in parts), costs.tracking_flops(rows)
        self._once(Track(f"track · {study.name}", flops, study, aggregate, probed, tracking_address))
        parents = {one.probed.parent: (*one.probed.rankings.values(), one.baseline) for one in parts}
        return StudySteps(tuple(self.steps), cells, parents)

    def _once(self, step: _Of) -> _Of:
        """The step, or its equal that was there before."""
        return self.steps.setdefault(step, step)  # type: ignore[return-value]

    def _name(self, encoder: EncoderReference, task: TaskSpec) -> str:
        return f"{self.inputs.encoder_label(encoder)} · {task.name}"

    def _part(self, encoder: EncoderReference, task: TaskSpec) -> _Part:
        """Every combination of constants, orders and fractions of one encoder on one task."""
        study, label = self.study, self.inputs.encoder_label(encoder)
        cells: dict[Cell, tuple[Probe, ...]] = {}
        constants: dict[str, Step] = {}
        for spec, order, fraction in product(study.constants, study.orders, study.fractions):
            cell = Cell(label, task.name, spec.label, order, fraction)
            cells[cell] = self._probes(encoder, task, spec, cell)
            if matrices := cells[cell][0].constants:
                constants[spec.label] = matrices
        probes = [probe for probes in cells.values() for probe in probes]
        rankings: Mapping[int, Rank] = next((probe.rankings for probe in probes if probe.rankings), {})
        texts = texts_of(study, task, self.inputs.fingerprint, ranked=bool(rankings))
        parent = ParentRun(label, encoder, task, texts)
        probed = tuple(ProbedCell(cell, task.metric, probes) for cell, probes in cells.items())
        return _Part(ProbedParent(parent, probed, constants, rankings), cells, self._baseline(encoder, task))

    def _corpus(self, encoder: EncoderReference, task: TaskSpec) -> Tokenise:
        name, flops = f"tokenise · {self._name(encoder, task)}", costs.tokenising_flops(self.inputs.size(task))
        return self._once(Tokenise(name, flops, encoder, task, self.study.layout, self.inputs.fingerprint(task)))

    def _constants(self, encoder: EncoderReference, task: TaskSpec, spec: ConstantsSpec) -> Average | Controls:
        """The constant matrices of a cell, before any training of their own."""
        kind = spec.start if spec.kind == "trained" else spec.kind
        if kind != "average":
            name = f"controls · {self.inputs.encoder_label(encoder)} · {kind} · S={task.slots}"
            return self._once(Controls(name, 0.0, encoder, kind, task.slots))
        text = laid_out_like(task, spec.corpus) if spec.corpus else task
        size = self.inputs.size(text)
        name, flops = f"average · {self._name(encoder, text)}", costs.averaging_flops(encoder, size)
        shards = -(-size.train // self.study.execution.shard_rows)
        return self._once(Average(name, flops, encoder, self._corpus(encoder, text), task.slots, parts=shards))

    def _rankings(self, encoder: EncoderReference, task: TaskSpec) -> dict[int, Rank]:
        """λ of each ranking seed against the task's own average: one order for every kind of constants, so kinds meet
        on the same heads.
        """
        corpus, average = self._corpus(encoder, task), self._constants(encoder, task, ConstantsSpec(kind="average"))
        study, ranking, size = self.study, self.study.ranking, self.inputs.size(task)
        counts = sorted(set(partial_counts(study.fractions, encoder.layers * encoder.heads).values()))
        sets = tuple((order, count) for order in study.orders if needs_lambda(order) for count in counts)
        flops, parts = costs.ranking_flops(encoder, size, task, ranking), costs.training_parts(size, task)
        found = {}
        for seed in ranking.seeds:
            name = f"rank · {self._name(encoder, task)}" + (f" · seed {seed}" if len(ranking.seeds) > 1 else "")
            step = Rank(name, flops, encoder, corpus, average, task, ranking, seed, sets, parts=parts)
            found[seed] = self._once(step)
        return found

    def _baseline(self, encoder: EncoderReference, task: TaskSpec) -> Baseline:
        """What the task's scores are worth."""
        study, corpus = self.study, self._corpus(encoder, task)
        name = f"baseline · {self._name(encoder, task)}"
        flops = costs.baseline_flops(encoder, self.inputs.size(task), task, study)
        return self._once(Baseline(name, flops, encoder, corpus, task, study.seeds, study.features))

    def _probes(self, encoder: EncoderReference, task: TaskSpec, spec: ConstantsSpec, cell: Cell) -> tuple[Probe, ...]:
        """What scores a cell: one step for all seeds, or one per seed where each has its own constant heads."""
        study, heads = self.study, encoder.layers * encoder.heads
        result = cell.result(heads)
        corpus = self._corpus(encoder, task)
        constants = self._constants(encoder, task, spec) if result.constants else None
        rankings = self._rankings(encoder, task) if result.order and needs_lambda(result.order) else {}
        found = []
        # Where the order changes nothing it is drawn from nothing.
        for seeds, draw in drawn_from(result.order or "first_to_last", study.ranking.seeds[0], study.seeds).items():
            alone = f" · seed {seeds[0]}" if draw else ""
            probe = Probe(
                f"probe · {self._name(encoder, task)} · {_condition(result, heads)}{alone}",
                costs.probing_flops(encoder, self.inputs.size(task), task, study, len(seeds)),
                encoder,
                corpus,
                constants,
                task,
                result.order,
                constant_count(result.fraction, heads),
                rankings,
                draw,
                constants is not None and spec.kind == "trained",
                seeds,
                study.features,
            )
            found.append(self._once(probe))
        return tuple(found)


def _condition(result: Result, heads_in_all: int) -> str:
    """What is constant in the cells of a result."""
    if result.constants is None:
        return "no constant head"
    if result.order is None:
        return f"{result.constants} · every head constant"
    count = constant_count(result.fraction, heads_in_all)
    return f"{result.constants} · {result.order} · {count} of {heads_in_all} heads constant"
