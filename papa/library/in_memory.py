"""The measurement of an in-memory model by its own answers: the cells, statistics and tables of a
study, whose scores, head scores and passes are those of ``papa.native``.
"""

from __future__ import annotations

import math
import time
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, get_args

import numpy as np
import pandas
import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor, nn
from transformers import PreTrainedTokenizerBase

from papa.errors import DataError, SpecError, joined, meant
from papa.heads.masks import real_tokens
from papa.heads.substitutes import Substitute
from papa.library.batches import Data, batches_of, check_answering
from papa.library.measurement import Measurement, compared_with_random
from papa.library.substitutes import RequestedSubstitute, substitute_for
from papa.library.tasks import Task, as_list
from papa.native.batches import Inputs, rebatched
from papa.native.in_memory import labels_of_texts, metric_of, open_in_memory
from papa.native.outputs import class_names, has_many_labels
from papa.native.passes import NOTHING_COUNTS, NativeHead
from papa.native.scores import ScoringSettings, score_native_heads
from papa.progress import bar
from papa.ranking.external_scores import CustomOrder, named_orders
from papa.ranking.head_scores import LEAST_TEXTS, HeadScores, TrainedLambda
from papa.ranking.kv_groups import group_scores, with_group_column
from papa.ranking.orders import HEAD_ORDERS, HEAD_SCORES, head_order, scored_by
from papa.reporting.answers import answers as sentences_of
from papa.reporting.answers import certainty
from papa.scores.answers import commonest_answer, same_answer, score_answers
from papa.scores.custom import CustomScore, custom_name
from papa.scores.metrics import Scored, influence
from papa.scores.summary import summarise
from papa.spec.orders import (
    REVERSED,
    Cell,
    Head,
    Unit,
    constant_heads,
    heads_of_units,
    scores_in,
)
from papa.spec.task import LOSS

METHODS = ("lambda", *(name for name, method in HEAD_SCORES.items() if method.in_memory))
"""That score the heads of an in-memory model."""


@dataclass(frozen=True)
class _CellResult:
    """What a model's answers score, and the answer that every text gets, "" where they differ."""

    scored: Scored
    same_answer: str
    seconds: float


@dataclass
class _Cells:
    """The results of cells, each set of units once.

    Attributes:
        native: The native head on the measured texts.
        metric: Of its answers.
        substitutes: What heads output instead, by name.
    """

    native: NativeHead
    metric: str
    substitutes: Mapping[str, Substitute]
    _results: dict[tuple[str, frozenset[Head]], _CellResult] = field(default_factory=dict)

    def __post_init__(self) -> None:
        config: Any = self.native.model.config
        # Of a head that answers each label by itself no class is the answer to a text.
        self._classes = () if has_many_labels(config) else class_names(self.native.model)
        self._labels = labels_of_texts(self.native)
        self._original = self.native.all_answers()

    def result(self, substitute: str, units: Sequence[Head]) -> _CellResult:
        """Return the result of a cell whose units, by the index of their layer, are constant."""
        key = (substitute if units else "", frozenset(units))
        if key not in self._results:
            start = time.monotonic()
            answers = self._original
            if units:
                answers = self.native.all_answers(self.substitutes[substitute], units)
            scored = score_answers(self.metric, self._original, answers, self._labels)
            same = "" if self.metric == LOSS else same_answer(answers, self._classes)
            self._results[key] = _CellResult(scored, same, time.monotonic() - start)
        return self._results[key]


