"""From a study to its graph."""

from __future__ import annotations

from collections.abc import Callable, Hashable
from functools import partial

from flows.costs import averaging_flops, baseline_flops, probing_flops, ranking_flops, tokenising_flops
from flows.graph import Cell, Graph, Node
from flows.inputs import StudyInputs, laid_out_like
from papa.encoders.reference import EncoderReference
from papa.ranking import constant_count, differs_by_seed, head_order, needs_lambda
from papa.spec import ConstantsSpec, Order, StudySpec, TaskSpec
from papa.storage.artifacts import ArtifactReference
from tasks.aggregate import Aggregate, Averaged
from tasks.average import Average
from tasks.baseline import Baseline
from tasks.controls import Controls
from tasks.mlflow_groups import Group
from tasks.probe import Probe
from tasks.rank import Rank, read_orders
from tasks.results import Point
from tasks.step import Step
from tasks.tokenise import Tokenise
from tasks.track import Track

Heads = list[tuple[int, int]]


def build_graph(study: StudySpec, inputs: StudyInputs, tracking_address: str) -> Graph:
    """The graph of a study.

    Args:
        study: the resolved specification.
        inputs: its encoders and the content of its sources.
        tracking_address: where MLflow keeps its runs.
    """
    return _Builder(study, inputs, tracking_address).build()


