"""From a study to its steps, in the order in which they can run."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from itertools import product
from types import MappingProxyType
from typing import TypeVar

from papa.encoders.reference import EncoderReference
from papa.spec import ConstantsSpec, Order, TaskSpec
from papa.spec.cells import Cell, Result, constant_count, partial_counts
from papa.spec.kinds import DERIVED, OF_DECODERS
from papa.spec.methods import HEAD_SCORES
from papa.spec.orders import is_label_free, needs_lambda, scored_by, without_name
from papa.spec.values import OPTIMAL, OUTPUTS, RESAMPLED, REUSED
from papa.study import costs
from papa.study.aggregate import Aggregate
from papa.study.average import Average
from papa.study.baseline import Baseline
from papa.study.constants import (
    Controls,
    Derived,
    Distances,
    Given,
    Matrices,
    MeanQK,
    OnTheFly,
    Outputs,
    ReusedBefore,
    Streamed,
)
from papa.study.inputs import StudyInputs, averaged_text
from papa.study.own import Answers, Own
from papa.study.probe import Probe
from papa.study.rank import Rank
from papa.study.results import StudyPart
from papa.study.score_heads import FrozenProbe, Ranking, ScoreHeads
from papa.study.step import Step
from papa.study.tokenise import Tokenise

_Of = TypeVar("_Of", bound=Step)


@dataclass(frozen=True)
class StudySteps:
    """A study's steps, each once and after those it reads, and its parts, encoder by encoder, task
    by task.
    """

    steps: tuple[Step, ...]
    parts: tuple[StudyPart, ...]

    @property
    def cells(self) -> dict[Cell, tuple[Probe | Own, ...]]:
        """The steps that score each cell."""
        return {cell: probes for part in self.parts for cell, probes in part.cells.items()}


def study_steps(inputs: StudyInputs) -> StudySteps:
    """The steps of a study; the last is the aggregation."""
    return _Builder(inputs).build()


class _Builder:
    def __init__(self, inputs: StudyInputs) -> None:
        self.study, self.inputs = inputs.study, inputs
        self.steps: dict[Step, Step] = {}

    def build(self) -> StudySteps:
        study = self.study
        parts = tuple(
            self._part(encoder, task) for encoder in self.inputs.encoders for task in study.tasks
        )
        flops = costs.AGGREGATING * sum(len(part.cells) for part in parts) * len(study.seeds)
        texts = {task.name: self._corpus(self.inputs.encoders[0], task) for task in study.tasks}
        self._once(Aggregate(f"aggregate · {study.name}", flops, study, parts, texts))
        return StudySteps(tuple(self.steps), parts)

    def _once(self, step: _Of) -> _Of:
        """The step, or its equal that was there before."""
        return self.steps.setdefault(step, step)  # type: ignore[return-value]

    def _name(self, encoder: EncoderReference, task: TaskSpec) -> str:
        return f"{self.inputs.labels[encoder]} · {task.name}"

    def _part(self, encoder: EncoderReference, task: TaskSpec) -> StudyPart:
        """Every combination of constants, orders and fractions of one encoder on one task."""
        study, label = self.study, self.inputs.labels[encoder]
        cells: dict[Cell, tuple[Probe | Own, ...]] = {}
        constants: dict[str, Step] = {}
        rankings: dict[str, Mapping[int, Ranking]] = {}
        for spec, order, fraction in product(study.constants, study.orders, study.fractions):
            cell = Cell(label, task.name, spec.label, order, fraction)
            probes = cells[cell] = self._probes(encoder, task, spec, cell)
            if matrices := probes[0].constants:
                constants[spec.label] = matrices
            if (method := scored_by(order)) and probes[0].rankings:
                rankings[method] = probes[0].rankings
        baseline = None if task.head == "own" else self._baseline(encoder, task)
        return StudyPart(label, encoder, task, cells, constants, rankings, baseline)

    def _corpus(
        self, encoder: EncoderReference, task: TaskSpec, masked: TaskSpec | None = None
    ) -> Tokenise:
        """The task's text; or, ``masked``, with words to restore."""
        name = f"tokenise · {self._name(encoder, task)}"
        flops = costs.tokenising_flops(self.inputs.sizes[task])
        name, task = (f"{name} · masked", masked) if masked else (name, task)
        return self._once(
            Tokenise(
                name, flops, encoder, task, self.study.layout, self.inputs.fingerprints[task.source]
            )
        )

    def _constants(
        self, encoder: EncoderReference, task: TaskSpec, spec: ConstantsSpec, seed: int
    ) -> Matrices | Outputs | Distances | OnTheFly:
        """The constants of a cell, before any training of their own."""
        where, kind = self._name(encoder, task), spec.start if spec.is_trained else spec.kind
        flops = costs.averaging_flops(encoder, self.inputs.sizes[task])
        text = (encoder, self._corpus(encoder, task))
        if spec.kind == RESAMPLED:
            name = f"outputs · {where} · {kind} · seed {seed}"
            return self._once(Outputs(name, 0.0, *text, task.slots, kind, seed))
        if spec.kind in OUTPUTS:
            kind = "mean_output" if spec.kind == OPTIMAL else spec.kind
            return self._once(
                Outputs(f"outputs · {where} · {kind}", flops, *text, task.slots, kind)
            )
        if kind == "mean_qk":
            return self._once(MeanQK(f"mean_qk · {where}", flops, *text, task.slots))
        if encoder.causal and kind == "relative":
            return self._once(Distances(f"relative · {where}", flops, *text))
        if kind in (*OF_DECODERS, REUSED):
            step = ReusedBefore if kind == REUSED else Streamed
            return self._once(step(spec.label, 0.0, spec.parameters))
        if own := self.inputs.matrices.get(kind):
            name = f"given · {self.inputs.labels[encoder]} · {kind}"
            return self._once(Given(name, 0.0, encoder, own.matrices, own.seen))
        if kind in DERIVED:
            average = self._average(encoder, task)
            name = f"derived · {where} · {spec.label}"
            return self._once(Derived(name, 0.0, encoder, average, kind, spec.parameters))
        if kind != "average":
            label = spec.label if kind == spec.kind else kind
            name = f"controls · {self.inputs.labels[encoder]} · {label} · S={task.slots}"
            return self._once(Controls(name, 0.0, encoder, kind, task.slots, spec.parameters))
        return self._average(encoder, averaged_text(task, spec))

    def _average(self, encoder: EncoderReference, text: TaskSpec) -> Average:
        size = self.inputs.sizes[text]
        name, flops = f"average · {self._name(encoder, text)}", costs.averaging_flops(encoder, size)
        shards = -(-size.train // self.study.execution.shard_rows)
        return self._once(
            Average(name, flops, encoder, self._corpus(encoder, text), text.slots, parts=shards)
        )

    def _rankings(
        self, encoder: EncoderReference, task: TaskSpec, order: Order | None
    ) -> Mapping[int, Ranking]:
        """What gives the scores that an order follows, by ranking seed, against the task's own
        average: one order for every kind of constants, so kinds meet on the same heads.

        For a probe, text without labels has its words masked and restored where a method needs
        labels. Streamed methods share steps, of one seed where seeds would draw nothing.
        """
        method = scored_by(order) if order else None
        if method is None:
            return {}
        study, ranking, size = self.study, self.study.ranking, self.inputs.sizes[task]
        name, average, masked = self._name(encoder, task), self._average(encoder, task), None
        if task.unlabelled and task.head == "probe" and not is_label_free(method):
            restored = {"kind": "mlm", "metric": "negative_log_perplexity"}
            masked = task.model_copy(update=restored)
        corpus = self._corpus(encoder, task, masked)
        task, scoring = masked or task, HEAD_SCORES.get(method)
        streamed = tuple(sorted(name for name in HEAD_SCORES if HEAD_SCORES[name].streamed))
        shared = method in streamed and ranking.rows is None
        seeds, heads = (
            ranking.seeds[:1] if shared else ranking.seeds,
            encoder.layers * encoder.heads,
        )
        asked = encoder, corpus, average, task, ranking
        found: dict[int, Ranking] = {}
        for seed in seeds:
            own = f" · seed {seed}" if len(seeds) > 1 else ""
            if scoring is None:
                flops = costs.ranking_flops(encoder, size, task, ranking)
                heads = encoder.layers * encoder.heads
                counts = sorted(set(partial_counts(study.fractions, heads).values()))
                sets = tuple(product(filter(needs_lambda, study.orders), counts))
                parts = costs.training_parts(size, task)
                found[seed] = Rank(f"rank · {name}{own}", flops, *asked, seed, sets, parts=parts)
                continue
            probe = None
            if task.head == "probe" and scoring.frozen_probe:
                flops = costs.frozen_probe_flops(encoder, size, task)
                what = f"frozen probe · {name}{own}"
                probe = self._once(FrozenProbe(what, flops, encoder, corpus, task, seed))
            valued = scoring.evaluations and scoring.frozen_probe
            found[seed] = ScoreHeads(
                f"scores · {name} · {'one pass' if scoring.streamed else method}{own}",
                costs.scoring_flops(encoder, size, task, ranking, method),
                *asked,
                streamed if scoring.streamed else (method,),
                seed,
                probe,
                parts=costs.valuing_parts(size, task, ranking) if valued else 1,
            )
        return {seed: self._once(step) for seed, step in found.items()}

    def _baseline(self, encoder: EncoderReference, task: TaskSpec) -> Baseline:
        """What the task's scores are worth."""
        study, corpus = self.study, self._corpus(encoder, task)
        name = f"baseline · {self._name(encoder, task)}"
        flops = costs.baseline_flops(encoder, self.inputs.sizes[task], task, study)
        asked = corpus, task, study.seeds, study.features
        return self._once(Baseline(name, flops, encoder, *asked, code=self.inputs.code.get(task)))

    def _probes(
        self, encoder: EncoderReference, task: TaskSpec, spec: ConstantsSpec, cell: Cell
    ) -> tuple[Probe | Own, ...]:
        """What scores a cell: one step for all seeds, or one per seed that has its own heads."""
        study, heads = self.study, encoder.layers * encoder.heads
        result, code = cell.result(heads), self.inputs.code.get(task)
        corpus = self._corpus(encoder, task)
        rankings = self._rankings(encoder, task, result.order)
        found: list[Probe | Own] = []
        # Where the order changes nothing it is drawn from nothing.
        draws = list(study.draws(result.order or "first_to_last").items())
        if result.constants and spec.kind == RESAMPLED:
            draws = [((seed,), draw) for seeds, draw in draws for seed in seeds]
        for seeds, draw in draws:
            constants = self._constants(encoder, task, spec, seeds[0]) if result.constants else None
            alone = f" · seed {seeds[0]}" if seeds != study.seeds else ""
            what = f"{self._name(encoder, task)} · {_condition(result, heads)}{alone}"
            if task.head == "own":
                order = without_name(result.order) if result.order else None
                constant = (order, constant_count(result.fraction, heads), rankings, draw)
                answers = self._answers(f"answers · {what}", encoder, task, constants, *constant)
                original = self._answers(
                    f"answers · {self._name(encoder, task)} · no constant head", encoder, task
                )
                found.append(
                    self._once(Own(f"own · {what}", 0.0, answers, original, task, seeds, code=code))
                )
                continue
            probe = Probe(
                f"probe · {what}",
                costs.probing_flops(encoder, self.inputs.sizes[task], task, study, len(seeds)),
                encoder,
                corpus,
                constants,
                task,
                result.order and without_name(result.order),
                constant_count(result.fraction, heads),
                rankings,
                draw,
                constants is not None and spec.is_trained,
                seeds,
                study.features,
                code=code,
            )
            found.append(self._once(probe))
        return tuple(found)

    def _answers(
        self,
        name: str,
        encoder: EncoderReference,
        task: TaskSpec,
        constants: Matrices | Outputs | Distances | OnTheFly | None = None,
        order: Order | None = None,
        count: int = 0,
        rankings: Mapping[int, Ranking] = MappingProxyType({}),
        draw: tuple[int, ...] = (),
    ) -> Answers:
        """What the model's own head answers; metrics on one text share it."""
        flops = costs.answering_flops(encoder, self.inputs.sizes[task])
        asked = self._corpus(encoder, task), constants, task, order, count, rankings, draw
        code = self.inputs.code.get(task)
        # A metric comes later.
        code = code if code and code.score else None
        return self._once(Answers(name, flops, encoder, *asked, code=code))


def _condition(result: Result, heads_in_all: int) -> str:
    """What is constant in the cells of a result."""
    if result.constants is None:
        return "no constant head"
    if result.order is None:
        return f"{result.constants} · every head constant"
    count = constant_count(result.fraction, heads_in_all)
    return f"{result.constants} · {result.order} · {count} of {heads_in_all} heads constant"
