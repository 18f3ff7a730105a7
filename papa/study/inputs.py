"""What a study starts from: its encoders and its sources' content, resolved concurrently."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from functools import partial
from itertools import product
from pathlib import Path
from typing import Any, TypeVar

from tqdm import tqdm

from papa.encoders.files import has_weights, weight_patterns
from papa.encoders.precision import chosen_precision
from papa.encoders.reference import EncoderReference, describe_encoder, known_shape, resolve_encoder
from papa.errors import (
    CheckError,
    EncoderError,
    HubUnreachableError,
    PapaError,
    Problem,
    SpecError,
    problems_of,
)
from papa.scores.own import OwnCode
from papa.spec import EncoderSpec, Frozen, HubSource, Source, StudySpec, TaskSpec
from papa.spec.kinds import OF_DECODERS
from papa.spec.methods import HEAD_SCORES, check_evaluations
from papa.spec.orders import scored_by
from papa.study.code import code_of, read_code, with_code, with_orders

_AT_ONCE = 16
"""Requests over the network at the same time."""

Of = TypeVar("Of")


@dataclass(frozen=True)
class StudyInputs:
    """The encoders of a study and the content of its sources.

    Attributes:
        study: the study with every branch of the hub replaced by its commit.
        code: of the user's own, of the tasks that have any.
        matrices: ``ConstantMatrices`` of ``papa.measure`` by the kind that ``study`` calls them.
    """

    study: StudySpec
    encoders: tuple[EncoderReference, ...]
    fingerprints: Mapping[Source, str]
    labels: Mapping[EncoderReference, str]
    code: Mapping[TaskSpec, OwnCode] = field(default_factory=dict)
    matrices: Mapping[str, Any] = field(default_factory=dict)


def check_inputs(
    study: StudySpec, *, shapes_suffice: bool = False, code: Sequence[Path] = ()
) -> StudyInputs:
    """Resolve encoders and sources and check that they fit each other; no row is read. For plans
    ``shapes_suffice``: published ones replace what an unreachable hub does not give. ``code`` are
    files of the user's own, which the study may name.
    """
    resolved = resolve_inputs(study, shapes_suffice=shapes_suffice, code=code)
    if resolved.problems:
        raise CheckError(resolved.problems)
    return resolved.inputs()


def inputs_with(study: StudySpec, encoder: EncoderReference) -> StudyInputs:
    """The inputs of a study whose one encoder is at hand."""
    (spec,), study = study.encoders, with_code(study, {})
    sources = {text.source: _source(text.source) for text in named_texts(study)}
    resolved = ResolvedInputs(study, {spec: encoder}, sources)
    for problem in _misfits(resolved):
        raise problem.error
    return resolved.inputs()


@dataclass
class ResolvedInputs:
    """The inputs of a study as far as they could be resolved, and what is wrong with the others.

    Attributes:
        study: as it was asked for, but for ``precision: auto``, which is resolved.
        sources: each at its commit, and its fingerprint.
        unreachable: the hub's failures that published shapes and sizes make up for.
        assumed: the sources that published sizes replace.
        texts: of the files of code that are given, by what the study calls them.
    """

    study: StudySpec
    encoders: dict[EncoderSpec, EncoderReference] = field(default_factory=dict)
    sources: dict[Source, tuple[Source, str]] = field(default_factory=dict)
    problems: list[Problem] = field(default_factory=list)
    unreachable: list[HubUnreachableError] = field(default_factory=list)
    assumed: set[Source] = field(default_factory=set)
    texts: Mapping[str, str] = field(default_factory=dict)

    def inputs(self) -> StudyInputs:
        """The study's inputs; only where there is no problem."""
        study, encoders = self.pinned(), tuple(self.encoders[spec] for spec in self.study.encoders)
        code = {task: code_of(study, task, self.texts) for task in study.tasks}
        return StudyInputs(
            study=study,
            encoders=encoders,
            fingerprints=dict(self.sources.values()),
            labels=labels_of(encoders),
            code={task: found for task, found in code.items() if found},
        )

    def pinned(self) -> StudySpec:
        """The study with every branch replaced by its commit."""
        constants = []
        for spec in self.study.constants:
            corpus = spec.corpus and self.at_commit(spec.corpus)
            constants.append(spec.model_copy(update={"corpus": corpus}))
        encoders = tuple(
            spec.model_copy(update={"revision": self.encoders[spec].revision})
            for spec in self.study.encoders
        )
        tasks = tuple(map(self.at_commit, self.study.tasks))
        pinned = {"tasks": tasks, "constants": tuple(constants), "encoders": encoders}
        return self.study.model_copy(update=pinned)

    def at_commit(self, task: TaskSpec) -> TaskSpec:
        """The task with its source pinned."""
        return task.model_copy(update={"source": self.sources[task.source][0]})


