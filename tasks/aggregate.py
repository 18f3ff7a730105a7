"""Aggregate: a study's scores as tables, figures and a report, and the manifest that names them."""

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

import psutil

from papa.credentials import without_credentials
from papa.ranking.head_scores import TrainedLambda
from papa.scores.order_comparison import compare_orders
from papa.scores.summary import summarise
from papa.spec import StudySpec
from papa.storage.artifacts import read_metadata
from papa.tasks import manifest
from papa.tasks.cell import read_scores
from papa.tasks.context import Context
from papa.tasks.joint_effects import joint_effects_table
from papa.tasks.pair_steps import Artifacts, PairSteps
from papa.tasks.results import head_orders, heads_table, results_table
from papa.tasks.step import stage
from papa.tasks.substitutes import special_slots_of

_LIBRARIES = ("papa-attention", "torch", "transformers", "datasets", "numpy", "scipy")
_TEXT_FACTS = ("rows", "tokens", "texts_cut", "words_cut", "notes")
"""What the report says of a text."""


@stage("aggregate", version=manifest.VERSION, runs_on="driver's machine", unkeyed=("invocation",))
def aggregate(
    context: Context,
    study: StudySpec,
    pairs: tuple[PairSteps, ...],
    # Only for the key: the file with the paper's numbers is that of ``study.reference``.
    paper_digest: str | None,
    invocation: tuple[str, float],
) -> None:
    """Write a study's tables, manifest and resolved specification, and the report from these.

    In: the artifacts of all cells, rankings, baselines and texts. Out: results.parquet,
    summary.csv, heads.parquet, figures, report.html. Where: on the driver's machine. ``invocation``
    is the command line, and when it began, in seconds since 1970.
    """
    # They import torch, which a plan does without.
    from papa.reporting.report import write_report
    from papa.tasks.findings import findings_of

    artifacts = context.artifacts
    with context.published(finished=time.time()) as folder:
        results = results_table(pairs, artifacts)
        results.to_parquet(folder / manifest.RESULTS, index=False)
        summarise(results).to_csv(folder / manifest.SUMMARY, index=False)
        comparison = compare_orders(results, head_orders(pairs, artifacts, study.unit))
        if comparison is not None:
            comparison.pairs.to_csv(folder / manifest.ORDERS, index=False)
            comparison.scores.to_csv(folder / manifest.ORDER_SCORES, index=False)
        effects = joint_effects_table(pairs, artifacts)
        if effects is not None:
            effects.to_csv(folder / manifest.JOINT_EFFECTS, index=False)
        scores_by_pair = {pair.names: pair.head_scores(artifacts) for pair in pairs}
        heads = heads_table(pairs, scores_by_pair, study)
        heads.to_parquet(folder / manifest.HEADS, index=False)
        document = manifest.Manifest(
            study=study.name,
            encoders={pair.encoder_label: manifest.without_folder(pair.encoder) for pair in pairs},
            cells=tuple(entry for pair in pairs for entry in _cell_entries(pair, artifacts)),
            averages=tuple(_average_entries(pairs)),
            agreement=tuple(_lambda_agreement(pairs, scores_by_pair, study)),
            texts=_text_facts(pairs, artifacts),
            provenance=_provenance(pairs, artifacts, *invocation),
        )
        (folder / manifest.MANIFEST).write_text(document.model_dump_json(indent=1), "utf-8")
        (folder / manifest.SPECIFICATION).write_text(manifest.specification(study), "utf-8")
        if study.reference:
            shutil.copyfile(study.reference, folder / manifest.PAPER)
        finished = manifest.FinishedStudy(context.store, folder, document)
        write_report(folder, findings_of(finished))


