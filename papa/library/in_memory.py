"""The measurement of an in-memory model by its own answers: the orders, cells and statistics of a
study, whose passes and head scores are those of ``papa.native``.
"""

from collections.abc import Mapping, Sequence
from functools import partial
from numbers import Real

import numpy as np
import pandas
from torch import nn
from transformers import PreTrainedTokenizerBase

from papa.errors import SpecError
from papa.heads.substitutes import Substitute
from papa.library.batches import NAMES_OF_TEXT, Data, check_answering, splits_of
from papa.library.cells import Cells, score_cells
from papa.library.measurement import Measurement, head_score_attrs
from papa.library.redundancy import JointEffects
from papa.library.substitutes import (
    RequestedSubstitute,
    check_substitute,
    is_drawn,
    substitute_for,
    substitute_names,
)
from papa.library.tasks import Task, checked_list
from papa.library.unit_orders import UnitOrders, reads_score
from papa.native.batches import InMemoryTexts, Inputs
from papa.native.in_memory import metric_of, open_in_memory
from papa.native.passes import NativeHead
from papa.native.scores import native_joint_effects, score_native_heads
from papa.progress import bar
from papa.ranking.external_scores import CustomOrder
from papa.ranking.head_scores import LEAST_TEXTS, HeadScores, LambdaAgreement, TrainedLambda
from papa.ranking.kv_groups import with_group_column
from papa.ranking.orders import has_joint_effects
from papa.reporting.redundancy import redundancy_sentences
from papa.reporting.sentences import (
    certainty_sentences,
    examples_sentence,
    score_sentences,
    seed_warnings,
)
from papa.scores.custom import RequestedScore
from papa.scores.summary import summarise
from papa.spec import RankingSpec
from papa.spec.columns import PAIR
from papa.spec.orders import UNIT_LABELS, Unit


def measure_in_memory(
    model: nn.Module,
    data: Data,
    *,
    substitutes: Sequence[RequestedSubstitute],
    orders: Sequence[str | CustomOrder] | pandas.DataFrame,
    keep: Sequence[float],
    probe_seeds: Sequence[int],
    ranking_seeds: Sequence[int],
    task: Task,
    tokenizer: PreTrainedTokenizerBase | None,
    score: RequestedScore | None,
    part: str | None,
    unit: Unit,
    joint_effects: bool,
    progress: bool,
) -> Measurement:
    """Measure an in-memory model, as ``papa.measure`` says.

    Averages, and head scores against the first substitute, are computed from ``train``. A text that
    matrices do not fit is refused before anything is computed.
    """
    is_frame = isinstance(orders, pandas.DataFrame)
    orders = [orders] if is_frame else checked_list("orders", orders)
    keep = checked_list("keep", keep)
    probe_seeds = checked_list("probe_seeds", probe_seeds)
    ranking_seeds = checked_list("ranking_seeds", ranking_seeds)
    if not all(isinstance(share, Real) and 0 <= float(share) <= 1 for share in keep):
        raise SpecError("keep holds shares of heads: give values from 0 to 1")
    pretrained = check_answering(model)
    train, validation = splits_of(data, pretrained, tokenizer, task)
    open_head = partial(open_in_memory, pretrained, part=part, unit=unit)
    native = open_head(validation, score)
    metric = metric_of(native, score)
    # What methods that follow a loss follow: the measured score.
    followed = score if callable(score) else metric
    unit_orders = UnitOrders.from_requested(orders, native)
    train_texts = InMemoryTexts.from_batches(train, pretrained)
    validation_texts = InMemoryTexts.from_batches(validation, pretrained)
    _check_substitutes(substitutes, train_texts, validation_texts, part)
    substitutes_by_seed = [
        _substitute_by_seed(model, substitute, train, part, probe_seeds)
        for substitute in substitutes
    ]
    substitutes_by_name = dict(zip(substitute_names(substitutes), substitutes_by_seed, strict=True))
    first_name, first_by_seed = next(iter(substitutes_by_name.items()))
    first_substitute = first_by_seed[probe_seeds[0]]
    cells = Cells(native, metric, substitutes_by_name, native.all_answers())
    if unit_orders.methods:
        # Images and sound that matrices do not fit are refused before anything is trained.
        for name in substitutes_by_name:
            cells.result(name, probe_seeds[0], native.units)
    scores: dict[str, HeadScores] = {}
    sentences: list[str] = []
    for method in unit_orders.methods:
        ranked = open_head(train, followed if reads_score(method, followed) else None)
        scores[method] = score_native_heads(
            ranked, method, first_substitute, ranking_seeds, RankingSpec(), progress
        )
        sentences += _certainty(scores[method], ranked, keep)
    units_in_order = {
        (order, seed): unit_orders.arranged(order, scores, (ranking_seeds[0], seed))
        for order in unit_orders.names
        for seed in probe_seeds
    }
    results, constant_heads = score_cells(cells, units_in_order, keep, task.name, progress)
    effects: JointEffects | None = None
    measures_sets = has_joint_effects(keep, len(native.units)) and "effect" in unit_orders.names
    if joint_effects and measures_sets:
        compared = open_head(validation, followed)
        order = unit_orders.arranged("effect", scores, (0, 0))
        with bar("joint effects", progress, "text") as report:
            frame = native_joint_effects(compared, first_substitute, order, keep, progress=report)
        effects = JointEffects(frame)
        cell = results[PAIR].iloc[0]
        sentences += redundancy_sentences(frame.assign(**cell))
    frames = [
        number_layers(native, method_scores.frame(method))
        for method, method_scores in scores.items()
    ]
    head_scores = pandas.concat(frames, ignore_index=True) if frames else pandas.DataFrame()
    head_scores.attrs = head_score_attrs(first_name, ranking_seeds, len(train_texts))
    answers = [
        *score_sentences(summarise(results)),
        examples_sentence(len(train_texts), len(validation_texts)),
        *sentences,
        *seed_warnings(results),
    ]
    return Measurement(results, head_scores, answers, constant_heads, effects)


