"""What in a study does not fit its tasks or encoders, before anything is downloaded or computed."""

from collections.abc import Iterable, Iterator
from itertools import product

from papa.errors import SpecError
from papa.models.reference import EncoderReference
from papa.ranking.orders import HEAD_SCORES, scoring_method
from papa.spec import StudySpec, TaskSpec
from papa.spec.substitutes import entry_of


def misfits(study: StudySpec, encoders: Iterable[EncoderReference]) -> Iterator[tuple[str, str]]:
    """Yield what in a study does not fit its tasks or one of its encoders: where, and why."""
    methods = sorted(HEAD_SCORES.keys() & set(map(scoring_method, study.orders)))
    for method in methods:
        if not HEAD_SCORES[method].in_studies:
            yield "orders", f"{method} is a score of models in memory alone: take another order"
    for task, method in product(study.tasks, methods):
        yield from _unscored_task(task, method)
    for encoder in encoders:
        yield from _misfits_of_encoder(encoder, study)
        for method in methods:
            yield from _too_few_evaluations(method, encoder, study)


def _unscored_task(task: TaskSpec, method: str) -> Iterator[tuple[str, str]]:
    """Yield why a method scores no heads for a task."""
    entry = HEAD_SCORES[method]
    of_words = task.kind in ("mlm", "causal") and task.head == "native"
    if entry.native_head == "words" and not of_words:
        yield (
            "orders",
            f"{method} follows the loss of a language model's native head, and task "
            f"{task.name} has none: take another order",
        )
    if entry.native_head == "with a loss" and task.ranks_by_divergence:
        yield (
            "orders",
            f"{method} follows the loss against labels, and task {task.name} compares the model "
            f"with its own answers (metric {task.metric}): take lambda, first_to_last or random, "
            "give scores:FILE, or name a metric that reads labels",
        )
    # Hidden states are kept by a plain encoder alone.
    if method == "self_lambda" and task.kind == "causal" and task.head == "native":
        yield (
            "orders",
            f"{method} scores no heads for task {task.name}, which is of kind {task.kind} with "
            "head: native: take lambda, first_to_last or random, or give scores:FILE",
        )


def _misfits_of_encoder(encoder: EncoderReference, study: StudySpec) -> Iterator[tuple[str, str]]:
    """Yield what in the study does not fit an encoder: its unit, tasks, substitutes, scores."""
    name = encoder.name
    # Published shapes do not say which heads share keys and values.
    if study.unit == "kv_group" and encoder.heads_per_unit(study.unit) == 1 and encoder.folder:
        yield (
            "unit",
            f"each of the {encoder.heads} heads of a layer of '{name}' has keys and values of its "
            "own, and kv_group is for heads that share them: set unit: head",
        )
    for index, task in enumerate(study.tasks):
        where = f"tasks.{index} ({task.name})"
        slots = max(task.slots, task.validation_slots or 0)
        if slots > encoder.positions:
            yield (
                where,
                f"task '{task.name}' has slots {slots}, but encoder '{name}' takes "
                f"{encoder.positions} at most: set slots to {encoder.positions} or less",
            )
        if encoder.causal != (task.kind == "causal"):
            advice = "an encoder: take another kind, or a decoder"
            if encoder.causal:
                advice = "a decoder: take kind: causal with head: native, or an encoder"
            yield where, f"task '{task.name}' is of kind {task.kind}, and '{name}' is {advice}"
    for index, substitute in enumerate(study.substitutes):
        kind = substitute.kind
        if not (entry_of(kind).encoders or encoder.causal):
            yield (
                f"substitutes.{index}",
                f"'{kind}' is for decoders, and '{name}' is an encoder: take local",
            )
    for scores in study.scores:
        shape = (len(scores.values), len(scores.values[0]))
        if shape != (encoder.layers, encoder.heads):
            yield (
                f"scores ({scores.name})",
                f"they are of {shape[0]} layers of {shape[1]} heads, and encoder '{name}' has "
                f"{encoder.layers} layers of {encoder.heads} heads: give scores of this encoder's "
                "heads",
            )


def _too_few_evaluations(
    method: str, encoder: EncoderReference, study: StudySpec
) -> Iterator[tuple[str, str]]:
    """Yield that a method needs more evaluations for an encoder's heads than the study has."""
    units = encoder.layers * encoder.heads // encoder.heads_per_unit(study.unit)
    try:
        HEAD_SCORES[method].evaluations(study.ranking, units)
    except SpecError as error:
        yield "ranking", str(error)
