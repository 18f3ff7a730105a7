"""Stage ``aggregate``: a study's scores as tables, figures and a report, and its manifest."""

from __future__ import annotations

import platform
import re
import shlex
import shutil
import time
from collections.abc import Iterator, Mapping
from contextlib import suppress
from datetime import datetime, timedelta
from importlib.metadata import version
from pathlib import Path
from typing import Any

import numpy as np
import psutil

from papa.credentials import without_credentials
from papa.ranking.seeds import HeadScores, TrainedLambda
from papa.spec import StudySpec
from papa.storage.artifacts import ArtifactReference, read_metadata
from papa.tasks import manifest
from papa.tasks.results import StudyPart, found_orders, results_table
from papa.tasks.substitutes import special_of
from papa.tasks.probe import read_scores
from papa.tasks.step import Context, Step, stage

_COMPUTING = ("papa-attention", "torch", "transformers", "datasets", "numpy", "scikit-learn")
_OF_TEXT = ("rows", "tokens", "texts_cut", "words_cut", "notes")
"""What the report tells of a text."""


@stage("aggregate", "invocation", version=manifest.VERSION, where="driver")
def aggregate(
    run: Context,
    study: StudySpec,
    parts: tuple[StudyPart, ...],
    paper: str | None,
    invocation: tuple[str, float],
) -> None:
    """Write the study's tables, manifest and resolved specification, and the report from these.
    ``paper`` is the digest of the paper's numbers, if the study names any; ``invocation`` the
    command line that asks for it, and when it began.
    """
    from papa.reporting.report import write_report
    from papa.scores.orders import compare_orders
    from papa.scores.summary import summarise

    found = run.found
    with run.published(finished=time.time()) as folder:
        results = results_table(parts, found)
        results.to_parquet(folder / manifest.RESULTS, index=False)
        summarise(results).to_csv(folder / manifest.SUMMARY, index=False)
        if compared := compare_orders(results, found_orders(parts, found)):
            for name, table in zip(manifest.OF_ORDERS, compared, strict=True):
                table.to_csv(folder / name, index=False)
        scores = {part.pair: part.head_scores(found) for part in parts}
        _heads_table(scores, study).to_parquet(folder / manifest.HEADS, index=False)
        agreement, averages = [], []
        for part in parts:
            pair = dict(zip(("encoder", "task"), part.pair, strict=True))
            if isinstance(trained := scores[part.pair].get("lambda"), TrainedLambda):
                objective = "" if part.task.head == "probe" else part.task.lambda_objective
                facts = trained.facts(study.fractions)
                agreement.append({**pair, "objective": objective, **facts})
            if part.average:
                slots, special = part.task.slots, special_of(part.encoder, part.task)
                where = {"artifact": part.average.address, "text": part.text.address}
                entry = manifest.AverageEntry(**pair, **where, slots=slots, special=special)
                averages.append(entry)
        texts = {part.task.name: part.text for part in reversed(parts)}
        held = {name: read_metadata(found[step].path) for name, step in texts.items()}
        digests = {f"Weights of {part.encoder_label}": part.encoder.digest for part in parts}
        digests |= {f"Text of {task}": step["fingerprint"] for task, step in texts.items()}
        tokenised = {f"Text of {task}, tokenised": step for task, step in texts.items()}
        digests |= {name: found[step].digest for name, step in tokenised.items()}
        made = manifest.Manifest(
            study=study.name,
            encoders={part.encoder_label: part.encoder for part in parts},
            cells=tuple(entry for part in parts for entry in _cells(part, found)),
            averages=tuple(averages),
            agreement=tuple(agreement),
            texts={
                name: {key: of[key] for key in _OF_TEXT if key in of} for name, of in held.items()
            },
            provenance={**_provenance(*invocation, found), **digests},
        )
        (folder / manifest.MANIFEST).write_text(made.model_dump_json(indent=1))
        (folder / manifest.SPECIFICATION).write_text(manifest.specification(study))
        if study.reference:
            shutil.copyfile(study.reference, folder / manifest.PAPER)
        write_report(folder, manifest.FinishedStudy(run.store, folder, made).findings())


def _cells(
    part: StudyPart, found: Mapping[Step, ArtifactReference]
) -> Iterator[manifest.CellEntry]:
    for cell, steps in part.cells.items():
        probes = []
        for step in steps:
            constants, constant = step["heads"].constants, read_scores(found[step]).constant_heads
            source = constants and constants.source and constants.source.address
            which = {"seeds": step["seeds"], "constant_heads": constant, "constants": source}
            probes.append(manifest.ProbeEntry(artifact=step.address, **which))
        yield manifest.CellEntry(**vars(cell), probes=tuple(probes))


def _heads_table(scores: Mapping[tuple[str, str], Mapping[str, Any]], study: StudySpec) -> Any:
    """The frame of ``heads.parquet``; scores that the study names have no interval."""
    import pandas

    named = {
        f"scores:{one.name}": HeadScores(np.array(one.values, float)[None]) for one in study.scores
    }
    frames = [
        own.frame(method).assign(encoder=encoder, task=task)
        for (encoder, task), computed in scores.items()
        for method, own in {**named, **computed}.items()
    ]
    order = ["encoder", "task", "method", "layer", "head", "score", "low", "high"]
    return pandas.concat(frames)[order] if frames else pandas.DataFrame(columns=order)


def command_line(arguments: list[str]) -> str:
    """A command line as one would type it: the program by name, and no password."""
    program, *others = arguments
    return without_credentials(shlex.join([Path(program).name, *others]))


def versions() -> str:
    """The versions of what computes scores."""
    return ", ".join(f"{name} {version(name)}" for name in _COMPUTING)


def _provenance(
    command: str, started: float, found: Mapping[Step, ArtifactReference]
) -> dict[str, str]:
    """When and how results were made, of the run that writes them."""
    import torch

    processor = platform.processor()
    with suppress(OSError, IndexError):
        processor = re.findall(r"model name\s*:\s*(.+)", Path("/proc/cpuinfo").read_text())[0]
    memory = f"{round(psutil.virtual_memory().total / 2**30)} GiB"
    gpus = [torch.cuda.get_device_name(number) for number in range(torch.cuda.device_count())]
    system, cores = f"{platform.system()} {platform.machine()}", f"{psutil.cpu_count()} cores"
    computing = sum(read_metadata(one.path).get("seconds", 0.0) for one in found.values())
    return {
        "Date": datetime.now().astimezone().isoformat(timespec="seconds"),
        "Command": command,
        # ``Linux x86_64, Intel(R) Xeon(R), 16 cores, 64 GiB, NVIDIA H100``.
        "Machine": ", ".join(filter(None, [system, processor, cores, memory, *gpus])),
        "Duration of this run": str(timedelta(seconds=round(time.time() - started))),
        "Computing time of all steps": str(timedelta(seconds=round(computing))),
        "Versions": versions(),
    }
