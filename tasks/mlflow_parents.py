"""What MLflow says of one encoder on one task, and of its cells: parameters, tags, a description."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import Any

from papa.encoders.reference import EncoderReference
from papa.spec import StudySpec, TaskSpec
from papa.spec.cells import Cell, constant_count
from papa.storage.artifacts import ArtifactReference, sha256_of_json
from papa.study.results import ProbedCell, ScoredCell
from papa.study.step import Step, identity
from tasks.mlflow_texts import LoggedText


@dataclass(frozen=True)
class ParentRun:
    """One encoder on one task.

    Attributes:
        encoder_label: the encoder's name in tables.
        encoder, task: which.
        texts: what it is trained, scored, ranked and averaged on.
    """

    encoder_label: str
    encoder: EncoderReference
    task: TaskSpec
    texts: tuple[LoggedText, ...]

    @property
    def name(self) -> str:
        """What its run is called."""
        return f"{self.encoder_label} · {self.task.name}"

    @property
    def tags(self) -> dict[str, str]:
        """What people look for in MLflow."""
        return {"encoder": self.encoder_label, "task": self.task.name, "metric": self.task.metric}

    @property
    def place(self) -> tuple[str, str]:
        """The encoder's label and the task's name."""
        return self.encoder_label, self.task.name

    def parameters(self, study: StudySpec) -> dict[str, Any]:
        """What identifies a parent run; repeated on its children, so that a search finds them."""
        task, probe = self.task, self.task.probe
        return {
            "model": self.encoder_label,
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

    def description(self) -> str:
        """What its page says, in Markdown, before there are scores."""
        return (
            f"**{self.encoder_label}** on **{self.task.name}**: {self.task.metric} of probes on the frozen encoder "
            "while its heads' attention matrices are replaced with constant ones (Hassid et al., 2022).\n\n"
            "Child runs with the tag `papa.role = cell` are one probe each, those with `curve` a score over the share "
            "of heads that stay input-dependent."
        )


@dataclass(frozen=True)
class ProbedParent:
    """One encoder on one task, with the steps of its cells.

    Attributes:
        parent: which.
        cells: its cells.
        constants: the steps that make constant matrices, by their label.
        rankings: λ, which every kind of constants shares, by ranking seed; none where no cell needs it.
    """

    parent: ParentRun
    cells: tuple[ProbedCell, ...]
    constants: Mapping[str, Step]
    rankings: Mapping[int, Step]

    def inputs(self) -> list[Step]:
        """The constants and the rankings."""
        return [*self.constants.values(), *self.rankings.values()]

    def scored(self, found: Mapping[Step, ArtifactReference]) -> ScoredParent:
        """It, once its cells are scored.

        Args:
            found: the artifacts of its steps.
        """
        parent = self.parent
        return ScoredParent(
            parent.encoder_label,
            parent.encoder,
            parent.task,
            parent.texts,
            tuple(cell.scored(found) for cell in self.cells),
            {label: found[step] for label, step in self.constants.items()},
            {seed: found[step] for seed, step in self.rankings.items()},
        )


@dataclass(frozen=True)
class ScoredParent(ParentRun):
    """One encoder on one task, scored.

    Attributes:
        cells: its cells.
        constants: the constant matrices it used, by their label.
        rankings: by ranking seed, where λ was trained.
    """

    cells: tuple[ScoredCell, ...]
    constants: Mapping[str, ArtifactReference]
    rankings: Mapping[int, ArtifactReference]

    @property
    def artifacts(self) -> list[tuple[str, ArtifactReference]]:
        """What it used, with where its files go: constants first."""
        constants = [(f"constants/{label.replace(':', '.')}", one) for label, one in self.constants.items()]
        return [*constants, *((f"lambda/seed-{seed}", one) for seed, one in self.rankings.items())]


@dataclass(frozen=True)
class SeedRun:
    """The child run of a cell and a seed.

    Attributes:
        parent: the encoder and task of the cell.
        study: the resolved specification.
        cell, seed: which.
    """

    parent: ParentRun
    study: StudySpec
    cell: Cell
    seed: int

    @property
    def name(self) -> str:
        """What it is called."""
        cell = self.cell
        return f"{cell.constants} · {cell.order} · {cell.fraction:g} · seed {self.seed}"

    @cached_property
    def own(self) -> dict[str, Any]:
        """Its parameters beside its parent's."""
        cell, encoder = self.cell, self.parent.encoder
        return {
            "constants": cell.constants,
            "order": cell.order,
            "fraction": cell.fraction,
            "constant_heads": constant_count(cell.fraction, encoder.layers * encoder.heads),
            "seed": self.seed,
        }

    @cached_property
    def key(self) -> str:
        """What it is found by: whatever its score, a cell and seed of a study has one run."""
        return sha256_of_json({"group": sha256_of_json(self.parent.parameters(self.study)), **self.own})

    @property
    def tags(self) -> dict[str, str]:
        """What people look for in MLflow."""
        own = {name: str(self.own[name]) for name in ("constants", "order", "fraction", "seed")}
        return {**self.parent.tags, **own}
