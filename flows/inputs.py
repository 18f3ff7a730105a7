"""What a study starts from, checked before anything is computed."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass

from flows.costs import Size, size_of
from papa.encoders.reference import EncoderReference, check_precision, resolve_encoder
from papa.encoders.shapes import known_shape
from papa.errors import EncoderError, HubUnreachableError, SpecError
from papa.spec import EncoderSpec, Precision, Source, StudySpec, TaskSpec


@dataclass(frozen=True)
class StudyInputs:
    """The encoders of a study and the content of its sources.

    Attributes:
        study: the specification with the commits that its encoders' branches stood for.
        encoders: in the study's order.
        fingerprints: what each source holds, by source.
        sizes: about how much text each task has, by source and rows asked for.
        labels: each encoder's name in tables.
    """

    study: StudySpec
    encoders: tuple[EncoderReference, ...]
    fingerprints: Mapping[Source, str]
    sizes: Mapping[TaskSpec, Size]
    labels: Mapping[EncoderReference, str]

    def label(self, encoder: EncoderReference) -> str:
        return self.labels[encoder]

    def fingerprint(self, task: TaskSpec) -> str:
        return self.fingerprints[task.source]

    def size(self, task: TaskSpec) -> Size:
        return self.sizes[task]


def check_inputs(study: StudySpec, *, shapes_suffice: bool = False) -> StudyInputs:
    """Resolve encoders and sources and check that they fit each other; no weight is loaded, no row read.

    Args:
        study: the resolved specification.
        shapes_suffice: for plans: where an encoder cannot be had, its published shape stands for it.

    Raises:
        EncoderError: an encoder is missing, unsupported, or has fewer positions than a task has slots.
        DataError: a source is missing.
        SpecError: two encoders are the same.
    """
    from papa.corpora import fingerprint

    texts = dict.fromkeys(text for task in study.tasks for text in _texts(study, task))
    sources = dict.fromkeys(text.source for text in texts)
    fingerprints = {source: fingerprint(source) for source in sources}
    encoders = tuple(_encoder(spec, study.precision, shapes_suffice) for spec in study.encoders)
    for encoder in encoders:
        for task in study.tasks:
            if task.slots > encoder.positions:
                raise EncoderError(
                    f"task '{task.name}' has slots {task.slots}, but encoder '{encoder.name}' takes "
                    f"{encoder.positions} at most: set the task's slots to {encoder.positions} or less"
                )
    return StudyInputs(
        study=_at_commits(study, encoders),
        encoders=encoders,
        fingerprints=fingerprints,
        sizes={text: size_of(text) for text in texts},
        labels=_labels(encoders),
    )


def _at_commits(study: StudySpec, encoders: tuple[EncoderReference, ...]) -> StudySpec:
    """The study with commits where branches stood, so that what is stored says what was measured."""
    specs = zip(study.encoders, encoders, strict=True)
    found = tuple(spec.model_copy(update={"revision": encoder.revision or spec.revision}) for spec, encoder in specs)
    return study.model_copy(update={"encoders": found})


def _encoder(spec: EncoderSpec, precision: Precision, shapes_suffice: bool) -> EncoderReference:
    known = known_shape(spec, precision) if shapes_suffice else None
    try:
        return resolve_encoder(spec, precision)
    except HubUnreachableError:
        if known is None:
            raise
        return known


def check_device(study: StudySpec, cluster: str | None) -> None:
    """Refuse half precision where encoders would run on this machine's CPU; a cluster's workers refuse it themselves.

    Raises:
        SpecError: that is what the study asks for.
    """
    if study.precision == "float32" or cluster:
        return
    import torch

    device = study.execution.device
    check_precision(study.precision, ("cuda" if torch.cuda.is_available() else "cpu") if device == "auto" else device)


def _texts(study: StudySpec, task: TaskSpec) -> list[TaskSpec]:
    """The task itself and, laid out like it, the corpora that constants are averaged over."""
    others = [spec.corpus for spec in study.constants if spec.corpus is not None]
    return [task, *(laid_out_like(task, other) for other in others)]


def laid_out_like(task: TaskSpec, corpus: TaskSpec) -> TaskSpec:
    """Another task's text in the slots of ``task``, so that its average fits."""
    return corpus.model_copy(update={"slots": task.slots})


def _labels(encoders: tuple[EncoderReference, ...]) -> dict[EncoderReference, str]:
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
        raise SpecError("encoders: the same encoder stands twice under different names: keep one")
    return labels
