"""Stage ``aggregate``: a study's scores as tables, figures and a report, and its manifest."""

from __future__ import annotations

import math
import shutil
import time
from collections.abc import Iterable, Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar

from papa.encoders.reference import load_tokenizer
from papa.errors import ArtifactError, DamagedError, TransientError
from papa.spec import StudySpec
from papa.spec.document import write_yaml
from papa.storage.artifacts import (
    ArtifactReference,
    is_complete,
    published,
    read_metadata,
    remove,
    sha256_of_file,
    sha256_of_json,
    verify,
)
from papa.storage.atomic import scratch_beside
from papa.storage.metadata import METADATA, metadata_bytes
from papa.study.manifest import (
    HEADS,
    MANIFEST,
    ORDER_SCORES,
    ORDERS,
    PAPER,
    RESULTS,
    SPECIFICATION,
    SUMMARY,
    AverageEntry,
    CellEntry,
    EncoderEntry,
    FinishedStudy,
    Manifest,
    ProbeEntry,
    RankingEntry,
)
from papa.study.probe import read_scores
from papa.study.provenance import invocation, provenance
from papa.study.results import StudyPart, found_orders, probes_of, results_table
from papa.study.score_heads import ScoreHeads, read_head_scores
from papa.study.step import Context, Step, WorkerStep
from papa.study.store import Store, claimed

if TYPE_CHECKING:
    from papa.ranking.seeds import HeadScores, TrainedLambda

_OF_TEXT = ("rows", "tokens", "texts_cut", "words_cut", "notes")
"""What the report tells of a text."""


@dataclass(frozen=True, eq=False)
class Aggregate(WorkerStep):
    """Write the results of a study; corpora are by task."""

    stage: ClassVar[str] = "aggregate"
    version: ClassVar[int] = 12
    at_driver: ClassVar[bool] = True

    study: StudySpec
    study_parts: tuple[StudyPart, ...]
    corpora: Mapping[str, Step]
    invocation: tuple[str, float] = field(default_factory=invocation, compare=False)

    def spec(self) -> dict[str, Any]:
        averages = [
            {
                "encoder": part.encoder_label,
                "task": part.task.model_dump(mode="json", include={"name", "kind", "slots"}),
                "tokenizer": part.encoder.tokenizer_digest,
            }
            for part in self.study_parts
            if part.average
        ]
        return {
            "study": self.study.model_dump(mode="json", exclude={"execution"}),
            "cells": [cell for part in self.study_parts for cell in part.in_key()],
            "averages": averages,
        }

    def outside(self) -> dict[str, str]:
        paper = self.study.reference
        return {"paper": sha256_of_file(paper)} if paper else {}

    def inputs(self) -> dict[str, Step]:
        baselines: dict[str, Step] = {}
        averages: dict[str, Step] = {}
        rankings: dict[str, Step] = {}
        for part in self.study_parts:
            where = f"{part.encoder_label} {part.task.name}"
            if part.baseline:
                baselines[f"baseline {' · '.join(part.pair)}"] = part.baseline
            if part.average:
                averages[f"average {where}"] = part.average
            for method, by_seed in part.rankings.items():
                what = "ranking" if method == "lambda" else method
                rankings |= {f"{what} {where} {seed}": step for seed, step in by_seed.items()}
            rankings |= {f"control {where} {seed}": step for seed, step in part.controls.items()}
        corpora = {f"corpus {name}": corpus for name, corpus in self.corpora.items()}
        frozen = {
            f"frozen probe of {name}": step.probe
            for name, step in rankings.items()
            if isinstance(step, ScoreHeads) and step.probe
        }
        probes = probes_of(self.study_parts)
        return {**probes, **baselines, **corpora, **averages, **rankings, **frozen}

    def compute(self, encoder: None, context: Context) -> None:
        with published(
            self.folder(context.store), self.metadata(context.found) | {"finished": time.time()}
        ) as scratch:
            self.write(scratch, context.found, context.store)

    def write(self, folder: Path, found: Mapping[Step, ArtifactReference], store: Store) -> None:
        """Write the study's tables, its manifest and its resolved specification, from finished
        artifacts, and the report from these.
        """
        from papa.ranking.seeds import TrainedLambda
        from papa.reporting.report import write_report
        from papa.scores.orders import compare_orders
        from papa.scores.summary import summarise

        parts, study = self.study_parts, self.study
        results = results_table(parts, found)
        results.to_parquet(folder / RESULTS, index=False)
        summarise(results).to_csv(folder / SUMMARY, index=False)
        if compared := compare_orders(results, found_orders(parts, found)):
            for name, table in zip((ORDERS, ORDER_SCORES), compared, strict=True):
                table.to_csv(folder / name, index=False)
        scores = {
            part.pair: {
                method: read_head_scores(
                    method,
                    {seed: found[step] for seed, step in own.items()},
                    controls={seed: found[step] for seed, step in part.controls.items()},
                )
                for method, own in part.rankings.items()
            }
            for part in parts
        }
        heads_table(parts, scores, study).to_parquet(folder / HEADS, index=False)
        agreement = [
            {
                "encoder": part.encoder_label,
                "task": part.task.name,
                "objective": "" if part.task.head == "probe" else part.task.lambda_objective,
                **trained.facts(study.fractions),
            }
            for part in parts
            if isinstance(trained := scores[part.pair].get("lambda"), TrainedLambda)
        ]
        made = manifest(study, parts, found).model_copy(
            update={
                "agreement": tuple(agreement),
                "texts": {
                    name: {key: read[key] for key in _OF_TEXT if key in read}
                    for name, step in self.corpora.items()
                    if (read := read_metadata(found[step].path))
                },
                "provenance": provenance(self.invocation, found, self.corpora, parts),
            }
        )
        (folder / MANIFEST).write_text(made.model_dump_json(indent=1))
        (folder / SPECIFICATION).write_text(specification(study))
        if study.reference:
            shutil.copyfile(study.reference, folder / PAPER)
        write_report(folder, FinishedStudy(store, folder, made).findings())


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
        try:
            with scratch_beside(folder) as fresh:
                for name in metadata["files"]:
                    (fresh / name).parent.mkdir(parents=True, exist_ok=True)
                    shutil.copy2(found.folder / name, fresh / name)
                (fresh / METADATA).write_bytes(metadata_bytes(metadata))
                remove(folder)
                fresh.rename(folder)
        except OSError as error:
            raise ArtifactError(
                f"the results cannot be copied to {folder} ({error.strerror or error}): make room "
                "for them and run again"
            ) from error