def measure_in_memory(
    model: nn.Module,
    data: Data,
    task: Task,
    tokenizer: PreTrainedTokenizerBase | None,
    score: str | CustomScore | None,
    substitutes: Sequence[RequestedSubstitute],
    orders: Sequence[str | CustomOrder],
    keep: Sequence[float],
    probe_seeds: Sequence[int],
    ranking_seeds: Sequence[int],
    part: str | None,
    unit: Unit,
    progress: bool,
) -> Measurement:
    """Measure an in-memory model, as ``papa.measure`` says. Averages and head scores come of
    ``train``, against the first substitute; a text that they do not fit is refused before anything
    is trained.
    """
    check_answering(model)
    lists = {"orders": orders, "keep": keep, "probe_seeds": probe_seeds}
    for name, values in {**lists, "ranking_seeds": ranking_seeds}.items():
        if isinstance(values, str) or not isinstance(values, Iterable) or not as_list(values):
            raise SpecError(f"{name} is {values!r}, expected a list of one or more")
    if not all(0 <= share <= 1 for share in keep):
        raise SpecError("keep holds shares of heads: give values from 0 to 1")
    train, validation = _splits(data, model, tokenizer, task)
    custom = score if callable(score) else None
    native = open_in_memory(model, validation, custom, part=part, unit=unit)
    if callable(score):
        metric = custom_name(score)
        labelled = False
    else:
        metric, labelled = metric_of(native, native.all_answers(), score)
    numbers = native.layers.numbers
    # Of layers without attention too, so that all layers have the model's numbers.
    shape = (native.layers.layer_count, native.size[1])
    names, external = _named_orders(orders, native)
    training = open_in_memory(model, train, custom, part=part, unit=unit)
    # Whatever batches the texts come in, substitutes are the same.
    inputs = rebatched(train, model)
    by_name = {
        name: substitute_for(model, substitute, inputs, part=part)
        for name, substitute in _names_of(substitutes)
    }
    cells = _Cells(native, metric, by_name)
    baseline = _one_answer(native, metric)
    scores: dict[str, HeadScores] = {}
    certain: list[str] = []
    settings = ScoringSettings(seeds=list(ranking_seeds))
    for method in dict.fromkeys(filter(None, map(scored_by, names))):
        if not scores:
            for name in by_name:
                cells.result(name, native.units)
        ranked = training
        if custom is None or not reads_score(method):
            ranked = _by_own_answers(model, train, method, labelled, part, unit)
        first = next(iter(by_name.values()))
        scores[method] = score_native_heads(ranked, method, first, settings, progress)
        method_scores = scores[method]
        if isinstance(method_scores, TrainedLambda):
            certain = [_certainty(method_scores, ranked, keep, labelled)]

    def in_order(order: str, seed: int) -> list[Head]:
        draw = [ranking_seeds[0], seed]
        name = scores_in(order)
        if name is not None:
            draw = np.argsort(np.ravel(external[name]), kind="stable").tolist()
        method = scored_by(order)
        values = None
        if method:
            values = np.zeros(shape)  # Nobody reads those of layers without attention.
            values[numbers] = scores[method].mean
        all_units = head_order(order, values, *shape, draw)
        return [(layer, unit) for layer, unit in all_units if layer in numbers]

    ordered = {(order, seed): in_order(order, seed) for order in names for seed in probe_seeds}
    index_of = {number: index for index, number in enumerate(numbers)}
    rows: list[dict[str, Any]] = []
    heads_of_cell: dict[Cell, set[tuple[Head, ...]]] = {}
    label = str(getattr(model, "name_or_path", "")).rstrip("/").rpartition("/")[2]
    combinations = [(name, *key, share) for name in by_name for key in ordered for share in keep]
    with bar("measuring", progress) as report:
        for done, (name, order, seed, share) in enumerate(combinations, 1):
            cell = Cell(label or type(model).__name__, task.name, name, order, float(share))
            units = constant_heads(ordered[order, seed], share)
            result = cells.result(name, [(index_of[layer], unit) for layer, unit in units])
            heads = heads_of_units(units, native.heads_per_unit)
            heads_of_cell.setdefault(cell, set()).add(tuple(sorted(heads)))
            head_total = native.heads_per_layer * len(numbers)
            rows.append(_row(cell, seed, len(heads), head_total, metric, result, baseline))
            report(done, len(combinations))
    results = pandas.DataFrame(rows)
    frames = [
        numbered(native, method_scores.frame(method)) for method, method_scores in scores.items()
    ]
    return Measurement(
        results,
        pandas.concat(frames, ignore_index=True) if frames else pandas.DataFrame(),
        sentences_of(summarise(results)) + compared_with_random(results) + certain,
        {
            cell: next(iter(lists)) if len(lists) == 1 else None
            for cell, lists in heads_of_cell.items()
        },
    )


