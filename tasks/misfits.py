"""What in a study does not fit its tasks or encoders, before anything is downloaded or computed."""

from collections.abc import Iterable, Iterator

from papa.errors import Problem, SpecError, meant
from papa.models.reference import EncoderReference
from papa.ranking.orders import HEAD_ORDERS, SCORING_METHODS, is_known, scoring_method
from papa.spec import StudySpec, SubstituteSpec, TaskSpec
from papa.spec.orders import REVERSED
from papa.spec.substitutes import entry_of


def find_misfits(study: StudySpec, encoders: Iterable[EncoderReference]) -> list[Problem]:
    """Return what in a study does not fit its tasks or one of its encoders."""
    return [Problem(where, SpecError(reason)) for where, reason in _misfits(study, encoders)]


def _misfits(study: StudySpec, encoders: Iterable[EncoderReference]) -> Iterator[tuple[str, str]]:
    """Yield where something does not fit, and why."""
    yield from find_unfit_orders(study)
    for index, substitute in enumerate(study.substitutes):
        for task in study.tasks:
            for reason in _unfit_substitute(substitute, task):
                yield f"substitutes.{index} ({substitute.label})", reason
    for task in study.tasks:
        if study.layout.segment_ids == "stay" and (task.kind, task.head) == ("pair", "native"):
            yield (
                "layout",
                f"the native head of task {task.name} needs segment_ids: follow for pairs",
            )
    methods = sorted(
        SCORING_METHODS.keys() & {*map(scoring_method, filter(is_known, study.orders))}
    )
    for encoder in encoders:
        yield from _misfits_of_encoder(encoder, study)
        units = encoder.layers * encoder.heads // encoder.heads_per_unit(study.unit)
        for method in methods:
            try:
                SCORING_METHODS[method].evaluations(study.ranking, units)
            except SpecError as error:
                yield "ranking", str(error)


def _unfit_substitute(substitute: SubstituteSpec, task: TaskSpec) -> Iterator[str]:
    """Yield why a task cannot have a substitute."""
    entry = entry_of(substitute.kind)
    name = f"task {task.name}"
    if task.kind == "causal" and not entry.decoders:
        yield (
            f"it is for encoders, and {name} is for a decoder: use average, relative or previous"
        )
    if (task.validation_slots or 0) > task.slots and not entry.any_length:
        yield (
            f"it has one matrix for {task.slots} slots, and {name} has validation_slots "
            f"{task.validation_slots}: use relative or streaming, or equal numbers of slots"
        )
    if substitute.is_trained and (task.custom_probe or task.head == "native"):
        setting = "custom_probe" if task.custom_probe else "head: native"
        yield f"it needs PAPA's own probe, and {name} has {setting}: leave out one of them"


def find_unfit_orders(study: StudySpec) -> Iterator[tuple[str, str]]:
    """Yield each order that is unknown or that a task of the study cannot have: where, and why."""
    fitting = [
        name for name in (*HEAD_ORDERS, *SCORING_METHODS) if not [*_unfit_method(study, name)]
    ]
    advice = f": give one of {', '.join(fitting)}, scores:FILE or module:name, or reversed: and one"
    for index, order in enumerate(study.orders):
        if is_known(order):
            reasons = [*_unfit_method(study, scoring_method(order) or "")]
        else:
            near = meant(order.removeprefix(REVERSED), fitting)
            reasons = [f"there is no order '{order}'{near}"]
        for reason in reasons:
            yield f"orders.{index}", f"{reason}{advice}"
            advice = ""  # Once is enough.


def _unfit_method(study: StudySpec, method: str) -> Iterator[str]:
    """Yield, for each task whose heads the method cannot score, the reason."""
    entry = SCORING_METHODS.get(method)
    if entry is None:
        return
    if not entry.in_studies:
        yield f"{method} is a score of models in memory alone"
        return
    for task in study.tasks:
        of_words = task.kind in ("mlm", "causal") and task.head == "native"
        if entry.native_tasks == "words" and not of_words:
            yield (
                f"{method} follows the loss of a language model's native head, and task "
                f"{task.name} has none"
            )
        if entry.native_tasks == "with a loss" and task.ranks_by_divergence:
            yield (
                f"{method} follows the loss against labels, and task {task.name} compares the "
                f"model with its own answers (metric {task.metric})"
            )
        # Hidden states are kept by a plain encoder alone.
        if method == "self_lambda" and task.kind == "causal" and task.head == "native":
            yield (
                f"{method} scores no heads for task {task.name}, which is of kind {task.kind} "
                "with head: native"
            )


def _misfits_of_encoder(encoder: EncoderReference, study: StudySpec) -> Iterator[tuple[str, str]]:
    """Yield what in the study does not fit an encoder: its unit, tasks, substitutes, scores."""
    name = encoder.name
    if study.unit == "kv_group" and encoder.heads_per_unit(study.unit) == 1:
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
