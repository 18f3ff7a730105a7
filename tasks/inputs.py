"""What a study starts from: its encoders and its sources' content, resolved concurrently."""

from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from itertools import product
from pathlib import Path
from typing import Any, TypeVar

from tqdm import tqdm

from papa.errors import CheckError, HubUnreachableError, PapaError, Problem, SpecError, problems_of
from papa.models.files import read_configuration_file, weight_files
from papa.models.reference import EncoderReference, describe_encoder, known_shape, resolve_encoder
from papa.ranking.orders import HEAD_SCORES, order_named, scoring_method
from papa.scores.custom import CustomCode
from papa.spec import EncoderSpec, HubSource, Precision, Source, StudySpec, TaskSpec
from papa.spec.substitutes import entry_of
from papa.tasks.code import code_of, read_code, with_code, with_orders
from papa.tasks.context import in_threads
from papa.text.sources import fingerprint, pinned

Of = TypeVar("Of")


@dataclass(frozen=True)
class StudyInputs:
    """What a study's steps are built from.

    Attributes:
        study: The study, with every branch of the hub replaced by its commit.
        encoders: Its encoders.
        fingerprints: What identifies the content of each source.
        encoder_labels: The encoders' short names in tables.
        code: The custom metric, probe or score of each task that has any.
        matrices: Matrices that a user gave ``papa.measure``, by the kind that ``study`` calls them.
    """

    study: StudySpec
    encoders: tuple[EncoderReference, ...]
    fingerprints: Mapping[Source, str]
    encoder_labels: Mapping[EncoderReference, str]
    code: Mapping[TaskSpec, CustomCode] = field(default_factory=dict)
    matrices: Mapping[str, Any] = field(default_factory=dict)


def inputs_with(study: StudySpec, encoder: EncoderReference) -> StudyInputs:
    """Return the inputs of a study whose one encoder is at hand."""
    (spec,) = study.encoders
    study = with_code(study, {})
    sources = {text.source: _described(None, text.source) for text in named_texts(study)}
    resolved = ResolvedInputs(study, {spec: encoder}, sources)
    for _, reason in _misfits(resolved):
        raise SpecError(reason)
    return resolved.inputs()


@dataclass
class ResolvedInputs:
    """The inputs of a study as far as they could be resolved, and what is wrong with the others:
    the study as asked for, its precision resolved; each source at its commit, with its fingerprint;
    the hub's failures that published shapes and sizes make up for; the ``texts`` of files of code,
    by what the study calls them; what could not be looked at, and what a reader should know.
    """

    study: StudySpec
    encoders: dict[EncoderSpec, EncoderReference] = field(default_factory=dict)
    sources: dict[Source, tuple[Source, str]] = field(default_factory=dict)
    problems: list[Problem] = field(default_factory=list)
    unreachable: list[HubUnreachableError] = field(default_factory=list)
    texts: Mapping[str, str] = field(default_factory=dict)
    unchecked: list[str] = field(default_factory=list)
    notes: dict[str, None] = field(default_factory=dict)

    def inputs(self) -> StudyInputs:
        """Return the study's inputs, with every branch replaced by its commit, where nothing is
        wrong.
        """
        if self.problems:
            raise CheckError(self.problems)
        study = self.study
        encoders = tuple(self.encoders[spec] for spec in self.study.encoders)
        substitutes = (
            spec.model_copy(update={"corpus": spec.corpus and self.at_commit(spec.corpus)})
            for spec in study.substitutes
        )
        specs = (
            spec.model_copy(update={"revision": self.encoders[spec].revision})
            for spec in study.encoders
        )
        tasks = tuple(map(self.at_commit, study.tasks))
        pinned = {"tasks": tasks, "substitutes": tuple(substitutes), "encoders": tuple(specs)}
        study = study.model_copy(update=pinned)
        code_by_task = {task: code_of(study, task, self.texts) for task in tasks}
        code = {task: custom for task, custom in code_by_task.items() if custom}
        sources = dict(self.sources.values())
        return StudyInputs(study, encoders, sources, short_names(encoders), code)

    def at_commit(self, task: TaskSpec) -> TaskSpec:
        """Return the task with its source pinned."""
        return task.model_copy(update={"source": self.sources[task.source][0]})


