"""Whether this machine's device, memory and disk suffice for a study's workers, checked before
anything runs.
"""

from __future__ import annotations

from dataclasses import replace
from functools import partial
from itertools import product
from pathlib import Path

import psutil

from papa.encoders.files import has_weights, weight_files
from papa.encoders.precision import check_device, check_precision
from papa.encoders.reference import EncoderReference
from papa.errors import PapaError, Problem, problems_of
from papa.probes.minibatches import WINDOW_BYTES, WINDOW_ROWS
from papa.study.inputs import ResolvedInputs, StudyInputs, device_of
from papa.study.sizes import feature_bytes
from papa.study.store import Store

_PROCESS = 0.56e9
"""A worker with its libraries and its unused heap."""
_OVERHEAD = 1.5e9
"""The study itself, Prefect's server and Ray."""
LEAST_BYTES = _PROCESS + _OVERHEAD
"""What a study with one worker takes, without weights and text."""
_SUMS = 2.5 * 8
"""Bytes of an entry of the averages while two sums in float64 are merged and divided."""
_TRAINED = 4 * 4
"""Bytes of a parameter that is trained: itself, its gradient and the optimiser's two means."""


class CapacityError(PapaError):
    """Not enough memory or disk is free."""


def check_capacity(resolved: ResolvedInputs, store: Store, workers: int) -> list[Problem]:
    """What device, memory and disk lack for what of a study was resolved."""
    study, sources = resolved.study, resolved.sources
    device = study.execution.device
    problems = problems_of("execution", partial(check_device, device)) if device == "cuda" else []
    if study.precision != "auto":
        problems += problems_of(
            "precision", partial(check_precision, study.precision, device_of(study))
        )
    encoders = tuple(spec for spec in study.encoders if spec in resolved.encoders)
    tasks = tuple(task for task in study.tasks if task.source in sources)
    constants = tuple(
        entry for entry in study.constants if entry.corpus is None or entry.corpus.source in sources
    )
    alike = any(problem.where == "encoders" for problem in resolved.problems)
    if alike or not (encoders and tasks and constants):
        return problems
    part = study.model_copy(update={"encoders": encoders, "tasks": tasks, "constants": constants})
    inputs = replace(resolved, study=part).inputs()
    problems += problems_of("memory", partial(check_memory, inputs, workers))
    return problems + problems_of("disk", partial(check_disk, inputs, workers, store.root))


def check_memory(inputs: StudyInputs, workers: int) -> None:
    """Compare the least that the workers take with what is free now: each for averages, or for its
    seeds' probes and a window of features that are not stored; weights are mapped, so that all
    workers share them.
    """
    free, study = psutil.virtual_memory().available, inputs.study
    budget, need = study.execution.features_budget_gb * 1e9, _PROCESS
    for encoder, task in product(inputs.encoders, study.tasks):
        size, sums = inputs.sizes[task], _SUMS * encoder.layers * encoder.heads * task.slots**2
        probing, of_token = 0.0, (encoder.layers + 1) * encoder.width
        if task.head == "probe":
            probing = _TRAINED * len(study.seeds) * of_token * encoder.width
        if feature_bytes(encoder, size, study.features) > budget:
            of_row = 4 * size.tokens * of_token
            probing += min(min(size.train, WINDOW_ROWS) * of_row, WINDOW_BYTES)
        need = max(need, _PROCESS + max(sums, probing))
    beside = _OVERHEAD + max(map(_weights, inputs.encoders))
    if workers * need + beside <= free:
        return
    fewer = int((free - beside) // need)
    advice = (
        f"use --workers {fewer}"
        if fewer > 0
        else "free memory, or use a larger machine or --ray-address"
    )
    raise CapacityError(
        f"a worker takes {need / 1e9:.1f} GB or more, which is "
        f"{(workers * need + beside) / 1e9:.1f} GB for {workers} workers and the processes "
        f"beside them, and {free / 1e9:.1f} GB are free: {advice}"
    )


def _weights(encoder: EncoderReference) -> int:
    """Bytes of an encoder's files of weights; 0 before they are downloaded."""
    folder = Path(encoder.folder)
    if not encoder.folder or not has_weights(folder):
        return 0
    return sum(path.stat().st_size for path in weight_files(folder, encoder.name).paths)


def check_disk(inputs: StudyInputs, workers: int, folder: Path) -> None:
    """Compare the features that workers store at the same time with what is free under ``folder``
    now.
    """
    existing = next(path for path in (folder, *folder.parents) if path.exists())
    free = psutil.disk_usage(str(existing)).free
    study = inputs.study
    budget = study.execution.features_budget_gb * 1e9
    sizes = {
        (encoder, task): feature_bytes(encoder, inputs.sizes[task], study.features)
        for encoder, task in product(inputs.encoders, study.tasks)
    }
    stored = {cell: size for cell, size in sizes.items() if size <= budget}
    if not stored:
        return
    (encoder, task), need = max(stored.items(), key=lambda item: item[1])
    at_once = min(workers, len(sizes) * len(study.fractions))
    if at_once * need <= free:
        return
    raise CapacityError(
        f"the features of {inputs.labels[encoder]} · {task.name} take about "
        f"{need / 1e9:.3g} GB for each of {at_once} workers, and {free / 1e9:.3g} GB are free in "
        f"{existing}: free some space, use another --store, or set execution.features_budget_gb to "
        f"{free / at_once / 1e9:.2g} or less"
    )