def resolve_inputs(
    study: StudySpec,
    *,
    shapes_suffice: bool = False,
    fetch_weights: bool = True,
    code: Sequence[Path] = (),
) -> ResolvedInputs:
    """Resolve encoders and sources concurrently, and collect what is wrong with them; as
    ``check_inputs`` does. Without ``fetch_weights`` the digests of encoders that are not here stay
    unknown.
    """
    texts = read_code(code)
    study = with_code(study, texts)
    precision = chosen_precision(
        study.precision, (spec.name for spec in study.encoders), device_of(study)
    )
    resolved = ResolvedInputs(study.model_copy(update={"precision": precision}), texts=texts)
    encoders = {
        spec: f"encoders.{index} ({spec.name})" for index, spec in enumerate(study.encoders)
    }
    sources = {text.source: where for text, where in reversed(named_texts(study).items())}
    if any(isinstance(source, HubSource) for source in sources):
        import datasets  # noqa: F401 — once and here instead of by several threads
    if any(not spec.name.startswith(("/", "embedded/")) for spec in encoders):
        from huggingface_hub import HfApi, get_cached_repo_tree, snapshot_download  # noqa: F401 — likewise

    jobs: dict[Frozen, Callable[[], Any]] = {
        **{spec: partial(describe_encoder, spec, precision) for spec in encoders},
        **{source: partial(_source, source) for source in sources},
    }
    results = run_concurrently(jobs)

    def take(found: dict[Of, Any], what: Of, where: str, result: Any, published: Any) -> None:
        if isinstance(result, HubUnreachableError) and shapes_suffice and published is not None:
            resolved.unreachable.append(result)
            result = published
        if isinstance(result, PapaError):
            resolved.problems.append(Problem(where, result))
        else:
            found[what] = result

    for spec, where in encoders.items():
        result = results[spec]
        if isinstance(result, EncoderReference):
            # Weights are read one after another: several at once would need several times the
            # memory.
            result = _with_weights(spec, result, fetch=fetch_weights)
        take(resolved.encoders, spec, where, result, known_shape(spec, precision))
    for source, where in reversed(sources.items()):
        unknown = source, f"unknown, of {source.model_dump_json()}"
        take(resolved.sources, source, where, results[source], unknown)
        if resolved.sources.get(source) is unknown:
            resolved.assumed.add(source)
    for encoder in [*resolved.encoders.values()][:1]:
        resolved.study = with_orders(resolved.study, texts, encoder.layers, encoder.heads)
    resolved.problems += _misfits(resolved)
    resolved.problems += problems_of(
        "encoders", partial(labels_of, tuple(resolved.encoders.values()))
    )
    return resolved


def _with_weights(
    spec: EncoderSpec, described: EncoderReference, *, fetch: bool
) -> EncoderReference | PapaError:
    """The encoder with its weights checked; as it is where they shall not be fetched."""
    try:
        folder = Path(described.folder)
        if not fetch and described.revision is not None and not has_weights(folder):
            weight_patterns(spec.name, described.revision, folder, f"encoder '{spec.name}'")
            return described
        return resolve_encoder(spec, described.precision, read_again=False)
    except PapaError as error:
        return error


def run_concurrently(jobs: Mapping[Of, Callable[[], Any]]) -> dict[Of, Any]:
    """What each job returns, or the error that a user can mend."""

    def done(job: Callable[[], Any]) -> Any:
        try:
            return job()
        except PapaError as error:
            return error

    # Progress bars share this lock. Made by one of the threads, it would be taken away while others
    # hold it.
    tqdm.get_lock()
    with ThreadPoolExecutor(_AT_ONCE) as threads:
        return dict(zip(jobs, threads.map(done, jobs.values()), strict=True))


