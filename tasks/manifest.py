"""What a finished study is: its ``manifest.json`` says where each number came from."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path
from typing import Any

import yaml
from pandas import DataFrame, read_parquet
from pydantic import BaseModel, ConfigDict, ValidationError

from papa.errors import ArtifactError, DamagedError, SpecError, nearest_first
from papa.models.reference import EMBEDDED, EncoderReference, resolve_encoder
from papa.scores.order_comparison import OrderComparison
from papa.scores.summary import read_table
from papa.spec import EncoderSpec, StudySpec, SubstituteSpec, TaskSpec
from papa.spec.file import load_study, read_yaml
from papa.spec.orders import Head
from papa.storage import artifacts
from papa.storage.artifacts import ArtifactReference
from papa.storage.files import without_links
from papa.storage.store import Store
from papa.tasks.substitutes import SubstituteSource

VERSION = 21
"""The version of the stage ``aggregate``, which writes all of these files."""
MANIFEST = "manifest.json"
SPECIFICATION = "study.yaml"
SUMMARY = "summary.csv"
RESULTS = "results.parquet"
HEADS = "heads.parquet"
ORDERS = "orders.csv"
ORDER_SCORES = "order_scores.csv"
"""Both are there if the study has at least two head orders."""
JOINT_EFFECTS = "joint_effects.csv"
"""It is there if the study has an order by effect of a native head."""
PAPER = "paper.csv"
"""It is there if the study's ``reference`` names numbers to compare with."""
_PAGE = re.compile(r"\.(html|svg|png|pdf|tex)$|^table\.csv$")
"""Files that are drawn from the others, and drawn again by ``papa report``."""


class _Frozen(BaseModel):
    model_config = ConfigDict(frozen=True, extra="forbid")


class ScoringEntry(_Frozen):
    """A step that scored a cell with some of its seeds: a probe, or a native head's answers.

    Attributes:
        artifact: Its artifact, as ``stage/key``.
        seeds: The probe seeds.
        constant_heads: The constant heads as (layer, head), sorted.
        constants: The artifact that the substitute is, or is derived from, as ``stage/key``; None
            where it needs none.
    """

    artifact: str
    seeds: tuple[int, ...]
    constant_heads: tuple[Head, ...]
    constants: str | None


class CellEntry(_Frozen):
    """A cell.

    Attributes:
        constants: The label of its substitute in tables.
        probes: The steps that scored it: a probe for each seed; of a native head its answers, one
            step for all seeds with the same constant heads.
    """

    encoder: str
    task: str
    constants: str
    order: str
    fraction: float
    probes: tuple[ScoringEntry, ...]

    @property
    def line(self) -> tuple[str, str, str, str]:
        """Its line in a figure: what it has in common with the cells of other fractions."""
        return self.encoder, self.task, self.constants, self.order

    @property
    def constant_heads(self) -> tuple[Head, ...] | None:
        """Its constant heads; None where they differ from seed to seed."""
        heads_of_probes = {probe.constant_heads for probe in self.probes}
        return heads_of_probes.pop() if len(heads_of_probes) == 1 else None


class AverageEntry(_Frozen):
    """The average over a task's own ``text``; ``special`` are the slots of [CLS] and [SEP]."""

    encoder: str
    task: str
    artifact: str
    text: str
    slots: int
    special: tuple[int, ...]


class Manifest(_Frozen):
    """The content of ``manifest.json``.

    Attributes:
        agreement: ``papa.ranking.head_scores.LambdaAgreement`` of each encoder and task.
        texts: By task, how many rows and tokens its text has, and how many texts were truncated.
        provenance: When, where and from which content results were computed.
    """

    study: str
    encoders: Mapping[str, EncoderReference]
    cells: tuple[CellEntry, ...]
    averages: tuple[AverageEntry, ...] = ()
    agreement: tuple[dict[str, Any], ...] = ()
    texts: Mapping[str, dict[str, Any]] = {}
    provenance: Mapping[str, str] = {}


def without_folder(encoder: EncoderReference) -> EncoderReference:
    """Return the embedded encoder without its folder, which its name finds on any machine."""
    return replace(encoder, folder="") if encoder.name == EMBEDDED else encoder


