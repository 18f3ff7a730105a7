"""What a parent run stands for."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

from papa.artifacts import ArtifactReference
from papa.encoders.reference import EncoderReference
from papa.spec import StudySpec, TaskSpec
from tasks.step import identity


@dataclass(frozen=True)
class Group:
    """One encoder on one task: a parent run.

    Attributes:
        model: the encoder's name in tables.
        encoder, task: which.
        points: the numbers of its points in the study.
        constants, rankings: labels of the constant matrices and rankings it used.
        artifacts: theirs, constants first.
    """

    model: str
    encoder: EncoderReference
    task: TaskSpec
    points: range
    constants: tuple[str, ...]
    rankings: tuple[str, ...]
    artifacts: tuple[ArtifactReference, ...] = ()

    @property
    def name(self) -> str:
        """What its run is called."""
        return f"{self.model} · {self.task.name}"

    def filled(self, artifacts: Sequence[ArtifactReference]) -> Group:
        """The group with its artifacts, in the order of ``constants`` and ``rankings``."""
        return replace(self, artifacts=tuple(artifacts))

    def read(self, study: StudySpec) -> dict[str, Any]:
        """What of it, besides the artifacts, decides what is logged."""
        return {
            "parameters": self.parameters(study),
            "points": [self.points.start, self.points.stop],
            "constants": self.constants,
            "rankings": self.rankings,
        }

    def parameters(self, study: StudySpec) -> dict[str, Any]:
        """What identifies a parent run; repeated on its children, so that a search finds them."""
        task, probe = self.task, self.task.probe
        return {
            "model": self.model,
            "encoder": self.encoder.name,
            "encoder_revision": self.encoder.revision,
            "encoder_digest": self.encoder.digest[:16],
            **{name: value for name, value in identity(self.encoder).items() if name != "digest"},
            "task": task.name,
            "kind": task.kind,
            "metric": task.metric,
            "positive": task.positive,
            "slots": task.slots,
            "train_rows": task.train_rows,
            "validation_rows": task.validation_rows,
            "sample_seed": task.sample_seed,
            **{f"probe.{name}": value for name, value in probe.model_dump(mode="json").items()},
            **{f"ranking.{name}": value for name, value in study.ranking.model_dump(mode="json").items()},
            **{f"layout.{name}": value for name, value in study.layout.model_dump(mode="json").items()},
            "features.dtype": study.features.dtype,
        }
