"""From a study to its graph."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Mapping, Sequence
from dataclasses import dataclass
from itertools import product

from flows import costs
from flows.graph import Graph, Node
from flows.inputs import StudyInputs, laid_out_like
from papa.encoders.reference import EncoderReference
from papa.ranking import drawn_from, head_order, needs_lambda
from papa.spec import ConstantsSpec, Order, StudySpec, TaskSpec
from papa.spec.cells import Cell, Result, constant_count, constant_heads, partial_counts
from papa.storage.artifacts import ArtifactReference
from tasks.aggregate import Aggregate, Averaged
from tasks.average import Average
from tasks.baseline import Baseline
from tasks.controls import Controls
from tasks.mlflow_parents import ParentRun, ScoredParent
from tasks.mlflow_texts import texts_of
from tasks.probe import Probe
from tasks.rank import Rank, read_lambda
from tasks.results import ScoredCell
from tasks.step import Step
from tasks.tokenise import Tokenise
from tasks.track import Track

_ANY_ORDER: Order = "first_to_last"  # where it changes nothing


def build_graph(study: StudySpec, inputs: StudyInputs, tracking_address: str) -> Graph:
    """The graph of a study.

    Args:
        study: the resolved specification.
        inputs: its encoders and the content of its sources.
        tracking_address: where MLflow keeps its runs.
    """
    return _Builder(study, inputs).build(tracking_address)


@dataclass(frozen=True)
class _EncoderOnTask:
    """One encoder on one task: its cells, and the nodes they build on.

    Attributes:
        parent: which, as MLflow shows it from the start.
        cells: what scores each.
        constants: by the label of the constant matrices; those that a cell uses.
        rankings: by ranking seed; none where no cell needs λ.
        baseline: what the scores are worth.
    """

    parent: ParentRun
    cells: Mapping[Cell, tuple[Node, ...]]
    constants: Mapping[str, Node]
    rankings: Mapping[int, Node]
    baseline: Node

    @property
    def place(self) -> tuple[str, str]:
        """The encoder's label and the task's name."""
        return self.parent.place

    def scored(self, known: Mapping[Node, ArtifactReference]) -> tuple[ScoredCell, ...]:
        """Its cells, once their scores are known."""
        return tuple(
            ScoredCell(cell, self.parent.task.metric, tuple(known[node] for node in nodes))
            for cell, nodes in self.cells.items()
        )

    def scored_parent(self, known: Mapping[Node, ArtifactReference]) -> ScoredParent:
        constants = {label: known[node] for label, node in self.constants.items()}
        rankings = {seed: known[node] for seed, node in self.rankings.items()}
        return self.parent.scored(self.scored(known), constants, rankings)


class _Builder:
    def __init__(self, study: StudySpec, inputs: StudyInputs) -> None:
        self.study, self.inputs = study, inputs
        self.nodes: dict[Hashable, Node] = {}

    def build(self, tracking_address: str) -> Graph:
        parts = [self._on_task(encoder, task) for encoder in self.inputs.encoders for task in self.study.tasks]
        cells = {cell: nodes for part in parts for cell, nodes in part.cells.items()}
        scored = tuple(node for nodes in cells.values() for node in nodes)
        rows = len(cells) * len(self.study.seeds)
        aggregate = self._aggregate(parts, scored, rows)
        self._track(parts, scored, aggregate, rows, tracking_address)
        parents = {part.parent: (*part.rankings.values(), part.baseline) for part in parts}
        return Graph(tuple(self.nodes.values()), cells, parents)

    def _node(
        self,
        key: Hashable,
        stage: str,
        what: str,
        make: Callable[..., Step],
        needs: tuple[Node, ...] = (),
        flops: float = 0.0,
        parts: int = 1,
    ) -> Node:
        """The node under ``key``, made on first use."""
        if (stage, key) not in self.nodes:
            self.nodes[stage, key] = Node(stage, f"{stage} · {what}", flops, needs, make, parts)
        return self.nodes[stage, key]

    def _name(self, encoder: EncoderReference, task: TaskSpec) -> str:
        return f"{self.inputs.encoder_label(encoder)} · {task.name}"

    def _on_task(self, encoder: EncoderReference, task: TaskSpec) -> _EncoderOnTask:
        """Every combination of constants, orders and fractions of one encoder on one task."""
        label = self.inputs.encoder_label(encoder)
        cells: dict[Cell, tuple[Node, ...]] = {}
        constants: dict[str, Node] = {}
        for spec, order, fraction in product(self.study.constants, self.study.orders, self.study.fractions):
            cell = Cell(label, task.name, spec.label, order, fraction)
            cells[cell] = self._probes(encoder, task, spec, cell)
            for need in cells[cell][0].needs:
                if need.stage not in ("tokenise", "rank"):
                    constants[spec.label] = need
        ranked = any(need.stage == "rank" for nodes in cells.values() for need in nodes[0].needs)
        rankings = self._rankings(encoder, task) if ranked else {}
        texts = texts_of(self.study, task, self.inputs.fingerprint, ranked=ranked)
        parent = ParentRun(label, encoder, task, texts)
        return _EncoderOnTask(parent, cells, constants, rankings, self._baseline(encoder, task))

    def _corpus(self, encoder: EncoderReference, task: TaskSpec) -> Node:
        layout, fingerprint = self.study.layout, self.inputs.fingerprint(task)
        return self._node(
            (encoder, task),
            "tokenise",
            self._name(encoder, task),
            lambda name, flops: Tokenise(name, flops, encoder, task, layout, fingerprint),
            flops=costs.tokenising_flops(self.inputs.size(task)),
        )

    def _constants(self, encoder: EncoderReference, task: TaskSpec, spec: ConstantsSpec) -> Node:
        """The constant matrices of a cell, before any training of their own."""
        kind = spec.start if spec.kind == "trained" else spec.kind
        slots = task.slots
        if kind != "average":
            return self._node(
                (encoder, kind, slots),
                "controls",
                f"{self.inputs.encoder_label(encoder)} · {kind} · S={slots}",
                lambda name, flops: Controls(name, flops, encoder, kind, slots),
            )
        text = laid_out_like(task, spec.corpus) if spec.corpus else task
        return self._node(
            (encoder, text),
            "average",
            self._name(encoder, text),
            lambda name, flops, corpus: Average(name, flops, encoder, corpus, slots),
            needs=(self._corpus(encoder, text),),
            flops=costs.averaging_flops(encoder, self.inputs.size(text)),
            parts=-(-self.inputs.size(text).train // self.study.execution.shard_rows),
        )

    def _rankings(self, encoder: EncoderReference, task: TaskSpec) -> dict[int, Node]:
        """λ of each ranking seed against the task's own average: one order for every kind of constants, so kinds meet
        on the same heads.
        """
        constants = self._constants(encoder, task, ConstantsSpec(kind="average"))
        study, ranking = self.study, self.study.ranking
        counts = sorted(set(partial_counts(study.fractions, encoder.layers * encoder.heads).values()))
        sets = tuple((order, count) for order in study.orders if needs_lambda(order) for count in counts)

        def node(seed: int) -> Node:
            return self._node(
                (encoder, task, seed),
                "rank",
                self._name(encoder, task) + (f" · seed {seed}" if len(ranking.seeds) > 1 else ""),
                lambda name, flops, corpus, matrices: Rank(
                    name, flops, encoder, corpus, matrices, task, ranking, seed, sets
                ),
                needs=(self._corpus(encoder, task), constants),
                flops=costs.ranking_flops(encoder, self.inputs.size(task), task, ranking),
                parts=costs.training_parts(self.inputs.size(task), task),
            )

        return {seed: node(seed) for seed in ranking.seeds}

    def _baseline(self, encoder: EncoderReference, task: TaskSpec) -> Node:
        """What the task's scores are worth."""
        seeds, features = self.study.seeds, self.study.features
        return self._node(
            (encoder, task),
            "baseline",
            self._name(encoder, task),
            lambda name, flops, corpus: Baseline(name, flops, encoder, corpus, task, seeds, features),
            needs=(self._corpus(encoder, task),),
            flops=costs.baseline_flops(encoder, self.inputs.size(task), task, self.study),
        )

    def _probes(self, encoder: EncoderReference, task: TaskSpec, spec: ConstantsSpec, cell: Cell) -> tuple[Node, ...]:
        """The nodes of a cell's result: one for all seeds, or one per seed where each has its own constant heads."""
        result = cell.result(encoder.layers * encoder.heads)
        order = result.order or _ANY_ORDER
        corpus, constants = self._corpus(encoder, task), self._constants(encoder, task, spec)
        needs: tuple[Node, ...] = (corpus, constants) if result.constants else (corpus,)
        if needs_lambda(order):
            needs += tuple(self._rankings(encoder, task).values())
        return tuple(
            self._probe(encoder, task, spec, result, needs, seeds, draw)
            for seeds, draw in drawn_from(order, self.study.ranking.seeds[0], self.study.seeds).items()
        )

    def _probe(
        self,
        encoder: EncoderReference,
        task: TaskSpec,
        spec: ConstantsSpec,
        result: Result,
        needs: tuple[Node, ...],
        seeds: tuple[int, ...],
        draw: tuple[int, ...],
    ) -> Node:
        """The node that scores some seeds' probes on a result's constant heads.

        Args:
            needs: corpus, then constants and rankings as far as the result has them.
            seeds: the probes'.
            draw: what a random head order is drawn from; empty for another.
        """
        features, trained, ranking_seeds = self.study.features, spec.kind == "trained", self.study.ranking.seeds

        def make(
            name: str,
            flops: float,
            corpus: ArtifactReference,
            constants: ArtifactReference | None = None,
            *rankings: ArtifactReference,
        ) -> Probe:
            by_seed = dict(zip(ranking_seeds, rankings, strict=True)) if rankings else {}
            lambdas = read_lambda(by_seed, encoder).mean if rankings else None
            order = head_order(result.order or _ANY_ORDER, lambdas, encoder.layers, encoder.heads, draw)
            heads = constant_heads(order, result.fraction)
            return Probe(name, flops, encoder, corpus, constants, task, heads, trained, seeds, features, rankings)

        alone = f" · seed {seeds[0]}" if draw else ""
        what = f"{self._name(encoder, task)} · {_condition(result, encoder.layers * encoder.heads)}{alone}"
        flops = costs.probing_flops(encoder, self.inputs.size(task), task, self.study, len(seeds))
        return self._node((result, seeds), "probe", what, make, needs, flops)

    def _aggregate(self, parts: Sequence[_EncoderOnTask], scored: Sequence[Node], rows: int) -> Node:
        corpora = {task.name: self._corpus(self.inputs.encoders[0], task) for task in self.study.tasks}
        baselines = {part.place: part.baseline for part in parts}
        averages = {part.place: part.constants["average"] for part in parts if "average" in part.constants}
        rankings = {part.place: part.rankings for part in parts if part.rankings}
        of_rankings = (node for by_seed in rankings.values() for node in by_seed.values())
        needs = _once(*scored, *baselines.values(), *corpora.values(), *averages.values(), *of_rankings)

        def make(name: str, flops: float, *references: ArtifactReference) -> Aggregate:
            known = dict(zip(needs, references, strict=True))
            return Aggregate(
                name,
                flops,
                self.study,
                tuple(cell for part in parts for cell in part.scored(known)),
                {place: known[node] for place, node in baselines.items()},
                {task: known[node] for task, node in corpora.items()},
                tuple(
                    Averaged(*part.parent.encoder_on_task, known[averages[part.place]])
                    for part in parts
                    if part.place in averages
                ),
                {place: {seed: known[node] for seed, node in by_seed.items()} for place, by_seed in rankings.items()},
            )

        return self._node((), "aggregate", self.study.name, make, needs, costs.aggregating_flops(rows))

    def _track(
        self, parts: Sequence[_EncoderOnTask], scored: Sequence[Node], aggregate: Node, rows: int, tracking_address: str
    ) -> Node:
        kept = [node for part in parts for node in (*part.constants.values(), *part.rankings.values())]
        needs = _once(aggregate, *scored, *kept)

        def make(name: str, flops: float, *references: ArtifactReference) -> Track:
            known = dict(zip(needs, references, strict=True))
            scored_parents = tuple(part.scored_parent(known) for part in parts)
            return Track(name, flops, self.study, known[aggregate], scored_parents, tracking_address)

        return self._node((), "track", self.study.name, make, needs, costs.tracking_flops(rows))


def _once(*nodes: Node) -> tuple[Node, ...]:
    return tuple(dict.fromkeys(nodes))


def _condition(result: Result, heads_in_all: int) -> str:
    """What is constant in the cells of a result."""
    if result.constants is None:
        return "no constant head"
    if result.order is None:
        return f"{result.constants} · every head constant"
    count = constant_count(result.fraction, heads_in_all)
    return f"{result.constants} · {result.order} · {count} of {heads_in_all} heads constant"
