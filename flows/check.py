"""Whether a study can run: everything it names is checked before anything is computed, and every
problem is reported.

Encoders and datasets are requested concurrently. Nothing here needs Ray, Prefect or MLflow.
"""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

from flows.environment import check_file_size, missing_engines
from papa.corpora.corpus import RowTokens
from papa.corpora.preview import Preview, preview
from papa.corpora.tokens import check_mask, check_vocabulary, special_tokens_for
from papa.credentials import holds_credentials
from papa.encoders.files import CONFIGURATION, remembered
from papa.encoders.precision import check_device, check_precision
from papa.encoders.reference import EncoderReference, check_trace, load_tokenizer, resolve_encoder
from papa.errors import (
    CheckError,
    HubUnreachableError,
    PapaError,
    Problem,
    SpecError,
    missing_from,
    problems_of,
)
from papa.scores.metrics import positive_class
from papa.scores.own import loaded
from papa.spec import EncoderSpec, StudySpec, TaskSpec
from papa.spec.orders import is_label_free, scored_by
from papa.storage.artifacts import read_metadata, sha256_of_file
from papa.study.inputs import (
    ResolvedInputs,
    StudyInputs,
    device_of,
    laid_out_like,
    named_texts,
    resolve_inputs,
    run_concurrently,
)
from papa.study.steps import StudySteps, study_steps, text_step
from papa.study.store import Store


@dataclass(frozen=True)
class Checked:
    """A study that can run: on how many workers, None for one for each core or GPU, and on which
    Ray cluster, None for this machine.
    """

    inputs: StudyInputs
    steps: StudySteps
    previews: Mapping[TaskSpec, Preview]
    unchecked: tuple[str, ...]
    to_run: bool
    workers: int | None
    cluster: str | None
    notes: tuple[str, ...] = ()

    @property
    def warnings(self) -> list[str]:
        """What the study can run without and a reader would miss, a sentence each."""
        found = [missing_engines()]
        if 1 not in self.inputs.study.fractions:
            found.append(
                "fractions have no 1: without the original there is no drop to report: add 1"
            )
        return [*filter(None, found)]


def check_study(
    study: StudySpec,
    store: Store,
    *,
    workers: int | None = None,
    ray_address: str | None = None,
    for_plan: bool = False,
    fetch_weights: bool = True,
    code: Sequence[Path] = (),
) -> Checked:
    """Check every encoder, tokenizer, dataset, split, column and label of a study, and memory and
    disk.

    A study that is checked ``for_plan`` need not run here: published shapes and sizes suffice where
    the hub does not answer. Else encoders that are not here are downloaded, as a run needs, unless
    ``fetch_weights`` is False. ``code`` are files of the user's own, which the study may name.
    """
    check_file_size()
    fetch_weights = fetch_weights and not for_plan
    cluster = cluster_address(ray_address)
    if cluster and study.precision == "auto":
        # What its workers' machines can do is not known here.
        study = study.model_copy(update={"precision": "float32"})
    resolved = resolve_inputs(
        study, shapes_suffice=for_plan, fetch_weights=fetch_weights, code=code
    )
    problems = resolved.problems
    problems += _tokenizers(resolved)
    previews, unchecked = _previews(resolved, store, for_plan)
    problems += _positive_classes(study.tasks, previews)
    notes = [
        f"{name}: {said}"
        for name, said in dict.fromkeys(
            (text.name, said) for text, seen in previews.items() for said in seen.warnings
        )
    ]
    if any(task.head == "own" for task in study.tasks):
        problems += _own_heads(resolved, previews, notes)
    here, workers = not for_plan and cluster is None, workers or study.execution.workers
    if here and study.execution.device == "cuda":
        problems += problems_of("execution", partial(check_device, "cuda"))
    if here and study.precision != "auto":
        asked = study.precision, device_of(study)
        problems += problems_of("precision", partial(check_precision, *asked))
    if problems:
        raise CheckError(problems)
    inputs = resolved.inputs()
    steps = study_steps(inputs)
    to_run = not all(step.is_complete(store) for step in steps.steps)
    for step in steps.steps if inputs.code and not for_plan else ():
        own = step.arguments.get("code")
        if own and not step.is_complete(store):
            for named in (own.metric, own.probe):
                loaded(named)  # Refused where its file was not given.
    if to_run and fetch_weights and not problems:
        problems = _changed_weights(inputs)
    if problems:
        raise CheckError(problems)
    by_commit = {resolved.at_commit(text): preview for text, preview in previews.items()}
    return Checked(
        inputs, steps, by_commit, tuple(unchecked), to_run, workers, cluster, tuple(notes)
    )