def named_texts(study: StudySpec) -> dict[TaskSpec, str]:
    """Every task and every corpus of constants, with its position in the study."""
    names = {task: f"tasks.{index} ({task.name})" for index, task in enumerate(study.tasks)}
    for index, constants in enumerate(study.constants):
        if constants.corpus is not None:
            names.setdefault(
                constants.corpus, f"constants.{index}.corpus ({constants.corpus.name})"
            )
    return names


def laid_out_like(task: TaskSpec, corpus: TaskSpec) -> TaskSpec:
    """Another task's text in the slots of ``task``, so that its average fits."""
    return corpus.model_copy(update={"slots": task.slots})


def _source(source: Source) -> tuple[Source, str]:
    from papa.corpora import fingerprint, pinned

    return pinned(source), fingerprint(source)


def _misfits(resolved: ResolvedInputs) -> Iterator[Problem]:
    """What of the study does not fit one of its encoders."""
    study, encoders = resolved.study, resolved.encoders.values()
    for (index, task), encoder in product(enumerate(study.tasks), encoders):
        where, name = f"tasks.{index} ({task.name})", encoder.name
        if task.most_slots > encoder.positions:
            what = (
                f"task '{task.name}' has slots {task.most_slots}, but encoder '{name}' takes "
                f"{encoder.positions} at most: set the task's slots to {encoder.positions} or less"
            )
            yield Problem(where, EncoderError(what))
        if encoder.causal != (task.kind == "causal"):
            advice = "an encoder: take kind: mlm or text, or a decoder"
            if encoder.causal:
                advice = "a decoder: take kind: causal with head: own, or an encoder"
            what = f"task '{task.name}' is of kind {task.kind}, and '{name}' is {advice}"
            yield Problem(where, EncoderError(what))
    for encoder, (number, kind) in product(encoders, enumerate(study.constants)):
        where = f"constants.{number}"
        if kind.kind in OF_DECODERS and not encoder.causal:
            what = f"'{kind.kind}' is for decoders, and '{encoder.name}' is an encoder: take local"
            yield Problem(where, SpecError(what))
        if kind.kind == "mean_qk":
            # They import PyTorch, which takes long.
            from papa.attention.mean_qk import no_rotation
            from papa.encoders.supported import family_of

            family = family_of(encoder.model_type)
            if family is not None and family.scores_of_means is None:
                yield Problem(where, EncoderError(no_rotation(family.name)))
    for encoder in encoders:
        heads = encoder.layers, encoder.heads
        for scores in study.scores:
            found = len(scores.values), len(scores.values[0])
            if found != heads:
                what = (
                    f"they are of {found[0]} layers of {found[1]} heads, and encoder "
                    f"'{encoder.name}' has {heads[0]} layers of {heads[1]}: give scores of this "
                    "encoder's heads"
                )
                yield Problem(f"scores ({scores.name})", SpecError(what))
        for method in map(scored_by, study.orders):
            if method in HEAD_SCORES:
                asked = method, study.ranking.evaluations, heads[0] * heads[1]
                yield from problems_of("ranking", partial(check_evaluations, *asked))


def device_of(study: StudySpec) -> str:
    """Where encoders run on this machine; float32 does not ask, as importing torch takes long."""
    if study.execution.device != "auto" or study.precision == "float32":
        return study.execution.device
    import torch

    return "cuda" if torch.cuda.is_available() else "cpu"


def labels_of(encoders: tuple[EncoderReference, ...]) -> dict[EncoderReference, str]:
    """Short names, longer where short ones would clash."""
    shorts = Counter(encoder.display for encoder in encoders)
    names = Counter(encoder.name for encoder in encoders)
    labels = {}
    for encoder in encoders:
        label = encoder.display if shorts[encoder.display] == 1 else encoder.name
        if names[encoder.name] > 1:
            label = f"{encoder.name}@{(encoder.revision or encoder.digest)[:12]}"
        labels[encoder] = label
    if len(set(labels.values())) < len(labels):
        raise SpecError("the same encoder is listed twice under different names: keep one")
    return labels