def _cell_entries(pair: PairSteps, artifacts: Artifacts) -> Iterator[manifest.CellEntry]:
    """Yield which artifacts scored each cell."""
    for cell, steps in pair.cells.items():
        probes = []
        for step in steps:
            substitute = step["heads"].substitute
            source = substitute.source if substitute else None
            entry = manifest.ScoringEntry(
                artifact=step.address,
                seeds=step["seeds"],
                constant_heads=read_scores(artifacts[step]).constant_heads,
                constants=source.address if source else None,
            )
            probes.append(entry)
        yield manifest.CellEntry(**vars(cell), probes=tuple(probes))


def _average_entries(pairs: tuple[PairSteps, ...]) -> Iterator[manifest.AverageEntry]:
    """Yield the averages over the tasks' own texts, which the report draws."""
    for pair in pairs:
        if pair.used_average:
            yield manifest.AverageEntry(
                encoder=pair.encoder_label,
                task=pair.task.name,
                artifact=pair.used_average.address,
                text=pair.text.address,
                slots=pair.task.slots,
                special=special_slots_of(pair.encoder, pair.task),
            )


def _lambda_agreement(
    pairs: tuple[PairSteps, ...],
    scores_by_pair: Mapping[tuple[str, str], Mapping[str, Any]],
    study: StudySpec,
) -> Iterator[dict[str, Any]]:
    """Yield how far the orders by λ of several seeds agree."""
    for pair in pairs:
        trained = scores_by_pair[pair.names].get("lambda")
        if isinstance(trained, TrainedLambda):
            yield dict(pair.lambda_agreement(trained, study))


def _text_facts(pairs: tuple[PairSteps, ...], artifacts: Artifacts) -> dict[str, dict[str, Any]]:
    """Return what the report says of each task's text, by the first encoder's tokens."""
    facts: dict[str, dict[str, Any]] = {}
    for pair in pairs:
        if pair.task.name not in facts:
            metadata = read_metadata(artifacts[pair.text].path)
            facts[pair.task.name] = {
                name: metadata[name] for name in _TEXT_FACTS if name in metadata
            }
    return facts


def command_line(arguments: list[str]) -> str:
    """Return a command line as one would type it: the program by name, and no password."""
    program, *options = arguments
    return without_credentials(shlex.join([Path(program).name, *options]))


def versions() -> str:
    """Return the versions of what computes scores."""
    return ", ".join(f"{name} {version(name)}" for name in _LIBRARIES)


def _provenance(
    pairs: tuple[PairSteps, ...], artifacts: Artifacts, command: str, started: float
) -> dict[str, str]:
    """Return when and how results were computed, of the run that writes them, and from which
    content.
    """
    computing = sum(
        read_metadata(artifact.path).get("seconds", 0.0) for artifact in artifacts.values()
    )
    facts = {
        "Date": datetime.now().astimezone().isoformat(timespec="seconds"),
        "Command": command,
        "Machine": _machine(),
        "Duration of this run": str(timedelta(seconds=round(time.time() - started))),
        "Computing time of all steps": str(timedelta(seconds=round(computing))),
        "Versions": versions(),
    }
    facts |= {f"Weights of {pair.encoder_label}": pair.encoder.digest for pair in pairs}
    for pair in pairs:
        facts.setdefault(f"Text of {pair.task.name}", pair.text["fingerprint"])
    for pair in pairs:
        digest = artifacts[pair.text].digest
        facts.setdefault(f"Text of {pair.task.name}, tokenised", digest)
    return facts


def _machine() -> str:
    """Return the machine in words: ``Linux x86_64, Intel(R) Xeon(R), 16 cores, 64 GiB, NVIDIA
    H100``.
    """
    import torch

    processor = platform.processor()
    with suppress(OSError, IndexError):
        processor = re.findall(r"model name\s*:\s*(.+)", Path("/proc/cpuinfo").read_text())[0]
    facts = [
        f"{platform.system()} {platform.machine()}",
        processor,
        f"{psutil.cpu_count()} cores",
        f"{round(psutil.virtual_memory().total / 2**30)} GiB",
        *(torch.cuda.get_device_name(number) for number in range(torch.cuda.device_count())),
    ]
    return ", ".join(fact for fact in facts if fact)