def cluster_address(ray_address: str | None) -> str | None:
    """The Ray cluster that a study runs on; None for this machine."""
    address = ray_address or os.environ.get("RAY_ADDRESS")
    if address and holds_credentials(address):
        raise SpecError(
            "Ray's address holds a user or password: leave it out, and set RAY_AUTH_TOKEN"
        )
    return address


def _previews(
    resolved: ResolvedInputs, store: Store, for_plan: bool
) -> tuple[dict[TaskSpec, Preview], list[str]]:
    """What is seen of each text, and what could not be checked; it adds its problems."""
    texts, known = named_texts(resolved.study), resolved.sources.keys() - resolved.assumed
    jobs = {
        text: partial(_preview, resolved, store, text) for text in texts if text.source in known
    }
    previews: dict[TaskSpec, Preview] = {}
    unchecked = []
    if resolved.unreachable:
        missing = missing_from(resolved.unreachable)
        unchecked.append(f"{missing}; published shapes and sizes are used instead")
    for where, encoder in _encoders(resolved):
        if encoder.folder and encoder.digest.startswith("unknown"):
            unchecked.append(f"{where}: whether its weights fit (they are not downloaded yet)")
    for text, result in run_concurrently(jobs).items():
        if isinstance(result, HubUnreachableError) and for_plan:
            unchecked.append(f"{texts[text]}: {result}")
        elif isinstance(result, PapaError):
            resolved.problems.append(Problem(texts[text], result))
        else:
            seen, errors = result
            resolved.problems += [Problem(texts[text], error) for error in errors]
            if seen is not None:
                previews[text] = seen
                unchecked += [f"{texts[text]}: {seen.unchecked}"] if seen.unchecked else []
    return previews, unchecked


def _preview(
    resolved: ResolvedInputs, store: Store, text: TaskSpec
) -> tuple[Preview | None, Sequence[PapaError]]:
    cached = _tokenised(resolved, store, text)
    return preview(resolved.at_commit(text)) if cached is None else (cached, ())


def _encoders(resolved: ResolvedInputs) -> Iterator[tuple[str, EncoderReference]]:
    """The encoders that are known, with their positions in the study."""
    for index, spec in enumerate(resolved.study.encoders):
        if spec in resolved.encoders:
            yield f"encoders.{index} ({spec.name})", resolved.encoders[spec]


def _tokenised(resolved: ResolvedInputs, store: Store, text: TaskSpec) -> Preview | None:
    """The preview from the store, of a text that is tokenised for every encoder of the study."""
    study = resolved.study
    if len(resolved.encoders) < len(study.encoders):
        return None
    content = resolved.sources[text.source][1]
    corpora = [
        text_step("", encoder, resolved.at_commit(laid_out), study.layout, content)
        for encoder in resolved.encoders.values()
        for laid_out in _laid_out(study, text)
    ]
    if not all(corpus.is_complete(store) for corpus in corpora):
        return None
    metadata = read_metadata(corpora[0].folder(store))
    rows, names = metadata["rows"], metadata["label_names"]
    labelled = metadata.get("labelled_tokens")
    tokens = RowTokens(
        metadata["tokens"]["train"] / rows["train"], labelled and labelled["train"] / rows["train"]
    )
    return Preview(
        (rows["train"], rows["validation"]),
        names and tuple(names),
        tokens=tokens,
        warnings=metadata["notes"].get("warnings", ()),
    )


