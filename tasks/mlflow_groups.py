"""What a parent run in MLflow stands for, and what it holds beside scores: matrices, orders, results, baselines."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

from papa.encoders.reference import EncoderReference
from papa.spec import StudySpec, TaskSpec
from papa.storage.artifacts import ArtifactReference, read_metadata, verify
from tasks.rank import ORDERS
from tasks.step import identity

if TYPE_CHECKING:
    from mlflow import MlflowClient


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


RESULTS = "results"


def log_files(client: MlflowClient, run: str, group: Group, results: ArtifactReference) -> None:
    """Attach to a parent run what it used and the study's results; the results replace older ones.

    Args:
        client: of the MLflow to log to.
        run: the parent's id.
        group: what it stands for.
        results: the study's results.

    Raises:
        ArtifactError: a file of theirs is damaged.
    """
    have = {file.path for kind in ("constants", "head_order") for file in client.list_artifacts(run, kind)}
    for label, one in zip((*group.constants, *group.rankings), group.artifacts, strict=True):
        folder = one.folder
        files = read_metadata(folder)["files"]
        kind = "head_order" if ORDERS in files else "constants"
        place = f"{kind}/{label.replace(':', '.')}"
        if place in have:
            continue
        verify(folder)
        for name in sorted(files):
            if name == ORDERS or name.endswith(".safetensors"):
                client.log_artifact(run, str(folder / name), place)
    verify(results.folder)
    client.log_artifacts(run, str(results.folder), RESULTS)


BEATS_BASELINE = "papa.beats_baseline"
"""The tag that says whether drops tell anything: ``yes``, ``no``, or why nobody can tell."""


@dataclass(frozen=True)
class Worth:
    """Of one encoder on one task.

    Attributes:
        verdict: the tag's value.
        baselines: score by name; those that were measured.
    """

    verdict: str
    baselines: Mapping[str, float]


def worth_of(results: ArtifactReference) -> dict[tuple[str, str], Worth]:
    """Read it from a study's results, by model and task."""
    from papa.reporting.summary import read_summary
    from papa.reporting.verdicts import verdict

    summary = read_summary(results.folder / "summary.csv").drop_duplicates(["model", "task"])
    return {
        (point["model"], point["task"]): Worth(
            verdict(point),
            {name: point[name] for name in ("always_one_answer", "word_embeddings") if not math.isnan(point[name])},
        )
        for point in summary.to_dict("records")
    }
