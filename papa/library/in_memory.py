"""The measurement of an in-memory model by its own answers: the cells, statistics and tables of a
study, whose scores, head scores and passes are those of ``papa.native``.
"""

import math
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import Any, TypeAlias

import numpy as np
import pandas
from jaxtyping import Float
from torch import nn
from transformers import PreTrainedTokenizerBase

from papa.errors import DataError, SpecError
from papa.heads.substitutes import Substitute
from papa.library.batches import Data, check_answering, splits_of
from papa.library.measurement import Measurement, compared_with_random
from papa.library.redundancy import JointEffects
from papa.library.substitutes import RequestedSubstitute, check_slots, is_drawn, substitute_for
from papa.library.tasks import Task, as_list
from papa.library.unit_orders import UnitOrders, reads_score
from papa.native.batches import InMemoryTexts, Inputs
from papa.native.in_memory import labels_of_texts, metric_of, open_in_memory
from papa.native.outputs import class_names, has_many_labels
from papa.native.passes import NativeHead
from papa.native.scores import native_joint_effects, score_native_heads
from papa.progress import bar
from papa.ranking.external_scores import CustomOrder
from papa.ranking.head_scores import LEAST_TEXTS, HeadScores, TrainedLambda
from papa.ranking.kv_groups import with_group_column
from papa.ranking.orders import has_joint_effects
from papa.reporting.answers import answers as sentences_of
from papa.reporting.answers import certainty
from papa.reporting.redundancy import redundancy
from papa.scores.answers import AnswerArrays, same_answer, score_answers
from papa.scores.constant_answers import commonest_answer
from papa.scores.custom import RequestedScore, custom_name
from papa.scores.metrics import Scored, influence
from papa.scores.summary import summarise
from papa.spec import Metric, RankingSpec
from papa.spec.orders import UNIT_LABELS, Cell, Head, Unit, constant_heads, heads_of_units
from papa.spec.task import LOSS

OpenHead: TypeAlias = Callable[..., NativeHead]
"""``open_in_memory`` of one model, its part and its unit."""


@dataclass(frozen=True)
class Design:
    """Which cells of an in-memory model are measured.

    Attributes:
        orders: In which units become constant.
        keep: Shares of units that stay input-dependent.
        probe_seeds: Of random orders and drawn substitutes.
        ranking_seeds: Of head scores.
    """

    orders: Sequence[str | CustomOrder]
    keep: Sequence[float]
    probe_seeds: Sequence[int]
    ranking_seeds: Sequence[int]

    def __post_init__(self) -> None:
        for name, values in vars(self).items():
            if isinstance(values, str) or not isinstance(values, Iterable) or not as_list(values):
                raise SpecError(f"{name} is {values!r}, expected a list of one or more")
        if not all(0 <= share <= 1 for share in self.keep):
            raise SpecError("keep holds shares of heads: give values from 0 to 1")


@dataclass(frozen=True)
class _CellResult:
    """What a model's answers score, and the answer that every text gets, "" where they differ."""

    scored: Scored
    same_answer: str
    seconds: float


@dataclass(frozen=True)
class _SubstituteBySeed:
    """What takes attention's place in the cells of each probe seed.

    Attributes:
        draws: By probe seed; where nothing is drawn, one substitute by None.
    """

    draws: Mapping[int | None, Substitute]

    @property
    def is_drawn(self) -> bool:
        return None not in self.draws

    @property
    def first(self) -> Substitute:
        """The substitute by which heads are scored, whatever the seed."""
        return next(iter(self.draws.values()))

    def of_seed(self, seed: int) -> Substitute:
        return self.draws[seed if self.is_drawn else None]


@dataclass
class _Cells:
    """The results of cells of a native head on the measured texts, each set of units and draw of a
    substitute once, beside the answers of the original model.
    """

    native: NativeHead
    metric: Metric
    substitutes: Mapping[str, _SubstituteBySeed]
    original: AnswerArrays
    _results: dict[tuple[str, int | None, frozenset[Head]], _CellResult] = field(
        default_factory=dict
    )

    def __post_init__(self) -> None:
        # Of a head that answers each label by itself no class is the answer to a text.
        many = has_many_labels(self.native.model.config)
        self._classes = () if many else class_names(self.native.model)
        self._labels = labels_of_texts(self.native)

    def result(self, name: str, seed: int, units: Sequence[Head]) -> _CellResult:
        """Return the result of a cell whose units, by the index of their layer, are constant, for a
        probe seed.
        """
        substitute = self.substitutes[name]
        key = (name, seed if substitute.is_drawn else None, frozenset(units))
        if not units:
            key = ("", None, frozenset())
        if key not in self._results:
            start = time.monotonic()
            answers = self.original
            if units:
                answers = self.native.all_answers(substitute.of_seed(seed), units)
            scored = score_answers(self.metric, self.original, answers, self._labels)
            same = "" if self.metric == LOSS else same_answer(answers, self._classes)
            self._results[key] = _CellResult(scored, same, time.monotonic() - start)
        return self._results[key]


