"""The measurement of a model that the user holds, by its own answers: the cells, the statistics and
the tables of a study; of each text every head's answers are compared, and nothing is fitted but λ.
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import nullcontext
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import pandas
import torch
import torch.nn.functional as F
from jaxtyping import Float, Int, Real
from torch import Tensor, nn
from transformers import PreTrainedTokenizerBase

from papa.errors import DataError, SpecError, joined, meant
from papa.heads.attention_layers import attention_layers
from papa.heads.masks import real_tokens
from papa.library.ablating import ablated, answers
from papa.library.batches import (
    Batch,
    Data,
    batches_of,
    check_answering,
    mini_batches,
    single_texts,
)
from papa.library.in_memory_scores import (
    LEAST_TEXTS,
    effects,
    every_head,
    frame_of,
    lambda_of,
    numbered,
    objective_of,
)
from papa.library.measurement import Measurement, compared_with_random
from papa.library.substitutes import substitute_for
from papa.library.tasks import Task, as_list
from papa.probes.own import class_names, has_many_labels
from papa.progress import bar
from papa.ranking.given import OwnOrder, named_orders
from papa.ranking.orders import HEAD_ORDERS, head_order, scored_by
from papa.reporting.answers import answers as told
from papa.reporting.answers import certainty
from papa.scores.answers import (
    LEAST_SENTENCES,
    commonest_answer,
    embedding_score,
    same_answer,
)
from papa.scores.custom import CustomScore, custom_name
from papa.scores.metrics import influence, mean_of
from papa.scores.summary import summarise
from papa.spec.orders import REVERSED, Cell, Head, constant_heads, scores_in
from papa.spec.task import LOSS

SeedScores = tuple[float, Float[np.ndarray, " texts"]]
_BY_LABELS: dict[str, CustomScore] = {
    "accuracy": lambda out, batch: (out.logits.argmax(-1) == batch["labels"]).double(),
    LOSS: lambda out, batch: (
        -F.cross_entropy(out.logits.float(), batch["labels"], reduction="none")
    ),
}
_BY_EACH_LABEL: dict[str, CustomScore] = {
    "accuracy": lambda out, batch: ((out.logits > 0) == batch["labels"].bool()).double().mean(1),
    LOSS: lambda out, batch: (
        -F.binary_cross_entropy_with_logits(
            out.logits.float(), batch["labels"].float(), reduction="none"
        ).mean(1)
    ),
}


@dataclass(frozen=True)
class _CellResult:
    """What a model's answers score, what the score loses without each text, and the answer that
    every text gets, "" where answers differ.
    """

    score: float
    influence: Float[np.ndarray, " texts"]
    same_answer: str
    seconds: float


@dataclass(frozen=True)
class _Baseline:
    """What always one answer scores; NaN where nobody knows."""

    score: float = math.nan
    answer: str = ""
    influence: Float[np.ndarray, " texts"] = field(default_factory=lambda: np.zeros(0))


def measure_held(
    model: nn.Module,
    data: Data,
    task: Task,
    tokenizer: PreTrainedTokenizerBase | None,
    score: str | CustomScore | None,
    substitutes: Sequence[Any],
    orders: Sequence[str | OwnOrder],
    keep: Sequence[float],
    probe_seeds: Sequence[int],
    ranking_seeds: Sequence[int],
    progress: bool,
) -> Measurement:
    """As ``measure`` says. Averages and λ come of ``train``, against the first substitute;
    a text that they do not fit is refused before λ is trained.
    """
    check_answering(model)
    several: dict[str, Any] = {"orders": orders, "keep": keep, "probe_seeds": probe_seeds}
    for name, one in {**several, "ranking_seeds": ranking_seeds}.items():
        if isinstance(one, str) or not isinstance(one, Iterable) or not as_list(one):
            raise SpecError(f"{name} is {one!r}, expected a list of one or more")
    train, validation = _splits(data, model, tokenizer, task)
    # Whatever batches the texts come in, substitutes and λ are the same.
    texts = single_texts(train)
    train = mini_batches(texts, model)
    metric, own, measured = _measure(model, validation, score)
    every = [(layer, head) for layer, heads in every_head(model).items() for head in heads]
    # Of layers without attention too, so that all layers have the model's numbers.
    shape = attention_layers(model).layer_count, every[-1][1] + 1
    if len(every) < shape[0] * shape[1] and isinstance(orders, Iterable):
        orders = [orders] if isinstance(orders, pandas.DataFrame) else orders
        orders = [
            _by_layer(one, shape) if isinstance(one, pandas.DataFrame) else one for one in orders
        ]
    made = {name: substitute_for(model, one, train) for name, one in _named(substitutes)}
    given = named_orders(orders, *shape)
    names, files = given["orders"], {one["name"]: one["values"] for one in given.get("scores", ())}
    if not all(0 <= one <= 1 for one in keep):
        raise SpecError("keep: its values are shares of heads, from 0 to 1")
    known = [*HEAD_ORDERS, "effect"]
    for name in (one.removeprefix(REVERSED) for one in names):
        if name not in known and scores_in(name) is None:
            near = f"orders: there is no order '{name}' for this model{meant(name, known)}"
            raise SpecError(f"{near}: give one of {joined(known)}, or what papa.head_scores gives")
    baseline = _one_answer(model, validation, metric)
    held: Any = model
    # Of a head that answers each label by itself no class is the answer to a text.
    classes = () if has_many_labels(held.config) else class_names(held)
    results_by_heads: dict[tuple[str, frozenset[Head]], _CellResult] = {}

    def result_of(name: str, heads: Sequence[Head]) -> _CellResult:
        key = name if heads else "", frozenset(heads)
        if key not in results_by_heads:
            start = time.monotonic()
            with ablated(model, heads, substitute=made[name]) if heads else nullcontext():
                after = answers(model, validation, own)
            constant = "" if metric == LOSS else same_answer(after, classes)
            seconds = time.monotonic() - start
            results_by_heads[key] = _CellResult(*measured(after), constant, seconds)
        return results_by_heads[key]

    by_method: dict[str, pandas.DataFrame] = {}
    of_lambda: list[str] = []
    for method in dict.fromkeys(filter(None, map(scored_by, names))):
        if method == "lambda" and own is not None:
            try:
                answers(model, train[:1])
            except DataError:
                why = "keeps logits or hidden states, and the model puts out neither"
                raise SpecError(f"orders: '{method}' {why}: give 'effect', by score") from None
        for name in () if by_method else made:
            result_of(name, every)
        first = next(iter(made.values()))
        if method == "effect":
            by_method[method] = effects(model, train, first, own, progress)
            continue
        ranked_by = list(dict.fromkeys(ranking_seeds))
        trained = lambda_of(model, texts, first, None, None, ranked_by, progress)
        by_method[method] = numbered(model, frame_of(trained))
        facts = trained.facts(keep)
        facts["objective"] = objective_of(answers(model, train[:1]))
        facts["label_free"] = True
        of_lambda = [certainty(facts)]
        if not trained.own_rows:
            of_lambda = [
                f"Nothing is known of the certainty of λ: that takes two seeds or more with "
                f"{LEAST_TEXTS} texts of their own, and {len(ranked_by)} shared {len(texts)}."
            ]

    def listed(order: str, seed: int) -> list[Head]:
        drawn, scores = [ranking_seeds[0], seed], by_method.get(scored_by(order) or "")
        if (name := scores_in(order)) is not None:
            if name not in files:
                raise SpecError(f"orders: {order.removeprefix(REVERSED)}: give papa.load_scores")
            drawn = np.argsort(np.ravel(files[name]), kind="stable").tolist()
        by_layer = None if scores is None else _by_layer(scores, shape)
        order_of_all = head_order(order, by_layer, *shape, drawn)
        return [head for head in order_of_all if head in every]

    lists = {(order, seed): listed(order, seed) for order in names for seed in probe_seeds}
    rows, chosen = list[dict[str, Any]](), dict[Cell, set[tuple[Head, ...]]]()
    encoder = str(getattr(model, "name_or_path", "")).rstrip("/").rpartition("/")[2]
    places = [(name, *key, one) for name in made for key in lists for one in keep]
    with bar("measuring", progress) as report:
        for done, (name, order, seed, fraction) in enumerate(places, 1):
            cell = Cell(encoder or type(model).__name__, task.name, name, order, float(fraction))
            heads = constant_heads(lists[order, seed], fraction)
            result = result_of(name, heads)
            chosen.setdefault(cell, set()).add(tuple(sorted(heads)))
            rows.append(_row(cell, seed, len(heads), len(every), metric, result, baseline))
            report(done, len(places))
    results = pandas.DataFrame(rows)
    frames = (
        pandas.concat(by_method.values(), ignore_index=True) if by_method else pandas.DataFrame()
    )
    alike = {cell: next(iter(one)) if len(one) == 1 else None for cell, one in chosen.items()}
    sentences = told(summarise(results)) + compared_with_random(results) + of_lambda
    return Measurement(results, frames, sentences, alike)


def _one_answer(model: Any, batches: Sequence[Batch], metric: str) -> _Baseline:
    """What always one answer scores on labels of texts, as far as these have any."""
    labels_by_batch = [batch.get("labels") for batch in batches]
    if metric not in ("accuracy", LOSS) or not all(map(_are_classes, labels_by_batch)):
        return _Baseline()
    labels = torch.cat([torch.as_tensor(labels).cpu() for labels in labels_by_batch]).numpy()
    scored = commonest_answer(metric, labels, class_names(model))
    return _Baseline(scored.score, scored.answer or "", influence(metric, scored.examples))


def _are_classes(labels: Any) -> bool:
    """Whether these are numbers of classes, one for each text."""
    return isinstance(labels, Tensor) and labels.dim() == 1 and not labels.is_floating_point()


def _by_layer(
    scores: pandas.DataFrame, shape: tuple[int, int]
) -> Float[np.ndarray, "layers heads"]:
    """The score of each head of a frame; layers without attention have 0, which nobody reads."""
    found = np.zeros(shape)
    found[scores["layer"], scores["head"]] = scores["score"]
    return found


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
        "score": result.score,
        "seconds": result.seconds,
        "unseen_share": math.nan,
        "heads": heads,
        "positive": "",
        "classes": "",
        "same_answer": result.same_answer,
        "always_one_answer": baseline.score,
        "one_answer": baseline.answer,
        "word_embeddings": math.nan,
        "influence": result.influence.astype(np.float32),
        "one_answer_influence": baseline.influence.astype(np.float32),
        "word_embeddings_influence": np.zeros(0, np.float32),
    }


def _named(substitutes: Sequence[Any]) -> Iterator[tuple[str, Any]]:
    """Each with a name of its own."""
    taken: list[str] = []
    for one in substitutes:
        name = one if isinstance(one, str) else custom_name(one).rpartition(":")[2]
        if isinstance(one, Mapping):
            name = ", ".join(str(part) for part in one.values())
        taken.append(name)
        count = taken.count(name)
        yield (f"{name}-{count}" if count > 1 else name), one


def _splits(
    data: Data, model: nn.Module, tokenizer: PreTrainedTokenizerBase | None, task: Task
) -> list[list[Batch]]:
    """The batches that averages and λ come of, and those that are measured: as they are given, or
    every other text, the longest first.
    """
    columns = {"text": task.text, "label": task.label}
    if task.text_pair is not None:
        columns["text_pair"] = task.text_pair
    if isinstance(data, Mapping) and {"train", "validation"} <= {*data}:
        parts = data["train"], data["validation"]
        return [batches_of(one, model, tokenizer, columns) for one in parts]
    batches = batches_of(data, model, tokenizer, columns)
    lengths = [_lengths(batch) for batch in batches]
    order = torch.cat(lengths).argsort(descending=True, stable=True)
    if len(order) < 2:
        raise DataError("data holds one text: give more, or {'train': …, 'validation': …}")
    kept = torch.zeros(len(order), dtype=torch.bool)
    kept[order[::2]] = True
    return [
        [
            {name: _taken(one, own) for name, one in batch.items()}
            for batch, own in zip(batches, side.split([*map(len, lengths)]), strict=True)
            if own.any()
        ]
        for side in (kept, ~kept)
    ]


def _lengths(batch: Batch) -> Int[Tensor, " texts"]:
    mask = batch.get("attention_mask")
    if isinstance(mask, Tensor) and mask.dim() == 2:
        return mask.sum(1).cpu()
    if (real := real_tokens(mask)) is not None:
        return real.sum(1).cpu()
    first = next(one for one in batch.values() if isinstance(one, Tensor))
    return torch.full((len(first),), first[0].numel())


def _taken(value: Any, rows: Tensor) -> Any:
    """Rows of what has some for each text."""
    if isinstance(value, Tensor) and value.dim() and len(value) == len(rows):
        return value[rows.to(value.device)]
    return value


def _measure(
    model: nn.Module, batches: Sequence[Batch], score: str | CustomScore | None
) -> tuple[str, CustomScore | None, Callable[[Mapping[str, np.ndarray]], SeedScores]]:
    """The metric, the score that answers are asked by, if any, and what answers are worth."""
    if callable(score):
        return custom_name(score), score, lambda after: mean_of(after["score"])
    before = answers(model, batches)
    texts, labels = len(before["lengths"]), [batch.get("labels") for batch in batches]
    many_labels = has_many_labels(model.config)
    by_labels = _BY_EACH_LABEL if many_labels else _BY_LABELS
    dimensions = 2 if many_labels else 1
    known = [LOSS, "agreement"] if "loss" in before else ["agreement"]
    if "embeddings" in before:
        counts = [count for count in (10, 1) if texts > 2 * count]
        known = ["cosine", "similarities", *(f"nearest_{count}" for count in counts)]
        if texts < LEAST_SENTENCES:
            raise DataError(f"{texts} texts are measured, expected {LEAST_SENTENCES} or more")
    elif "logits" in before and all(one is not None and one.dim() == dimensions for one in labels):
        known += by_labels
    name = score or known[0]
    if name == "loss":
        raise SpecError(f"score: 'loss' is now '{LOSS}', the negative loss in nats")
    if name not in known:
        near = f"score: '{name}' is not of this model and data: give one of {joined(known)}"
        raise SpecError(f"{near}, or a function")
    if name in by_labels and "logits" in before:
        every: Any = torch.cat([torch.as_tensor(one).cpu() for one in labels])
        real = (every.reshape(len(every), -1) != -100).all(1).numpy()
        counted = real.astype(np.int64)
        return (
            name,
            by_labels[name],
            lambda after: mean_of(after["score"][real], counted),
        )
    if name == LOSS:
        return name, None, lambda after: mean_of(-after["loss"], after["lengths"])
    if name == "agreement":
        return name, None, lambda after: mean_of(_top(after) == _top(before), after["lengths"])
    own = before["embeddings"]
    return name, None, lambda after: embedding_score(name, own, after["embeddings"])


def _top(found: Mapping[str, np.ndarray]) -> Real[np.ndarray, " answers"]:
    return found["logits"].argmax(1) if "logits" in found else found["top"]
