"""Whether a study can run: all that it names is checked, and every problem reported at once."""

import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path
from typing import Any, Literal, NamedTuple

import psutil

from papa import errors
from papa.credentials import holds_credentials
from papa.errors import problems_of
from papa.models.files import checked_once, read_configuration_file, weight_files
from papa.models.reference import EncoderReference, check_device, check_precision, load_tokenizer
from papa.resources import resident_bytes, usable_cores, usable_memory
from papa.scores.custom import load_code
from papa.scores.metrics import positive_class
from papa.spec import StudySpec, TaskSpec
from papa.storage.store import Store
from papa.tasks.inputs import (
    ResolvedInputs,
    StudyInputs,
    device_of,
    named_corpora,
    resolve_inputs,
    run_concurrently,
)
from papa.tasks.pipeline import Pipeline, build_pipeline
from papa.tasks.step import Step
from papa.text.rows import check_label_is_named, read_rows
from papa.text.tokens import check_vocabulary, special_tokens_of
from papa.workers import check_answers

_WORKER_BYTES = 0.56e9
"""Memory of a worker with its libraries."""
_SERVER_BYTES = 2e9
"""Memory of the study itself, Prefect's server and Ray."""


Purpose = Literal["run", "check", "plan"]
"""What a study is checked for: the command that checks it."""


class Preview(NamedTuple):
    """What of a task's rows is shown: how many are trained on and scored, classes, warnings."""

    rows: tuple[int, int]
    label_names: tuple[str, ...] | None
    warnings: Sequence[str]


@dataclass(frozen=True)
class Checked:
    """A study that can run: its pipeline, the steps ``missing`` in the store, what is shown of each
    task's rows, and what a reader should know.

    ``workers`` None is one for each core or GPU; ``cluster`` is the address of Ray's, None for this
    machine.
    """

    inputs: StudyInputs
    pipeline: Pipeline
    missing: frozenset[Step]
    workers: int | None
    cluster: str | None
    previews: Mapping[TaskSpec, Preview] = field(default_factory=dict)
    unchecked: Sequence[str] = ()
    notes: Sequence[str] = ()

    @property
    def needs_workers(self) -> bool:
        """Whether a missing step runs an encoder: texts and the report need no worker."""
        return any(step.stage.runs_on != "driver's machine" for step in self.missing)


def check_study(
    study: StudySpec,
    store: Store,
    *,
    workers: int | None = None,
    ray_address: str | None = None,
    purpose: Purpose = "run",
    code: Sequence[Path] = (),
) -> Checked:
    """Check every encoder, tokenizer, dataset, split, column and label of a study, and memory.

    Weights of encoders that are not here are downloaded only for ``purpose="run"``. A ``plan`` may
    be made on another machine than the run's.
    """
    cluster = cluster_address(ray_address)
    workers = workers or study.execution.workers
    resolved = resolve_inputs(study, fetch_weights=purpose == "run", code=code)
    problems = resolved.problems
    runs = purpose != "plan"
    here = runs and cluster is None
    if study.reference:
        from papa.reporting.reference import read_reference

        problems += problems_of("reference", partial(read_reference, study.reference))
    checked: Checked | None = None
    if not problems:
        inputs = resolved.inputs()
        pipeline = build_pipeline(inputs)
        missing = frozenset(step for step in pipeline.steps if not step.is_complete(store))
        checked = Checked(inputs, pipeline, missing, workers, cluster)
        if not missing and purpose != "check":
            # Nothing is to be computed: no text is read.
            return checked
    # With problems it is unknown which steps are missing.
    computes = checked is None or bool(checked.missing)
    _check_encoders(resolved, tokenizers=computes)
    previews = _check_corpora(resolved)
    if here and study.execution.device == "cuda":
        problems += problems_of("execution", partial(check_device, "cuda"))
    if here and resolved.study.precision == "bfloat16":
        check = partial(check_precision, "bfloat16", device_of(resolved.study))
        problems += problems_of("precision", check)
    if cluster and runs and computes:
        problems += problems_of("Ray", partial(check_answers, cluster))
    if checked is None or problems:
        raise errors.CheckError(problems)
    for step in checked.pipeline.steps:
        custom = step.arguments.get("code")
        if custom and runs and step in checked.missing:
            for name in (custom.metric, custom.probe):
                load_code(name)  # Refused where its file was not given.
    if here and checked.missing:
        _check_memory(checked.inputs, workers)
    if 1 not in study.keep:
        no_original = "keep holds no 1: without the original there is no drop to report: add 1"
        resolved.notes[no_original] = None
    by_commit = {resolved.at_commit(corpus): preview for corpus, preview in previews.items()}
    notes = [*resolved.notes]
    return replace(checked, previews=by_commit, unchecked=resolved.unchecked, notes=notes)


def problems_of_part(study: StudySpec, code: Sequence[Path]) -> list[errors.Problem]:
    """Return what is wrong with the encoders, orders and texts of the ``CheckablePart`` of a study
    whose file has faults.
    """
    resolved = resolve_inputs(study, fetch_weights=False, code=code)
    _check_encoders(resolved, tokenizers=True)
    _check_corpora(resolved)
    return resolved.problems


def cluster_address(ray_address: str | None) -> str | None:
    """Return the Ray cluster that a study runs on; None for this machine."""
    address = ray_address or os.environ.get("RAY_ADDRESS")
    if address and holds_credentials(address):
        raise errors.SpecError(
            "Ray's address holds a user or password: remove it, and set RAY_AUTH_TOKEN"
        )
    return address