def head_scores_in_memory(
    model: nn.Module,
    batches: Sequence[Inputs],
    substitute: Substitute,
    method: str,
    settings: ScoringSettings,
    score: CustomScore | None = None,
    part: str | None = None,
    unit: Unit = "head",
    progress: bool = True,
) -> pandas.DataFrame:
    """Return a frame of head scores of an in-memory model.

    Raises:
        DataError: No token counts.
    """
    native = open_in_memory(model, batches, score, part=part, unit=unit)
    # A text that is longer than averages are is refused before anything is trained.
    if not native.all_answers(substitute, native.units)["lengths"].sum():
        raise DataError(NOTHING_COUNTS)
    scores = score_native_heads(native, method, substitute, settings, progress)
    frame = numbered(native, scores.frame(method))
    frame.attrs["measure"] = native.loss.name
    return frame


def numbered(native: NativeHead, frame: pandas.DataFrame) -> pandas.DataFrame:
    """A row for each head, by the model's numbers of the layers, from scores of all units."""
    by_unit = frame.assign(layer=np.array(native.layers.numbers)[frame["layer"]])
    if native.unit == "head":
        return by_unit
    return with_group_column(by_unit, native.heads_per_unit)


def check_unit(unit: str) -> None:
    """Refuse what is no unit."""
    if unit not in get_args(Unit):
        raise SpecError(
            f"unit is {unit!r}{meant(unit, get_args(Unit))}: give one of {joined(get_args(Unit))}"
        )


def reads_score(method: str) -> bool:
    """Whether a method reads a user's own score, not the model's own answers."""
    return method != "lambda" and not HEAD_SCORES[method].label_free


def _by_own_answers(
    model: nn.Module,
    batches: Sequence[Inputs],
    method: str,
    labelled: bool,
    part: str | None,
    unit: Unit,
) -> NativeHead:
    try:
        return open_in_memory(model, batches, labelled=labelled, part=part, unit=unit)
    except DataError:
        why = "needs logits or hidden states, which this model does not output"
        raise SpecError(f"orders: '{method}' {why}: use 'effect', with score=") from None


def _certainty(
    trained: TrainedLambda, native: NativeHead, keep: Sequence[float], labelled: bool
) -> str:
    """What is known of the certainty of λ, in a sentence."""
    if not trained.distinct_rows:
        return (
            f"The certainty of λ is unknown: it needs two seeds or more with {LEAST_TEXTS} texts "
            f"each, and {len(trained.by_epoch)} seeds shared {len(native.texts)} texts."
        )
    facts = trained.facts(keep)
    return certainty(
        {
            **facts,
            "objective": native.loss.objective,
            "label_free": native.loss.is_label_free,
            "units": "heads" if native.unit == "head" else "groups of heads",
        }
    )


def _named_orders(
    orders: Sequence[str | CustomOrder], native: NativeHead
) -> tuple[list[str], dict[str, Float[np.ndarray, "layers units"]]]:
    """The names of orders, and the scores of those that a user supplied, by name."""
    shape = (native.layers.layer_count, native.heads_per_layer)
    if len(native.layers.numbers) < shape[0]:
        orders = [orders] if isinstance(orders, pandas.DataFrame) else orders
        orders = [
            _of_all_layers(order, shape) if isinstance(order, pandas.DataFrame) else order
            for order in orders
        ]
    document = named_orders(orders, *shape)
    external = {
        scores["name"]: group_scores(np.array(scores["values"]), native.heads_per_unit)
        for scores in document.get("scores", ())
    }
    known = [*HEAD_ORDERS, *METHODS[1:]]
    for order in document["orders"]:
        name = order.removeprefix(REVERSED)
        scores = scores_in(name)
        if scores is not None and scores not in external:
            raise SpecError(f"orders: '{name}' names a file: give papa.load_scores(path)")
        if scores is None and name not in known:
            near = f"orders: there is no order '{name}' for this model{meant(name, known)}"
            raise SpecError(f"{near}: give one of {joined(known)}, or what papa.head_scores gives")
    return document["orders"], external