def resolve_inputs(
    study: StudySpec,
    *,
    shapes_suffice: bool = False,
    fetch_weights: bool = True,
    code: Sequence[Path] = (),
) -> ResolvedInputs:
    """Resolve encoders and sources concurrently, and check that they fit each other; no row is
    read. Where ``shapes_suffice``, published ones replace what an unreachable hub does not give;
    without ``fetch_weights`` the digests of encoders that are not here stay unknown.
    """
    texts = read_code(code)
    study = with_code(study, texts)
    for order in study.orders:
        order_named(order)  # Refused before anything is downloaded.
    names = [spec.name for spec in study.encoders]
    precision: Precision = "float32" if study.precision == "auto" else study.precision
    resolved = ResolvedInputs(study, texts=texts)
    positions: dict[Any, str] = {
        spec: f"encoders.{index} ({spec.name})" for index, spec in enumerate(study.encoders)
    }
    for text, where in named_texts(study).items():
        positions.setdefault(text.source, where)
    if any(isinstance(requested, HubSource) for requested in positions):
        import datasets  # noqa: F401 — once and here instead of by several threads
    if any(not name.startswith(("/", "embedded/")) for name in names):
        from huggingface_hub import HfApi, get_cached_repo_tree, snapshot_download  # noqa: F401 — likewise
    for requested, result in run_concurrently(partial(_described, precision), positions).items():
        if isinstance(result, EncoderReference):
            if study.precision == "auto":
                result = replace(result, precision=_precision_of_checkpoint(result, study))
            # One after another: several at once would need several times the memory.
            result = attempted(_with_weights, requested, result, fetch_weights)
        if isinstance(result, HubUnreachableError) and shapes_suffice:
            unreachable = result
            if isinstance(requested, EncoderSpec):
                result = known_shape(requested, precision) or unreachable
            else:
                result = (requested, f"unknown, of {requested.model_dump_json()}")
            if result is not unreachable:
                resolved.unreachable.append(unreachable)
        if isinstance(result, PapaError):
            resolved.problems.append(Problem(positions[requested], result))
        elif isinstance(result, EncoderReference):
            resolved.encoders[requested] = result
        else:
            resolved.sources[requested] = result
    known = tuple(resolved.encoders.values())
    precisions = {encoder.precision for encoder in known} or {precision}
    if len(precisions) == 1:
        resolved.study = resolved.study.model_copy(update={"precision": precisions.pop()})
    if known:
        resolved.study = with_orders(resolved.study, texts, known[0].layers, known[0].heads)
    resolved.problems += [Problem(where, SpecError(reason)) for where, reason in _misfits(resolved)]
    resolved.problems += problems_of("encoders", partial(short_names, known))
    return resolved


def _precision_of_checkpoint(encoder: EncoderReference, study: StudySpec) -> Precision:
    """Return the precision of the stored weights where encoders run on a GPU. By measurement no
    flag of a CPU tells where bfloat16 is faster (docs/performance.md).
    """
    document, _ = read_configuration_file(Path(encoder.folder), f"encoder '{encoder.name}'")
    stored = document.get("dtype") or document.get("torch_dtype")
    return "bfloat16" if stored == "bfloat16" and device_of(study) == "cuda" else "float32"


def _with_weights(spec: EncoderSpec, described: EncoderReference, fetch: bool) -> Any:
    """Return the encoder with its weights checked; unchanged where they are not to be
    downloaded.
    """
    if fetch or described.revision is None or weight_files(Path(described.folder)):
        return resolve_encoder(spec, described.precision)
    return described


def attempted(job: Callable[..., Any], *arguments: Any) -> Any:
    """Return what a job returns, or the error that a user can correct."""
    try:
        return job(*arguments)
    except PapaError as error:
        return error


def run_concurrently(job: Callable[[Of], Any], each: Iterable[Of]) -> dict[Of, Any]:
    """Run the job on every item in threads; return its ``attempted`` results by item."""
    # Progress bars share this lock; one of several threads would take it from the others.
    tqdm.get_lock()
    return in_threads(partial(attempted, job), each)


def named_texts(study: StudySpec) -> dict[TaskSpec, str]:
    """Return every task and every corpus of constant matrices, with its position in the study."""
    names = {task: f"tasks.{index} ({task.name})" for index, task in enumerate(study.tasks)}
    for index, substitute in enumerate(study.substitutes):
        if substitute.corpus:
            where = f"substitutes.{index}.corpus ({substitute.corpus.name})"
            names.setdefault(substitute.corpus, where)
    return names


def _described(precision: Any, requested: Any) -> Any:
    """Return an encoder by its small files; a source at its commit, with its fingerprint."""
    if isinstance(requested, EncoderSpec):
        return describe_encoder(requested, precision)
    return pinned(requested), fingerprint(requested)


def _misfits(resolved: ResolvedInputs) -> Iterator[tuple[str, str]]:
    """Yield what in the study does not fit its tasks or one of its encoders: where, and why."""
    study = resolved.study
    methods = sorted(HEAD_SCORES.keys() & set(map(scoring_method, study.orders)))
    for method in methods:
        if not HEAD_SCORES[method].in_studies:
            yield "orders", f"{method} is a score of models in memory alone: take another order"
    for task, method in product(study.tasks, methods):
        yield from _unscored_task(task, method)
    for encoder in resolved.encoders.values():
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


def device_of(study: StudySpec) -> str:
    """Return where encoders run on this machine; float32 does not ask, as importing torch takes
    long.
    """
    if study.execution.device != "auto" or study.precision == "float32":
        return study.execution.device
    import torch

    return "cuda" if torch.cuda.is_available() else "cpu"


def short_names(encoders: tuple[EncoderReference, ...]) -> dict[EncoderReference, str]:
    """Return short names, longer where short ones would be equal."""
    shorts = Counter(encoder.display for encoder in encoders)
    names = Counter(encoder.name for encoder in encoders)
    labels = {}
    for encoder in encoders:
        label = encoder.display if shorts[encoder.display] == 1 else encoder.name
        if names[encoder.name] > 1:
            label = f"{encoder.name}@{(encoder.revision or encoder.digest)[:12]}"
        labels[encoder] = label
    if len(set(labels.values())) < len(labels):
        raise SpecError("two names in encoders are the same encoder: keep one")
    return labels