def _laid_out(study: StudySpec, text: TaskSpec) -> list[TaskSpec]:
    """A task in its own slots, or a corpus in those of each task that it serves."""
    return [text] if text in study.tasks else [laid_out_like(task, text) for task in study.tasks]


def _tokenizers(resolved: ResolvedInputs) -> Iterator[Problem]:
    """Tokenizers that cannot be loaded or cannot write the layout."""
    methods = filter(None, map(scored_by, resolved.study.orders))
    ranked = not all(map(is_label_free, methods))
    masks = any(
        text.kind == "mlm" or (ranked and text.unlabelled and text.head == "probe")
        for text in named_texts(resolved.study)
    )
    for where, encoder in _encoders(resolved):
        if encoder.folder:
            yield from problems_of(where, partial(_tokenizer, encoder, masks=masks))


def _tokenizer(encoder: EncoderReference, *, masks: bool) -> None:
    def writes_the_layout() -> bool:
        from papa.encoders.supported import read_configuration

        tokenizer = load_tokenizer(encoder)
        special_tokens = special_tokens_for("causal" if encoder.causal else "text", tokenizer)
        check_vocabulary(
            tokenizer, read_configuration(folder, encoder.name).vocab_size, encoder.display
        )
        if masks:
            check_mask(special_tokens)
        return True

    folder = Path(encoder.folder)
    content = {
        "tokenizer": encoder.tokenizer_digest,
        "configuration": sha256_of_file(folder / CONFIGURATION),
        "masks": masks,
    }
    remembered("tokenizer writes the layout", content, writes_the_layout)


def _positive_classes(
    tasks: Sequence[TaskSpec], previews: Mapping[TaskSpec, Preview]
) -> Iterator[Problem]:
    """Tasks whose F1 would be of a class that is none."""
    for index, task in enumerate(tasks):
        if names := previews[task].label_names if task in previews else None:
            where = f"tasks.{index} ({task.name})"
            yield from problems_of(where, partial(positive_class, task, names))


def _own_heads(
    resolved: ResolvedInputs, previews: Mapping[TaskSpec, Preview], notes: list[str]
) -> Iterator[Problem]:
    """Models whose own head cannot serve a task, of those that are downloaded; which class is which
    of the others goes into ``notes``.
    """
    from papa.probes.own_model import check_own

    def look(task: TaskSpec, encoder: EncoderReference, *of_text: Any) -> None:
        if told := check_own(task, encoder, *of_text):
            notes.append(f"{task.name}: the classes of {encoder.display}'s own head: {told}")

    for index, task in enumerate(resolved.study.tasks):
        if task.head != "own" or task not in previews:
            continue
        names, (_, rows) = previews[task].label_names, previews[task].rows or (None, None)
        for encoder in resolved.encoders.values():
            if not encoder.digest.startswith("unknown"):
                fits = partial(look, task, encoder, names, rows)
                yield from problems_of(f"tasks.{index} ({task.name})", fits)


def _changed_weights(inputs: StudyInputs) -> list[Problem]:
    """Encoders whose weights are not what the file system made believe; what is computed with is
    read first.
    """

    def same_weights(spec: EncoderSpec, encoder: EncoderReference) -> None:
        found = resolve_encoder(spec, encoder.precision)
        check_trace(f"encoder '{spec.name}'", Path(encoder.folder), encoder.digest, found.digest)

    problems = []
    both = zip(inputs.study.encoders, inputs.encoders, strict=True)
    for index, (spec, encoder) in enumerate(both):
        same = partial(same_weights, spec, encoder)
        problems += problems_of(f"encoders.{index} ({spec.name})", same)
    return problems