def earlier_results(store: Store, study: str) -> Path | None:
    """The results that an earlier version of PAPA left of a study; None where there are none.

    Earlier versions had other keys, so of what they made this one finds nothing else.
    """
    folder = store.study(study)
    if not is_complete(folder) or read_metadata(folder).get("stage_version") == Aggregate.version:
        return None
    return folder


def specification(study: StudySpec) -> str:
    """The resolved specification as YAML."""
    return write_yaml(study.model_dump(mode="json"))


def manifest(
    study: StudySpec, parts: Iterable[StudyPart], found: Mapping[Step, ArtifactReference]
) -> Manifest:
    """Where the numbers of a study come from."""
    parts = list(parts)
    encoders = {
        part.encoder_label: EncoderEntry(
            label=part.encoder_label,
            **{
                name: getattr(part.encoder, name)
                for name in EncoderEntry.model_fields
                if name != "label"
            },
        )
        for part in parts
    }
    return Manifest(
        study=study.name,
        digest=sha256_of_json(study.model_dump(mode="json", exclude={"execution"})),
        encoders=tuple(encoders.values()),
        cells=tuple(
            CellEntry(
                **cell.columns(),
                probes=tuple(
                    ProbeEntry(
                        artifact=_address(probe),
                        seeds=probe.seeds,
                        constant_heads=read_scores(found[probe]).constant_heads,
                        constants=_address(probe.constants) if probe.constants else None,
                        trained=probe.trained,
                    )
                    for probe in probes
                ),
            )
            for part in parts
            for cell, probes in part.cells.items()
        ),
        averages=tuple(
            AverageEntry(
                encoder=part.encoder_label,
                task=part.task.name,
                artifact=_address(part.average),
                slots=part.task.slots,
                special=_special(part),
            )
            for part in parts
            if part.average
        ),
        rankings=tuple(
            RankingEntry(
                encoder=part.encoder_label,
                task=part.task.name,
                method=method,
                seed=seed,
                artifact=_address(step),
            )
            for part in parts
            for method, by_seed in part.rankings.items()
            for seed, step in by_seed.items()
        ),
    )


def _address(step: Step) -> str:
    return f"{step.stage}/{step.key}"


def _special(part: StudyPart) -> tuple[int, ...]:
    """The slots of [CLS] and [SEP]."""
    from papa.attention.patterns import special_slots
    from papa.corpora.tokens import special_tokens_of

    kind = part.task.kind
    double = kind == "pair" and special_tokens_of(load_tokenizer(part.encoder)).between == 2
    return special_slots(kind, part.task.slots, double_separator=double)


def heads_table(
    parts: Iterable[StudyPart],
    scores: Mapping[tuple[str, str], Mapping[str, HeadScores | TrainedLambda]],
    study: StudySpec,
) -> Any:
    """The frame of ``heads.parquet``: a row for every head, by encoder, task and method; those that
    the study names have no interval.
    """
    import numpy as np
    import pandas

    frames = []
    for part in parts:
        given = {f"scores:{one.name}": np.array(one.values, float) for one in study.scores}
        computed = scores.get(part.pair, {})
        found = {
            **{
                name: (values, values + math.nan, values + math.nan)
                for name, values in given.items()
            },
            **{method: (own.mean, *own.interval) for method, own in computed.items()},
        }
        layer, head = np.indices((part.encoder.layers, part.encoder.heads))
        for method, (score, low, high) in found.items():
            named = {"encoder": part.encoder_label, "task": part.task.name, "method": method}
            columns = {"layer": layer, "head": head, "score": score, "low": low, "high": high}
            frames.append(
                pandas.DataFrame({name: values.ravel() for name, values in columns.items()}).assign(
                    **named
                )
            )
    order = ["encoder", "task", "method", "layer", "head", "score", "low", "high"]
    return pandas.concat(frames)[order] if frames else pandas.DataFrame(columns=order)