def _check_substitutes(
    substitutes: Sequence[RequestedSubstitute],
    train: InMemoryTexts,
    validation: InMemoryTexts,
    part: str | None,
) -> None:
    """Refuse substitutes that no in-memory model has, and matrices of fewer slots than a measured
    text has tokens.
    """
    # Of images, sound and parts layers may attend over other numbers than of input_ids.
    is_text = part is None and all({*text} <= NAMES_OF_TEXT for text in validation.texts)
    # 0 where they are not known: any matrices have that many slots.
    tokens = int(max(validation.lengths)) if is_text and not validation.unsplit_batches else 0
    for substitute in substitutes:
        check_substitute(substitute, int(max(train.lengths)), tokens)


def _substitute_by_seed(
    model: nn.Module,
    requested: RequestedSubstitute,
    train: Sequence[Inputs],
    part: str | None,
    probe_seeds: Sequence[int],
) -> Mapping[int, Substitute]:
    """Return a requested substitute by probe seed: each has its own if it is one that is drawn."""
    if is_drawn(requested):
        return {
            seed: substitute_for(model, requested, train, seed, part=part) for seed in probe_seeds
        }
    return dict.fromkeys(probe_seeds, substitute_for(model, requested, train, part=part))


def number_layers(native: NativeHead, frame: pandas.DataFrame) -> pandas.DataFrame:
    """Number the scores of layers with attention as the model numbers these layers."""
    by_unit = frame.assign(layer=np.array(native.layers.numbers)[frame["layer"]])
    if native.unit == "head":
        return by_unit
    return with_group_column(by_unit, native.heads_per_unit)


def _certainty(scores: HeadScores, native: NativeHead, keep: Sequence[float]) -> list[str]:
    """Return what is known of the certainty of λ, in a sentence; none of other scores."""
    if not isinstance(scores, TrainedLambda):
        return []
    if not scores.distinct_rows:
        return [
            f"The certainty of λ is unknown: it needs two seeds or more with {LEAST_TEXTS} texts "
            f"each, and {len(scores.by_seed)} seeds shared {len(native.texts)} texts."
        ]
    agreement: LambdaAgreement = {
        **scores.agreement(keep),
        "objective": native.loss.objective,
        "label_free": native.loss.is_label_free,
        "units": UNIT_LABELS[native.unit],
    }
    return [certainty_sentences(agreement)]