def _check_encoders(resolved: ResolvedInputs, *, tokenizers: bool) -> None:
    """Report tokenizers that cannot be loaded or cannot write the layout."""

    def fits(encoder: EncoderReference, document: dict[str, Any]) -> bool:
        from papa.models.weights import checked_configuration

        tokenizer = load_tokenizer(encoder)
        special_tokens_of(tokenizer, "causal" if encoder.causal else "text")
        config = checked_configuration(document, Path(encoder.folder), encoder.name)
        check_vocabulary(tokenizer, config.vocab_size, encoder.display)
        return True

    def check(encoder: EncoderReference) -> None:
        document, digest = read_configuration_file(Path(encoder.folder), encoder.name)
        key = f"{encoder.tokenizer_digest} {digest}"
        # A check that is done again imports transformers.
        checked_once("tokenizer fits", key, partial(fits, encoder, document))

    for index, spec in enumerate(resolved.study.encoders):
        where = f"encoders.{index} ({spec.name})"
        encoder = resolved.encoders.get(spec)
        if encoder is None:
            continue
        if encoder.digest.startswith("unknown"):
            resolved.unchecked.append(
                f"{where}: whether its weights fit (not downloaded yet: 'papa run' or "
                "'hf download' fetches them)"
            )
        if tokenizers:
            resolved.problems += problems_of(where, partial(check, encoder))


def _check_corpora(resolved: ResolvedInputs) -> dict[TaskSpec, Preview]:
    """Return facts about each corpus whose source is known; report corpora that cannot be read, and
    tasks that the native head cannot serve.
    """

    def check_head(task: TaskSpec, preview: Preview, encoder: EncoderReference) -> None:
        from papa.native.loading import check_native

        note = check_native(task, encoder, preview.label_names, preview.rows[1])
        if note:
            notes[f"{task.name}: the classes of {encoder.display}'s native head: {note}"] = None

    def read_preview(corpus: TaskSpec) -> Preview:
        rows = read_rows(resolved.at_commit(corpus))
        counts = rows.train.num_rows, rows.validation.num_rows
        return Preview(counts, rows.label_names, rows.warnings)

    corpora = named_corpora(resolved.study)
    notes = resolved.notes
    previews: dict[TaskSpec, Preview] = {}
    readable = [corpus for corpus in corpora if corpus.source in resolved.sources]
    for corpus, result in run_concurrently(read_preview, readable).items():
        where = corpora[corpus]
        label_check = partial(check_label_is_named, resolved.at_commit(corpus))
        resolved.problems += problems_of(where, label_check)
        if isinstance(result, errors.PapaError):
            resolved.problems.append(errors.Problem(where, result))
        else:
            previews[corpus] = result
            notes |= {f"{corpus.name}: {warning}": None for warning in result.warnings}
    for task in filter(previews.get, resolved.study.tasks):
        where = corpora[task]
        preview = previews[task]
        if preview.label_names:
            check_classes = partial(positive_class, task, preview.label_names)
            resolved.problems += problems_of(where, check_classes)
        for encoder in resolved.encoders.values() if task.head == "native" else ():
            if not encoder.digest.startswith("unknown"):
                resolved.problems += problems_of(where, partial(check_head, task, preview, encoder))
    return previews


def _check_memory(inputs: StudyInputs, requested_workers: int | None) -> None:
    """Compare what is free with the least that workers take: a model, and sums of averages."""
    # Prefect's server may have started already, and is among the servers counted below.
    started = psutil.Process().children()
    free = usable_memory() + sum(map(resident_bytes, started))
    slots = max(task.slots for task in inputs.study.tasks)
    entries = slots**2 * max(encoder.layers * encoder.heads for encoder in inputs.encoders)
    weights = max(map(_loaded_bytes, inputs.encoders), default=0)
    need = _WORKER_BYTES + weights + 20 * entries
    workers = requested_workers or usable_cores()
    is_short = workers * need + _SERVER_BYTES > free
    if is_short and requested_workers is None and inputs.study.execution.device != "cpu":
        import torch  # Only here, as it takes long: most machines have memory for a worker a core.

        # With GPUs there is one worker for each.
        workers = torch.cuda.device_count() or workers
        is_short = workers * need + _SERVER_BYTES > free
    if is_short:
        fewer = int((free - _SERVER_BYTES) // need)
        advice = f"use --workers {fewer}" if fewer > 0 else "use a larger machine or --ray-address"
        raise errors.PapaError(
            f"not enough memory: {workers} workers and their servers need at least "
            f"{(workers * need + _SERVER_BYTES) / 1e9:.1f} GB, and {free / 1e9:.1f} GB are free: "
            f"{advice}"
        )


def _loaded_bytes(encoder: EncoderReference) -> int:
    """Return the bytes of a model's weights in memory, whatever they are stored in."""
    paths = weight_files(Path(encoder.folder))
    document, _ = read_configuration_file(Path(encoder.folder), encoder.name)
    stored = document.get("dtype") or document.get("torch_dtype") or "float32"
    # A decoder is loaded in its precision, an encoder in float32, of which linear maps are rounded.
    loaded_width = 2 if encoder.causal and encoder.precision == "bfloat16" else 4
    stored_width = 2 if stored in ("bfloat16", "float16") else 4
    return sum(path.stat().st_size for path in paths) * loaded_width // stored_width