def _of_all_layers(
    scores: pandas.DataFrame, shape: tuple[int, int]
) -> Float[np.ndarray, "layers heads"]:
    """The score of each head of a frame; layers without attention have 0, which nobody reads."""
    values = np.zeros(shape)
    values[scores["layer"], scores["head"]] = scores["score"]
    return values


@dataclass(frozen=True)
class _Baseline:
    """What always one answer scores; NaN where nobody knows."""

    score: float = math.nan
    answer: str = ""
    influence: Float[np.ndarray, " texts"] = field(default_factory=lambda: np.zeros(0))


def _one_answer(native: NativeHead, metric: str) -> _Baseline:
    """What always one answer scores on labels of texts, as far as these have any."""
    labels = labels_of_texts(native)
    config: Any = native.model.config
    is_of_texts = labels is not None and len(labels) == len(native.texts)
    if metric not in ("accuracy", LOSS) or not is_of_texts or has_many_labels(config):
        return _Baseline()
    assert labels is not None
    constant = commonest_answer(metric, labels, class_names(native.model))
    return _Baseline(constant.score, constant.answer or "", influence(metric, constant.examples))


def _row(
    cell: Cell,
    seed: int,
    constant: int,
    heads: int,
    metric: str,
    result: _CellResult,
    baseline: _Baseline,
) -> dict[str, Any]:
    """As a study's results have it."""
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
    """Each substitute with a name that no other has."""
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


def _splits(
    data: Data, model: nn.Module, tokenizer: PreTrainedTokenizerBase | None, task: Task
) -> tuple[list[Inputs], list[Inputs]]:
    """The batches that averages and head scores come of, and those that are measured: as they are
    given, or every other text, the longest first.
    """
    columns = {"text": task.text, "label": task.label}
    if task.text_pair is not None:
        columns["text_pair"] = task.text_pair
    if isinstance(data, Mapping) and {"train", "validation"} <= {*data}:
        train = batches_of(data["train"], model, tokenizer, columns)
        return train, batches_of(data["validation"], model, tokenizer, columns)
    batches = batches_of(data, model, tokenizer, columns)
    lengths = [_lengths(batch) for batch in batches]
    order = torch.cat(lengths).argsort(descending=True, stable=True)
    if len(order) < 2:
        raise DataError("data holds one text: give two or more, or {'train': …, 'validation': …}")
    is_train = torch.zeros(len(order), dtype=torch.bool)
    is_train[order[::2]] = True
    by_batch = is_train.split([*map(len, lengths)])
    return (
        [
            _rows_of(batch, rows)
            for batch, rows in zip(batches, by_batch, strict=True)
            if rows.any()
        ],
        [
            _rows_of(batch, ~rows)
            for batch, rows in zip(batches, by_batch, strict=True)
            if not rows.all()
        ],
    )


def _lengths(batch: Inputs) -> Int[Tensor, " texts"]:
    mask = batch.get("attention_mask")
    if isinstance(mask, Tensor) and mask.dim() == 2:
        return mask.sum(1).cpu()
    real = real_tokens(mask)
    if real is not None:
        return real.sum(1).cpu()
    first = next(value for value in batch.values() if isinstance(value, Tensor))
    return torch.full((len(first),), first[0].numel())


def _rows_of(batch: Inputs, rows: Bool[Tensor, " texts"]) -> Inputs:
    """Some texts of a batch."""
    return {
        name: value[rows.to(value.device)]
        if isinstance(value, Tensor) and value.dim() and len(value) == len(rows)
        else value
        for name, value in batch.items()
    }