class _Builder:
    def __init__(self, study: StudySpec, inputs: StudyInputs, tracking_address: str) -> None:
        self.study, self.inputs, self.tracking_address = study, inputs, tracking_address
        self.nodes: dict[Hashable, Node] = {}
        self.cells: list[Cell] = []
        self.groups: list[tuple[Group, tuple[Node, ...]]] = []
        self.averages: list[tuple[str, EncoderReference, TaskSpec, Node]] = []
        self.baselines: dict[tuple[str, str], Node] = {}
        self.rankings: dict[tuple[str, str], Node] = {}

    def build(self) -> Graph:
        for encoder in self.inputs.encoders:
            for task in self.study.tasks:
                self._combinations(encoder, task)
        self._track(self._aggregate())
        return Graph(tuple(self.nodes.values()), tuple(self.cells))

    def _node(
        self,
        key: Hashable,
        stage: str,
        what: str,
        make: Callable[..., Step],
        needs: tuple[Node, ...] = (),
        flops: float = 0.0,
    ) -> Node:
        """The node under ``key``, made on first use."""
        if (stage, key) not in self.nodes:
            self.nodes[stage, key] = Node(stage, f"{stage} · {what}", flops, needs, make)
        return self.nodes[stage, key]

    def _combinations(self, encoder: EncoderReference, task: TaskSpec) -> None:
        """The cells of one encoder on one task, and what is kept with their runs."""
        model, first = self.inputs.label(encoder), self._points_so_far()
        heads_in_all = encoder.layers * encoder.heads
        kept: dict[str, Node] = {}
        ranked: dict[str, Node] = {}
        for spec in self.study.constants:
            for order in self.study.orders:
                for fraction in self.study.fractions:
                    nodes = self._probing(encoder, task, spec, order, constant_count(fraction, heads_in_all))
                    self.cells.append(Cell(model, task, spec.label, order, fraction, nodes))
                    for need in nodes[0].needs:
                        if need.stage == "rank":
                            ranked[spec.label] = self.rankings[model, task.name] = need
                        elif need.stage != "tokenise":
                            kept[spec.label] = need
        self.baselines[model, task.name] = self._baseline(encoder, task)
        if "average" in kept:
            self.averages.append((model, encoder, task, kept["average"]))
        points = range(first, self._points_so_far())
        group = Group(model, encoder, task, points, tuple(kept), tuple(ranked))
        self.groups.append((group, (*kept.values(), *ranked.values())))

    def _points_so_far(self) -> int:
        return sum(len(cell.nodes) for cell in self.cells)

    def _corpus(self, encoder: EncoderReference, task: TaskSpec) -> Node:
        layout, fingerprint = self.study.layout, self.inputs.fingerprint(task)
        return self._node(
            (encoder, task),
            "tokenise",
            f"{self.inputs.label(encoder)} · {task.name}",
            lambda name, flops: Tokenise(name, flops, encoder, task, layout, fingerprint),
            flops=tokenising_flops(self.inputs.size(task)),
        )

    def _constants(self, encoder: EncoderReference, task: TaskSpec, spec: ConstantsSpec) -> Node:
        """The constant matrices of a cell, before any training of their own."""
        kind = spec.start if spec.kind == "trained" else spec.kind
        model, slots = self.inputs.label(encoder), task.slots
        if kind != "average":
            return self._node(
                (encoder, kind, slots),
                "controls",
                f"{model} · {kind} · S={slots}",
                lambda name, flops: Controls(name, flops, encoder, kind, slots),
            )
        text = laid_out_like(task, spec.corpus) if spec.corpus else task
        return self._node(
            (encoder, text),
            "average",
            f"{model} · {text.name}",
            lambda name, flops, corpus: Average(name, flops, encoder, corpus, slots),
            needs=(self._corpus(encoder, text),),
            flops=averaging_flops(encoder, self.inputs.size(text)),
        )

    def _ranking(self, encoder: EncoderReference, task: TaskSpec) -> Node:
        """λ against the task's own average: one order for every kind of constants, so kinds meet on the same heads."""
        constants = self._constants(encoder, task, ConstantsSpec(kind="average"))
        ranking, heads = self.study.ranking, encoder.layers * encoder.heads
        counts = {round((1 - fraction) * heads) for fraction in self.study.fractions} - {0, heads}
        sets = tuple((order, count) for order in self.study.orders if needs_lambda(order) for count in sorted(counts))
        return self._node(
            (encoder, task),
            "rank",
            f"{self.inputs.label(encoder)} · {task.name}",
            lambda name, flops, corpus, matrices: Rank(name, flops, encoder, corpus, matrices, task, ranking, sets),
            needs=(self._corpus(encoder, task), constants),
            flops=ranking_flops(encoder, self.inputs.size(task), task, ranking),
        )

    def _baseline(self, encoder: EncoderReference, task: TaskSpec) -> Node:
        """What the task's scores are worth."""
        seeds, features = self.study.seeds, self.study.features
        return self._node(
            (encoder, task),
            "baseline",
            f"{self.inputs.label(encoder)} · {task.name}",
            lambda name, flops, corpus: Baseline(name, flops, encoder, corpus, task, seeds, features),
            needs=(self._corpus(encoder, task),),
            flops=baseline_flops(encoder, self.inputs.size(task), task, self.study),
        )

    def _probing(
        self, encoder: EncoderReference, task: TaskSpec, spec: ConstantsSpec, order: Order, count: int
    ) -> tuple[Node, ...]:
        """The nodes of one point of the study, at which ``count`` heads are constant."""
        layers, heads_per_layer = encoder.layers, encoder.heads
        corpus = self._corpus(encoder, task)
        needs = (corpus, self._constants(encoder, task, spec))
        what = f"{self.inputs.label(encoder)} · {task.name}"

        def node(
            key: Hashable,
            where: str,
            needs: tuple[Node, ...],
            heads: Callable[..., Heads],
            seeds: tuple[int, ...] = self.study.seeds,
        ) -> Node:
            def make(name: str, flops: float, *found: ArtifactReference) -> Probe:
                return Probe(
                    name,
                    flops,
                    encoder,
                    corpus=found[0],
                    constants=found[1] if len(found) > 1 else None,
                    task=task,
                    heads=tuple(heads(*found[2:])),
                    trained=spec.kind == "trained",
                    seeds=seeds,
                    features=self.study.features,
                    ranking=found[2] if len(found) > 2 else None,
                )

            flops = probing_flops(encoder, self.inputs.size(task), task, self.study, len(seeds))
            return self._node((encoder, task, key), "probe", f"{what} · {where}", make, needs, flops)

        if count == 0:
            return (node("none", "no constant head", (corpus,), list),)
        if count == layers * heads_per_layer:
            where = f"{spec.label} · every head constant"
            every = partial(head_order, "first_to_last", None, layers, heads_per_layer)
            return (node((spec, "all"), where, needs, every),)
        where = f"{spec.label} · {order} · {count} of {layers * heads_per_layer} heads constant"
        key = (spec, order, count)
        if needs_lambda(order):
            ranking = self._ranking(encoder, task)
            return (node(key, where, (*needs, ranking), lambda ranked: read_orders(ranked.folder)[order][:count]),)

        def first(seed: tuple[int, ...] = ()) -> Heads:
            return head_order(order, None, layers, heads_per_layer, seed)[:count]

        if differs_by_seed(order):
            drawn = {seed: partial(first, (self.study.ranking.seed, seed)) for seed in self.study.seeds}
            return tuple(
                node((*key, seed), f"{where} · seed {seed}", needs, heads, (seed,)) for seed, heads in drawn.items()
            )
        return (node(key, where, needs, first),)

    def _aggregate(self) -> Node:
        scored = tuple(dict.fromkeys(node for cell in self.cells for node in cell.nodes))
        corpora = {task.name: self._corpus(self.inputs.encoders[0], task) for task in self.study.tasks}
        averaged = (node for *_, node in self.averages)
        needs = (*scored, *self.baselines.values(), *corpora.values(), *averaged, *self.rankings.values())

        def make(name: str, flops: float, *found: ArtifactReference) -> Aggregate:
            known = dict(zip(needs, found, strict=True))
            texts = {task: known[node] for task, node in corpora.items()}
            averages = tuple(
                Averaged(model, encoder, task, known[node]) for model, encoder, task, node in self.averages
            )
            baselines = {key: known[node] for key, node in self.baselines.items()}
            rankings = {key: known[node] for key, node in self.rankings.items()}
            return Aggregate(name, flops, self.study, self._points(known), baselines, texts, averages, rankings)

        return self._node((), "aggregate", self.study.name, make, needs)

    def _track(self, aggregate: Node) -> Node:
        scored = tuple(dict.fromkeys(node for cell in self.cells for node in cell.nodes))
        kept = tuple(dict.fromkeys(node for _, nodes in self.groups for node in nodes))
        needs = (aggregate, *scored, *kept)

        def make(name: str, flops: float, *found: ArtifactReference) -> Track:
            known = dict(zip(needs, found, strict=True))
            groups = tuple(group.filled([known[node] for node in nodes]) for group, nodes in self.groups)
            return Track(
                name,
                flops,
                self.study,
                known[aggregate],
                self._points(known),
                groups,
                self.tracking_address,
            )

        return self._node((), "track", self.study.name, make, needs)

    def _points(self, known: dict[Node, ArtifactReference]) -> tuple[Point, ...]:
        return tuple(
            Point(
                model=cell.model,
                task=cell.task.name,
                metric=cell.task.metric,
                constants=cell.constants,
                order=cell.order,
                fraction=cell.fraction,
                scores=known[node],
            )
            for cell in self.cells
            for node in cell.nodes
        )
