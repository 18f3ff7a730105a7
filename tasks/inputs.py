"""What a study starts from: its encoders and its sources' content, resolved concurrently."""

from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path
from typing import Any, TypeVar

from tqdm import tqdm

from papa.errors import CheckError, PapaError, Problem, SpecError, problems_of
from papa.models.files import read_configuration_file, weight_files
from papa.models.reference import EncoderReference, describe_encoder, resolve_encoder
from papa.scores.custom import CustomCode
from papa.spec import EncoderSpec, HubSource, Precision, Source, StudySpec, TaskSpec
from papa.storage.artifacts import in_threads
from papa.tasks.code import code_of, read_code, with_code, with_orders
from papa.tasks.misfits import find_misfits, find_unfit_orders
from papa.text.sources import fingerprint, pinned

_Item = TypeVar("_Item")


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
    sources = {
        corpus.source: (pinned(corpus.source), fingerprint(corpus.source))
        for corpus in named_corpora(study)
    }
    resolved = ResolvedInputs(study, {spec: encoder}, sources)
    resolved.problems += find_misfits(resolved.study, resolved.encoders.values())
    return resolved.inputs()


@dataclass
class ResolvedInputs:
    """The inputs of a study as far as they could be resolved, and what is wrong with the others.

    Attributes:
        study: The study as requested, its precision resolved.
        encoders: The encoders that were resolved.
        sources: Each source at its commit, and its fingerprint.
        problems: What is wrong.
        code_files: The source code of each file of custom code, by its name in the study.
        unchecked: What could not be looked at.
        notes: What a reader should know.
    """

    study: StudySpec
    encoders: dict[EncoderSpec, EncoderReference] = field(default_factory=dict)
    sources: dict[Source, tuple[Source, str]] = field(default_factory=dict)
    problems: list[Problem] = field(default_factory=list)
    code_files: Mapping[str, str] = field(default_factory=dict)
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
        update = {"tasks": tasks, "substitutes": tuple(substitutes), "encoders": tuple(specs)}
        study = study.model_copy(update=update)
        code_by_task = {task: code_of(study, task, self.code_files) for task in tasks}
        code = {task: custom for task, custom in code_by_task.items() if custom}
        sources = dict(self.sources.values())
        return StudyInputs(study, encoders, sources, short_names(encoders), code)

    def at_commit(self, task: TaskSpec) -> TaskSpec:
        """Return the task with its source pinned."""
        return task.model_copy(update={"source": self.sources[task.source][0]})


def resolve_inputs(
    study: StudySpec, *, fetch_weights: bool = True, code: Sequence[Path] = ()
) -> ResolvedInputs:
    """Resolve encoders and sources concurrently, and check that they fit each other; no row is
    read. Without ``fetch_weights`` the digests of encoders that are not here stay unknown.
    """
    code_files = read_code(code)
    resolved = ResolvedInputs(study, code_files=code_files)
    try:
        study = resolved.study = with_code(study, code_files)
    except SpecError as error:
        resolved.problems.append(Problem("code", error))
    # Weights take long, and a study that cannot run needs none.
    fetch_weights = fetch_weights and not (resolved.problems or any(find_unfit_orders(study)))
    precision: Precision = "float32" if study.precision == "auto" else study.precision
    positions: dict[Any, str] = {
        spec: f"encoders.{index} ({spec.name})" for index, spec in enumerate(study.encoders)
    }
    for corpus, where in named_corpora(study).items():
        positions.setdefault(corpus.source, where)
    if any(isinstance(requested, HubSource) for requested in positions):
        import datasets  # noqa: F401 — once and here instead of by several threads
    if any(not spec.name.startswith(("/", "embedded/")) for spec in study.encoders):
        from huggingface_hub import HfApi, get_cached_repo_tree, snapshot_download  # noqa: F401 — likewise
    for requested, result in run_concurrently(partial(_resolve_one, precision), positions).items():
        if isinstance(result, EncoderReference):
            if study.precision == "auto":
                result = replace(result, precision=_precision_of_checkpoint(result, study))
            # One after another: several at once would need several times the memory.
            result = result_or_error(_with_weights, requested, result, fetch_weights)
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
        resolved.study = with_orders(resolved.study, code_files, known[0].layers, known[0].heads)
    resolved.problems += find_misfits(resolved.study, known)
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


def result_or_error(job: Callable[..., Any], *arguments: Any) -> Any:
    """Return what a job returns, or the error that a user can correct."""
    try:
        return job(*arguments)
    except PapaError as error:
        return error


def run_concurrently(job: Callable[[_Item], Any], items: Iterable[_Item]) -> dict[_Item, Any]:
    """Run the job on every item in threads; return its ``result_or_error`` results by item."""
    # Progress bars share this lock; one of several threads would take it from the others.
    tqdm.get_lock()
    return in_threads(partial(result_or_error, job), items)


def named_corpora(study: StudySpec) -> dict[TaskSpec, str]:
    """Return the corpora of a study, every task's and every substitute's, with their positions in
    the study.
    """
    names = {task: f"tasks.{index} ({task.name})" for index, task in enumerate(study.tasks)}
    for index, substitute in enumerate(study.substitutes):
        if substitute.corpus:
            where = f"substitutes.{index}.corpus ({substitute.corpus.name})"
            names.setdefault(substitute.corpus, where)
    return names


def _resolve_one(
    precision: Precision, requested: EncoderSpec | Source
) -> EncoderReference | tuple[Source, str]:
    """Return an encoder by its small files; a source at its commit, with its fingerprint."""
    if isinstance(requested, EncoderSpec):
        return describe_encoder(requested, precision)
    return pinned(requested), fingerprint(requested)


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
