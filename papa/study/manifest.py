"""What a finished study is, for those who read it: its ``manifest.json`` says where each number
came from, so that nothing is resolved again: no encoder, no training file.
"""

from __future__ import annotations

import re
import shutil
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any

from pydantic import BaseModel, ConfigDict, ValidationError

from papa.encoders.reference import EncoderReference, resolve_encoder
from papa.errors import ArtifactError, DamagedError, SpecError, TransientError, nearest_first
from papa.spec import ConstantsSpec, EncoderSpec, StudySpec, TaskSpec
from papa.spec.cells import Cell
from papa.spec.document import read_yaml, write_yaml
from papa.spec.file import load_study
from papa.spec.orders import Head
from papa.storage.artifacts import (
    METADATA,
    ArtifactReference,
    check_files,
    folder_written,
    is_complete,
    read_metadata,
    remove,
    verify,
)
from papa.storage.store import Store, claimed
from papa.study.stages.constants import read_constants

if TYPE_CHECKING:
    from pandas import DataFrame

    from papa.reporting.report import Findings

VERSION = 13
"""Of the stage that writes results."""
MANIFEST, SPECIFICATION = "manifest.json", "study.yaml"
SUMMARY, RESULTS, HEADS = "summary.csv", "results.parquet", "heads.parquet"
ORDERS, ORDER_SCORES, PAPER = "orders.csv", "order_scores.csv", "paper.csv"
"""Where a study has several head orders, or numbers of the paper to be compared with."""
_PAGE = re.compile(r"\.(html|svg|png|pdf)$")
"""What is made from the others, and made again by ``papa report``."""


class _Frozen(BaseModel):
    model_config = ConfigDict(frozen=True, extra="forbid")


class ProbeEntry(_Frozen):
    """What scored a cell with some of its seeds; artifacts are ``stage/key``.

    Attributes:
        constant_heads: as (layer, head), from 0, sorted.
        constants: what theirs are made of; None where they are made of nothing that is stored.
    """

    artifact: str
    seeds: tuple[int, ...]
    constant_heads: tuple[Head, ...]
    constants: str | None


class CellEntry(_Frozen):
    """A cell: one probe for all seeds, or one for each seed that has its own constant heads."""

    encoder: str
    task: str
    constants: str
    order: str
    fraction: float
    probes: tuple[ProbeEntry, ...]

    @property
    def line(self) -> tuple[str, str, str, str]:
        """What it has in common with the cells of other fractions."""
        return self.encoder, self.task, self.constants, self.order

    @property
    def cell(self) -> Cell:
        """The cell, as tables name it."""
        return Cell.of(vars(self))

    @property
    def constant_heads(self) -> tuple[Head, ...] | None:
        """Its constant heads; None where they differ from seed to seed."""
        found = {probe.constant_heads for probe in self.probes}
        return found.pop() if len(found) == 1 else None


class AverageEntry(_Frozen):
    """The average over a task's own ``text``; ``special`` are the slots of [CLS] and [SEP]."""

    encoder: str
    task: str
    artifact: str
    text: str
    slots: int
    special: tuple[int, ...]