@dataclass(frozen=True)
class FinishedStudy:
    """A finished study, opened: its manifest, its specification as it was run, and its tables."""

    store: Store
    folder: Path
    manifest: Manifest

    @cached_property
    def study(self) -> StudySpec:
        """The specification; none of the files that it names need be there."""
        path = self.folder / SPECIFICATION
        stored = read_yaml(path.read_text(encoding="utf-8"), str(path))
        return StudySpec.model_validate({**stored, "reference": None})

    @cached_property
    def summary(self) -> DataFrame:
        """A row a cell."""
        return read_table(self.folder / SUMMARY)

    @cached_property
    def results(self) -> DataFrame:
        """A row a cell and seed."""
        return read_parquet(self.folder / RESULTS)

    @cached_property
    def heads(self) -> DataFrame:
        """A row a score of a head: encoder, task, method, layer, head, score, low, high."""
        return read_parquet(self.folder / HEADS)

    @cached_property
    def orders(self) -> OrderComparison | None:
        """The comparison of its head orders; None of a study with one."""
        if not (self.folder / ORDERS).exists():
            return None
        return OrderComparison(
            read_table(self.folder / ORDERS), read_table(self.folder / ORDER_SCORES)
        )

    @cached_property
    def joint_effects(self) -> DataFrame | None:
        """A row for each encoder, task and set of heads; None without an order by effect of a
        native head.
        """
        path = self.folder / JOINT_EFFECTS
        return read_table(path) if path.exists() else None

    def encoder_here(self, label: str) -> EncoderReference:
        """Return the encoder that was measured: where it was, or found anew by its name."""
        measured = self.manifest.encoders[label]
        if measured.folder and Path(measured.folder).is_dir():
            return measured
        spec = EncoderSpec(name=measured.name, revision=measured.revision)
        encoder = resolve_encoder(spec, measured.precision)
        if encoder.digest != measured.digest:
            raise ArtifactError(
                f"the weights of '{encoder.name}' differ from those that were measured: restore "
                "them, or run the study again"
            )
        return encoder

    def task(self, name: str) -> TaskSpec:
        """Return the task of a name."""
        return next(task for task in self.study.tasks if task.name == name)

    def substitute_of(self, cell: CellEntry) -> SubstituteSpec:
        """Return the substitute of a cell, as the study names it."""
        return next(spec for spec in self.study.substitutes if spec.label == cell.constants)

    def read_substitute(self, cell: CellEntry) -> Any:
        """Return what a cell's constant heads output; not of what was trained with a probe."""
        spec = self.substitute_of(cell)
        name = cell.probes[0].constants
        substitute = SubstituteSource(spec.kind, spec.parameters)
        artifact = self.artifact(name) if name else None
        return substitute.load(artifact, self.encoder_here(cell.encoder), self.task(cell.task))

    def artifact(self, name: str) -> ArtifactReference:
        """Return the artifact ``stage/key`` in the store; an ArtifactError where it is gone."""
        stage, _, key = name.partition("/")
        return self.store.reference(stage, key)


def tables_of(metadata: Mapping[str, Any]) -> dict[str, str]:
    """Return the files of a study's results from which its pages are made, with their digests."""
    files = metadata["files"]
    return {name: digest for name, digest in files.items() if not _PAGE.search(name)}


def open_study(store: Store, study: str) -> FinishedStudy:
    """Open a finished study by its name in a store, its file, or the folder of its results, whose
    digests are checked. A SpecError where there is none, or it is not finished; an ArtifactError
    where its results are damaged, or of another version.
    """
    study = load_study(Path(study)).name if Path(study).is_file() else study
    by_name = Path(study).name == study
    # A folder that a user names may lie behind links of theirs.
    path = Path(without_links(study))
    results = store.study_path(study) if by_name else path
    folder = next((path for path in (results, path) if artifacts.has_metadata(path)), None)
    if folder is None:
        saved = results.with_name(f"{results.name}.yaml")
        if saved.is_file():
            raise SpecError(
                f"study '{study}' is not finished in {store.address}: run 'papa run {saved}' to "
                "resume it"
            )
        complete = store.study_path("").glob(f"[!.]*/{artifacts.METADATA}")
        known = nearest_first(study, {path.parent.name for path in complete})
        raise SpecError(f"there is no finished study '{study}' in {store.address}: it has {known}")
    metadata = artifacts.read_metadata(folder)
    needed = (MANIFEST, SPECIFICATION, SUMMARY, RESULTS, HEADS)
    artifacts.check_files(folder, {**metadata, "files": tables_of(metadata)}, str(folder), *needed)
    try:
        manifest = Manifest.model_validate_json((folder / MANIFEST).read_bytes())
    except ValidationError as error:
        raise ArtifactError(
            f"{folder / MANIFEST} was written by another version of PAPA "
            f"({error.errors()[0]['msg']}): run the study again with 'papa run'"
        ) from None
    if by_name and folder == results and manifest.study != study:
        raise DamagedError(
            f"{folder} holds the results of another study, '{manifest.study}'", str(folder)
        )
    return FinishedStudy(store, folder, manifest)


def specification(study: StudySpec) -> str:
    """Return the resolved specification as YAML."""
    return yaml.safe_dump(study.model_dump(mode="json"), sort_keys=False, allow_unicode=True)