def measure_in_memory(
    model: nn.Module,
    data: Data,
    design: Design,
    *,
    substitutes: Sequence[RequestedSubstitute],
    task: Task,
    tokenizer: PreTrainedTokenizerBase | None,
    score: RequestedScore | None,
    part: str | None,
    unit: Unit,
    progress: bool,
) -> Measurement:
    """Measure an in-memory model, as ``papa.measure`` says. Averages and head scores come of
    ``train``, against the first substitute; a text that they do not fit is refused before anything
    is computed, one of images or sound before anything is trained.
    """
    pretrained = check_answering(model)
    train, validation = splits_of(data, pretrained, tokenizer, task)
    open_head = partial(open_in_memory, pretrained, part=part, unit=unit)
    native = open_head(validation, score)
    metric = metric_of(native, score)
    resolved = score if callable(score) else metric
    orders = UnitOrders.from_requested(design.orders, native)
    if part is None:
        # A part may attend over other tokens than those of input_ids.
        measured = InMemoryTexts.from_batches(validation, pretrained)
        computed_from = InMemoryTexts.from_batches(train, pretrained)
        for substitute in substitutes:
            check_slots(substitute, computed_from, measured)
    original = native.all_answers()
    by_name = {
        name: _substitute_by_seed(model, substitute, train, part, design.probe_seeds)
        for name, substitute in _names_of(substitutes)
    }
    first = next(iter(by_name.values())).first
    cells = _Cells(native, metric, by_name, original)
    if orders.methods:
        for name in by_name:
            cells.result(name, design.probe_seeds[0], native.units)
    scores: dict[str, HeadScores] = {}
    sentences: list[str] = []
    for method in orders.methods:
        ranked = _open_ranked(open_head, train, method, resolved)
        scores[method] = score_native_heads(
            ranked, method, first, design.ranking_seeds, RankingSpec(), progress
        )
        sentences += _certainty(scores[method], ranked, design.keep)
    ordered = {
        (order, seed): orders.arranged(order, scores, (design.ranking_seeds[0], seed))
        for order in orders.names
        for seed in design.probe_seeds
    }
    results, constant = _score_cells(cells, ordered, design.keep, task.name, progress)
    effects: JointEffects | None = None
    if "effect" in orders.names and has_joint_effects(design.keep, len(native.units)):
        compared = _open_ranked(open_head, validation, "effect", resolved)
        order = orders.arranged("effect", scores, (0, 0))
        with bar("joint effects", progress, "pass") as report:
            frame = native_joint_effects(compared, first, order, design.keep, progress=report)
        effects = JointEffects(frame)
        cell = results[["encoder", "task"]].iloc[0]
        sentences += redundancy(frame.assign(**cell))
    frames = [numbered(native, of_method.frame(method)) for method, of_method in scores.items()]
    return Measurement(
        results,
        pandas.concat(frames, ignore_index=True) if frames else pandas.DataFrame(),
        sentences_of(summarise(results)) + compared_with_random(results) + sentences,
        constant,
        effects,
    )


def _substitute_by_seed(
    model: nn.Module,
    requested: RequestedSubstitute,
    train: Sequence[Inputs],
    part: str | None,
    probe_seeds: Sequence[int],
) -> _SubstituteBySeed:
    """Return a requested substitute, drawn by each probe seed if it is one that is drawn."""
    seeds = probe_seeds if is_drawn(requested) else [None]
    return _SubstituteBySeed(
        {seed: substitute_for(model, requested, train, seed or 0, part=part) for seed in seeds}
    )