class Manifest(_Frozen):
    """The file.

    Attributes:
        digest: of the study's specification, without what changes speed alone.
        encoders: as they were when they were measured, by their labels.
        agreement: how alike the head orders of the seeds are, by encoder and task
            (``papa.ranking.seeds.TrainedLambda.facts``), where λ was trained.
        texts: rows, tokens, what was cut off and warnings, by task.
        provenance: when, by which command, where and of which code the results were made.
    """

    study: str
    digest: str
    encoders: Mapping[str, EncoderReference]
    cells: tuple[CellEntry, ...]
    averages: tuple[AverageEntry, ...] = ()
    agreement: tuple[dict[str, Any], ...] = ()
    texts: Mapping[str, dict[str, Any]] = {}
    provenance: Mapping[str, str] = {}


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
        return StudySpec.model_validate(
            {**read_yaml(path.read_text(), str(path)), "reference": None}
        )

    @cached_property
    def summary(self) -> DataFrame:
        """``summary.csv``, a row a cell."""
        return self._table(SUMMARY)

    @cached_property
    def results(self) -> DataFrame:
        """``results.parquet``, a row a cell and seed."""
        return self._table(RESULTS)

    @cached_property
    def heads(self) -> DataFrame:
        """``heads.parquet``: encoder, task, method, layer, head, score, low, high."""
        return self._table(HEADS)

    def _table(self, name: str) -> DataFrame:
        from pandas import read_parquet

        from papa.scores.summary import read_table

        read = read_parquet if name.endswith(".parquet") else read_table
        return read(self.folder / name)

    def encoder_here(self, label: str) -> EncoderReference:
        """The encoder that was measured: where it was, or found anew by its name."""
        measured = self.manifest.encoders[label]
        if Path(measured.folder).is_dir():
            return measured
        spec = EncoderSpec(name=measured.name, revision=measured.revision)
        found = resolve_encoder(spec, measured.precision)
        if found.digest != measured.digest:
            raise ArtifactError(
                f"'{measured.name}' has other weights here than those that were measured"
            )
        return found

    def task(self, name: str) -> TaskSpec:
        """The task of a name."""
        return next(task for task in self.study.tasks if task.name == name)

    def constants(self, cell: CellEntry) -> ConstantsSpec:
        """The kind of constants of a cell."""
        return next(spec for spec in self.study.constants if spec.label == cell.constants)

    def read_constants(self, cell: CellEntry) -> Any:
        """What a cell's constant heads put out; not of what was trained with a probe."""
        spec, made = self.constants(cell), cell.probes[0].constants
        encoder, artifact = self.encoder_here(cell.encoder), made and self.artifact(made)
        return read_constants(
            spec.kind, spec.parameters, artifact or None, encoder, self.task(cell.task)
        )

    def findings(self) -> Findings:
        """What its page shows; without matrices that the store no longer holds."""
        from papa.attention.constants import ConstantMatrices
        from papa.reporting.heads import Average
        from papa.reporting.paper import read_reference
        from papa.reporting.report import Findings

        paper, averages = self.folder / PAPER, []
        for entry in self.manifest.averages:
            with suppress(DamagedError):
                folder = self.artifact(entry.artifact).folder
                found = ConstantMatrices.load(
                    folder, encoder=self.manifest.encoders[entry.encoder], slots=entry.slots
                )
                seen = found.seen if found.counts is None else found.counts
                averages.append(
                    Average(entry.encoder, entry.task, found.matrices, seen, entry.special)
                )
        return Findings(
            study=self.study,
            results=self.results,
            summary=self.summary,
            heads=self.heads,
            orders=(self._table(ORDERS), self._table(ORDER_SCORES))
            if (self.folder / ORDERS).exists()
            else None,
            averages=averages,
            agreement=self.manifest.agreement,
            texts=self.manifest.texts,
            paper=read_reference(paper) if paper.exists() else None,
            provenance=self.manifest.provenance,
        )

    def artifact(self, name: str) -> ArtifactReference:
        """The artifact ``stage/key`` in the store; an ArtifactError where it is gone."""
        stage, _, key = name.partition("/")
        return self.store.reference(stage, key)


def open_study(store: Store, study: str) -> FinishedStudy:
    """Open a finished study by its name in a store, its file, or the folder of its results; the
    digests of its files are checked, and neither encoders nor texts are looked for.

    Raises:
        SpecError: there is no such study, or it is not finished.
        ArtifactError: its results are damaged, or of another version.
    """
    study = load_study(Path(study)).name if Path(study).is_file() else study
    by_name = Path(study).name == study
    named = store.study(study) if by_name else Path(study)
    folder = next((path for path in (named, Path(study)) if is_complete(path)), None)
    if folder is None:
        if (saved := named.with_name(f"{study}.yaml")).is_file():
            raise SpecError(
                f"study '{study}' is not finished in {store.address}: run 'papa run {saved}' to go "
                "on"
            )
        finished = {path.parent.name for path in store.study("*").parent.glob(f"[!.]*/{METADATA}")}
        raise SpecError(
            f"there is no finished study '{study}' in {store.address}: it has "
            f"{nearest_first(study, finished)}"
        )
    metadata = read_metadata(folder)
    if MANIFEST not in metadata["files"]:
        raise ArtifactError(
            f"the results in {folder} are of an older version of PAPA, without {MANIFEST}: run the "
            "study again with 'papa run'"
        )
    tables = {name: of for name, of in metadata["files"].items() if not _PAGE.search(name)}
    needed = (MANIFEST, SPECIFICATION, SUMMARY, RESULTS, HEADS)
    check_files(folder, {**metadata, "files": tables}, str(folder), *needed)
    try:
        manifest = Manifest.model_validate_json((folder / MANIFEST).read_bytes())
    except ValidationError as error:
        raise ArtifactError(
            f"{folder / MANIFEST} is of another version of PAPA ({error.errors()[0]['msg']}): run "
            "the study again with 'papa run'"
        ) from None
    if by_name and folder == named and manifest.study != study:
        raise DamagedError(f"{folder} holds the results of study '{manifest.study}'", str(folder))
    return FinishedStudy(store, folder, manifest)


def place_results(store: Store, study: str, found: ArtifactReference) -> None:
    """Put the results of a study, as its artifact holds them, where people look for them."""
    folder = store.study(study)
    with claimed(store, f"study-{study}"):
        with suppress(DamagedError):
            if verify(folder)["digest"] == found.digest:
                return
        try:
            metadata = verify(found.path)
        except DamagedError as error:
            remove(found.path)
            raise TransientError(f"{error.what}: it is removed, run again") from None
        with folder_written(folder, metadata) as fresh:
            for name in metadata["files"]:
                (fresh / name).parent.mkdir(parents=True, exist_ok=True)
                shutil.copy2(found.folder / name, fresh / name)


def specification(study: StudySpec) -> str:
    """The resolved specification as YAML."""
    return write_yaml(study.model_dump(mode="json"))
