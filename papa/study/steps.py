"""From a study to its steps, in the order in which they can run."""

from __future__ import annotations

import sys
from collections.abc import Mapping
from dataclasses import dataclass, replace
from itertools import product
from typing import Any, TypeVar

from papa.corpora.rows import order_of_rows
from papa.encoders.reference import EncoderReference
from papa.spec import ConstantsSpec, Order, TaskSpec
from papa.spec.cells import Cell, Result, constant_count, partial_counts
from papa.spec.kinds import DERIVED, OF_DECODERS
from papa.spec.methods import HEAD_SCORES
from papa.spec.orders import is_label_free, needs_lambda, scored_by, without_name
from papa.spec.study import CONTROLLED
from papa.spec.values import OPTIMAL, OUTPUTS, RESAMPLED, REUSED
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
    study, first = inputs.study, inputs.encoders[0]
    steps: dict[Step, Step] = {}
    parts = tuple(
        _Builder(inputs, encoder, task, steps).part()
        for encoder in inputs.encoders
        for task in study.tasks
    )
    texts = {part.task.name: part.corpus for part in parts if part.encoder == first}
    report = Aggregate(f"aggregate · {study.name}", study, parts, texts)
    return StudySteps((*steps, report), parts)


class _Builder:
    """The steps of one encoder on one task, beside those that a study has so far."""

    def __init__(
        self,
        inputs: StudyInputs,
        encoder: EncoderReference,
        task: TaskSpec,
        steps: dict[Step, Step],
    ) -> None:
        self.inputs, self.study, self.steps = inputs, inputs.study, steps
        self.encoder, self.task = encoder, task
        self.label, self.heads = inputs.labels[encoder], encoder.layers * encoder.heads
        self.where = f"{self.label} · {task.name}"
        self.code = inputs.code.get(task)

    def once(self, step: _Of) -> _Of:
        """The step, or its equal that was there before."""
        return self.steps.setdefault(step, step)  # type: ignore[return-value]

    def part(self) -> StudyPart:
        """Every combination of constants, orders and fractions."""
        study, task = self.study, self.task
        cells: dict[Cell, tuple[Probe | Own, ...]] = {}
        constants: dict[str, Step] = {}
        rankings: dict[str, Mapping[int, Ranking]] = {}
        for spec, order, fraction in product(study.constants, study.orders, study.fractions):
            cell = Cell(self.label, task.name, spec.label, order, fraction)
            probes = cells[cell] = self.probes(spec, cell)
            if matrices := probes[0].constants:
                constants[spec.label] = matrices
            if (method := scored_by(order)) and probes[0].rankings:
                rankings[method] = probes[0].rankings
        baseline = None if task.head == "own" else self.baseline()
        controls = self.controls(rankings.get("lambda", {}))
        return StudyPart(
            self.label, self.encoder, task, cells, constants, rankings, baseline, controls
        )

    def corpus(self, text: TaskSpec, masked: TaskSpec | None = None) -> Tokenise:
        """A text; or, ``masked``, with words to restore."""
        name = f"tokenise · {self.label} · {text.name}{' · masked' if masked else ''}"
        source = self.inputs.fingerprints[text.source]
        layout = self.study.layout
        return self.once(Tokenise(name, self.encoder, masked or text, layout, source))

    def average(self, text: TaskSpec) -> Average:
        """The average over a text."""
        name = f"average · {self.label} · {text.name}"
        return self.once(Average(name, self.encoder, self.corpus(text), text.slots))

    def constants(
        self, spec: ConstantsSpec, seed: int
    ) -> Matrices | Outputs | Distances | OnTheFly:
        """The constants of a cell, before any training of their own."""
        where, kind = self.where, spec.start if spec.is_trained else spec.kind
        encoder, slots = self.encoder, self.task.slots
        text = encoder, self.corpus(self.task)
        if spec.kind == RESAMPLED:
            name = f"outputs · {where} · {kind} · seed {seed}"
            return self.once(Outputs(name, *text, slots, kind, seed))
        if spec.kind in OUTPUTS:
            kind = "mean_output" if spec.kind == OPTIMAL else spec.kind
            return self.once(Outputs(f"outputs · {where} · {kind}", *text, slots, kind))
        if kind == "mean_qk":
            return self.once(MeanQK(f"mean_qk · {where}", *text, slots))
        if encoder.causal and kind == "relative":
            return self.once(Distances(f"relative · {where}", *text))
        if kind in (*OF_DECODERS, REUSED):
            step = ReusedBefore if kind == REUSED else Streamed
            return self.once(step(spec.label, spec.parameters))
        if own := self.inputs.matrices.get(kind):
            name = f"given · {self.label} · {kind}"
            return self.once(Given(name, encoder, own.matrices, own.seen))
        if kind in DERIVED:
            name, average = f"derived · {where} · {spec.label}", self.average(self.task)
            return self.once(Derived(name, encoder, average, kind, spec.parameters))
        if kind != "average":
            label = spec.label if kind == spec.kind else kind
            name = f"controls · {self.label} · {label} · S={slots}"
            return self.once(Controls(name, encoder, kind, slots, spec.parameters))
        return self.average(averaged_text(self.task, spec))

    def rankings(self, order: Order | None) -> Mapping[int, Ranking]:
        """What gives the scores that an order follows, by ranking seed, against the task's own
        average: one order for every kind of constants, so kinds meet on the same heads.

        For a probe, text without labels has its words masked and restored where a method needs
        labels. Streamed methods share steps, of one seed where seeds would draw nothing.
        """
        method = scored_by(order) if order else None
        if method is None:
            return {}
        encoder, task, ranking, masked = self.encoder, self.task, self.study.ranking, None
        average = self.average(task)
        if task.unlabelled and task.head == "probe" and not is_label_free(method):
            restored = {"kind": "mlm", "metric": "negative_log_perplexity"}
            masked = task.model_copy(update=restored)
        corpus, task = self.corpus(task, masked), masked or task
        scoring = HEAD_SCORES.get(method)
        streamed = tuple(sorted(name for name in HEAD_SCORES if HEAD_SCORES[name].streamed))
        shared = method in streamed and ranking.rows is None
        seeds = ranking.seeds[:1] if shared else ranking.seeds
        found: dict[int, Ranking] = {}
        for seed in seeds:
            own = f" · seed {seed}" if len(seeds) > 1 else ""
            asked = encoder, corpus, average, task, ranking
            if scoring is None:
                counts = sorted(set(partial_counts(self.study.fractions, self.heads).values()))
                sets = tuple(product(filter(needs_lambda, self.study.orders), counts))
                name = f"rank · {self.where}{own}"
                found[seed] = Rank(name, *asked, seed, sets)
                continue
            probe = None
            if task.head == "probe" and scoring.frozen_probe:
                name = f"frozen probe · {self.where}{own}"
                probe = self.once(FrozenProbe(name, encoder, corpus, task, seed))
            found[seed] = ScoreHeads(
                f"scores · {self.where} · {'one pass' if scoring.streamed else method}{own}",
                *asked,
                streamed if scoring.streamed else (method,),
                seed,
                probe,
            )
        return {seed: self.once(step) for seed, step in found.items()}

    def controls(self, rankings: Mapping[int, Ranking]) -> Mapping[int, Rank]:
        """The same trainings of λ on shuffled labels, where there are labels, and seeds enough
        have rows of their own as far as the study file tells.
        """
        task, ranking = self.task, self.study.ranking
        count = task.train_rows or sys.maxsize
        orders = {order_of_rows(count, ranking.rows, seed) for seed in ranking.seeds}
        shared = len(ranking.seeds) < CONTROLLED or len(orders) > 1 or None in orders
        if shared or not ranking.control or task.columns.label is None or task.with_itself:
            return {}
        return {
            seed: self.once(replace(step, name=f"{step.name} · shuffled labels", shuffled=True))
            for seed, step in rankings.items()
            if isinstance(step, Rank)
        }

    def baseline(self) -> Baseline:
        """What the task's scores are worth."""
        name, study = f"baseline · {self.where}", self.study
        asked = self.encoder, self.corpus(self.task), self.task, study.seeds, study.features
        return self.once(Baseline(name, *asked, code=self.code))

    def probes(self, spec: ConstantsSpec, cell: Cell) -> tuple[Probe | Own, ...]:
        """What scores a cell: one step for all seeds, or one per seed that has its own heads."""
        study, result, corpus = self.study, cell.result(self.heads), self.corpus(self.task)
        order = result.order and without_name(result.order)
        count, rankings = constant_count(result.fraction, self.heads), self.rankings(result.order)
        # Where the order changes nothing it is drawn from nothing.
        draws = list(study.draws(result.order or "first_to_last").items())
        if result.constants and spec.kind == RESAMPLED:
            draws = [((seed,), draw) for seeds, draw in draws for seed in seeds]
        found: list[Probe | Own] = []
        for seeds, draw in draws:
            constants = self.constants(spec, seeds[0]) if result.constants else None
            alone = f" · seed {seeds[0]}" if seeds != study.seeds else ""
            what = f"{self.where} · {_condition(result, self.heads)}{alone}"
            of_heads = constants, self.task, order, count, rankings, draw
            if self.task.head == "own":
                answers = self.answers(what, *of_heads)
                original = self.answers(
                    f"{self.where} · no constant head", None, self.task, None, 0, {}, ()
                )
                asked = answers, original, self.task, seeds
                found.append(self.once(Own(f"own · {what}", *asked, code=self.code)))
                continue
            probe = Probe(
                f"probe · {what}",
                self.encoder,
                corpus,
                *of_heads,
                constants is not None and spec.is_trained,
                seeds,
                study.features,
                code=self.code,
            )
            found.append(self.once(probe))
        return tuple(found)

    def answers(self, what: str, *of_heads: Any) -> Answers:
        """What the model's own head answers; metrics on one text share it."""
        # A metric comes later.
        code = self.code if self.code and self.code.score else None
        text = self.encoder, self.corpus(self.task)
        return self.once(Answers(f"answers · {what}", *text, *of_heads, code=code))


def _condition(result: Result, heads_in_all: int) -> str:
    """What is constant in the cells of a result."""
    if result.constants is None:
        return "no constant head"
    if result.order is None:
        return f"{result.constants} · every head constant"
    count = constant_count(result.fraction, heads_in_all)
    return f"{result.constants} · {result.order} · {count} of {heads_in_all} heads constant"