def _score_cells(
    cells: _Cells,
    ordered: Mapping[tuple[str, int], Sequence[Head]],
    keep: Sequence[float],
    task: str,
    progress: bool,
) -> tuple[pandas.DataFrame, dict[Cell, tuple[Head, ...] | None]]:
    """Return a row for each cell and seed, and the constant heads of each cell, None where seeds
    have others.

    Args:
        cells: What scores them.
        ordered: All units, the first to become constant first, by order and seed.
        keep: Shares of units that stay input-dependent.
        task: The task's name.
        progress: Whether to show a progress bar.
    """
    native = cells.native
    head_count = len(native.layers.numbers) * native.heads_per_layer
    baseline = _one_answer(native, cells.metric)
    name_or_path = str(getattr(native.model, "name_or_path", ""))
    label = name_or_path.rstrip("/").rpartition("/")[2] or type(native.model).__name__
    rows: list[dict[str, Any]] = []
    heads_of_cell: dict[Cell, set[tuple[Head, ...]]] = {}
    combinations = [
        (name, *key, share) for name in cells.substitutes for key in ordered for share in keep
    ]
    with bar("measuring", progress, "cell") as report:
        for done, (name, order, seed, share) in enumerate(combinations, 1):
            cell = Cell(label, task, name, order, float(share))
            units = constant_heads(ordered[order, seed], share)
            result = cells.result(name, seed, units)
            heads = heads_of_units(units, native.heads_per_unit)
            numbered_heads = sorted((native.layers.numbers[layer], head) for layer, head in heads)
            row = _row(cell, seed, len(heads), head_count, cells.metric, result, baseline)
            rows.append(row)
            heads_of_cell.setdefault(Cell.from_row(row), set()).add(tuple(numbered_heads))
            report(done, len(combinations))
    constant = {
        cell: next(iter(lists)) if len(lists) == 1 else None
        for cell, lists in heads_of_cell.items()
    }
    return pandas.DataFrame(rows), constant


def numbered(native: NativeHead, frame: pandas.DataFrame) -> pandas.DataFrame:
    """Number the scores of layers with attention as the model numbers these layers."""
    by_unit = frame.assign(layer=np.array(native.layers.numbers)[frame["layer"]])
    if native.unit == "head":
        return by_unit
    return with_group_column(by_unit, native.heads_per_unit)


def _open_ranked(
    open_head: OpenHead, batches: Sequence[Inputs], method: str, score: RequestedScore
) -> NativeHead:
    """Return the native head by whose loss a method scores heads."""
    if reads_score(method, score):
        return open_head(batches, score)
    try:
        return open_head(batches)
    except DataError:
        why = "needs logits or hidden states, which this model does not output"
        raise SpecError(f"orders: '{method}' {why}: use 'effect', with score=") from None


def _certainty(scores: HeadScores, native: NativeHead, keep: Sequence[float]) -> list[str]:
    """Return what is known of the certainty of λ, in a sentence; none of other scores."""
    if not isinstance(scores, TrainedLambda):
        return []
    if not scores.distinct_rows:
        return [
            f"The certainty of λ is unknown: it needs two seeds or more with {LEAST_TEXTS} texts "
            f"each, and {len(scores.by_epoch)} seeds shared {len(native.texts)} texts."
        ]
    facts = {
        **scores.facts(keep),
        "objective": native.loss.objective,
        "label_free": native.loss.is_label_free,
        "units": UNIT_LABELS[native.unit],
    }
    return [certainty(facts)]


@dataclass(frozen=True)
class _Baseline:
    """What the best single answer scores; NaN where nobody knows."""

    score: float = math.nan
    answer: str = ""
    influence: Float[np.ndarray, " texts"] = field(default_factory=lambda: np.zeros(0))


def _one_answer(native: NativeHead, metric: Metric) -> _Baseline:
    """Return what the best single answer scores on labels of texts, as far as these have any."""
    labels = labels_of_texts(native)
    if metric not in ("accuracy", LOSS) or labels is None or len(labels) != len(native.texts):
        return _Baseline()
    if has_many_labels(native.model.config):
        return _Baseline()
    constant = commonest_answer(metric, labels, class_names(native.model))
    return _Baseline(constant.score, constant.answer or "", influence(metric, constant.examples))


def _row(
    cell: Cell,
    seed: int,
    constant: int,
    heads: int,
    metric: Metric,
    result: _CellResult,
    baseline: _Baseline,
) -> dict[str, Any]:
    """Return a row as a study's results have it."""
    return {
        **vars(cell),
        "constant_heads": constant,
        "seed": seed,
        "metric": metric,
        "score": result.scored.score,
        "seconds": result.seconds,
        "unseen_share": math.nan,
        "heads": heads,
        "positive": "",
        "classes": "",
        "same_answer": result.same_answer,
        "always_one_answer": baseline.score,
        "one_answer": baseline.answer,
        "word_embeddings": math.nan,
        "influence": influence(metric, result.scored.examples).astype(np.float32),
        "one_answer_influence": baseline.influence.astype(np.float32),
        "word_embeddings_influence": np.zeros(0, np.float32),
    }


def _names_of(
    substitutes: Sequence[RequestedSubstitute],
) -> Iterator[tuple[str, RequestedSubstitute]]:
    """Yield each substitute with a name that no other has."""
    names: list[str] = []
    for requested in substitutes:
        name = custom_name(requested).rpartition(":")[2]
        if isinstance(requested, str):
            name = requested
        if isinstance(requested, Mapping):
            name = ", ".join(str(value) for value in requested.values())
        names.append(name)
        count = names.count(name)
        yield (f"{name}-{count}" if count > 1 else name), requested
