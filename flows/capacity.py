"""Whether this machine's device, memory and disk suffice for a study's workers, checked before
anything runs.

What a worker needs is estimated from shapes; ``tests/flows/test_capacity.py`` compares it with
processes that do the work. Float32 weights count once for each encoder: workers map the same file.
"""

from __future__ import annotations

from dataclasses import replace
from functools import partial
from pathlib import Path

import psutil
from safetensors import safe_open

from papa.encoders.files import has_weights, weight_files
from papa.encoders.precision import check_device, check_precision
from papa.encoders.reference import EncoderReference
from papa.errors import PapaError, Problem, problems_of
from papa.probes.minibatches import WINDOW_BYTES, WINDOW_ROWS
from papa.spec import StudySpec, TaskSpec
from papa.study.costs import Size, feature_bytes
from papa.study.inputs import ResolvedInputs, StudyInputs, device_of
from papa.study.store import Store

_PROCESS = 0.56e9
"""A worker with its libraries and its unused heap."""
_OVERHEAD = 1.5e9
"""The study itself, Prefect's server and Ray."""
LEAST_BYTES = _PROCESS + _OVERHEAD
"""What a study with one worker takes, without weights and text."""
_SUMS = 2.5
"""Copies of the float64 sums while two are merged and divided."""
_BATCH_TOKENS, _PART_TOKENS = 512, 256
_DECODER = 0.2e9
"""Logits of a masked language model, a chunk at a time, and their gradients."""


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
    """Compare what the workers need at most with what is free now."""
    study, free = inputs.study, psutil.virtual_memory().available
    cells = [
        (encoder, task, inputs.sizes[task]) for encoder in inputs.encoders for task in study.tasks
    ]
    need, what = max(
        (needed, f"{stage} · {inputs.labels[encoder]} · {task.name}")
        for encoder, task, size in cells
        for stage, needed in worker_bytes(study, encoder, task, size).items()
    )
    overhead = _OVERHEAD + sum(mapped_bytes(encoder) for encoder in inputs.encoders)
    if workers * need + overhead <= free:
        return
    fewer = int((free - overhead) // need)
    advice = (
        f"use --workers {fewer}"
        if fewer > 0
        else "free memory, or use a larger machine or --ray-address"
    )
    raise CapacityError(
        f"{what} needs about {need / 1e9:.1f} GB per worker, which is "
        f"{(workers * need + overhead) / 1e9:.1f} GB for {workers} workers and the processes "
        f"beside them, and {free / 1e9:.1f} GB are free: {advice}"
    )


def check_disk(inputs: StudyInputs, workers: int, folder: Path) -> None:
    """Compare the features that workers store at the same time with what is free under ``folder``
    now.
    """
    existing = next(path for path in (folder, *folder.parents) if path.exists())
    free = psutil.disk_usage(str(existing)).free
    study = inputs.study
    budget = study.execution.features_budget_gb * 1e9
    cells = [(encoder, task) for encoder in inputs.encoders for task in study.tasks]
    sizes = {
        (encoder, task): feature_bytes(encoder, inputs.sizes[task], study.features)
        for encoder, task in cells
    }
    stored = {cell: size for cell, size in sizes.items() if size <= budget}
    if not stored:
        return
    (encoder, task), need = max(stored.items(), key=lambda item: item[1])
    at_once = min(workers, len(cells) * len(study.fractions))
    if at_once * need <= free:
        return
    raise CapacityError(
        f"the features of {inputs.labels[encoder]} · {task.name} take about "
        f"{need / 1e9:.3g} GB for each of {at_once} workers, and {free / 1e9:.3g} GB are free in "
        f"{existing}: free some space, use another --store, or set execution.features_budget_gb to "
        f"{free / at_once / 1e9:.2g} or less"
    )


def worker_bytes(
    study: StudySpec, encoder: EncoderReference, task: TaskSpec, size: Size
) -> dict[str, float]:
    """About the bytes that a worker needs at most in each stage, for one encoder and a task of that
    size.
    """
    entries = encoder.layers * encoder.heads * task.slots**2
    probe = 4 * (encoder.layers + 1) * encoder.width**2
    tokens = study.execution.batch_tokens or _BATCH_TOKENS
    batch = 4 * tokens * (14 * encoder.width + 3 * encoder.heads * task.slots)
    layers = 4 * tokens * 2 * (encoder.layers + 1) * encoder.width
    averaging = _SUMS * 8 * entries + batch
    # Values on their way to and from the optimiser, which keeps two more for each.
    trained = 8 * (
        probe + (4 * entries if any(entry.kind == "trained" for entry in study.constants) else 0)
    )
    kept = 20 * encoder.width + 3 * encoder.heads * task.slots
    ranking = 4 * entries + trained + 4 * _PART_TOKENS * encoder.layers * kept
    probing = (
        4 * entries
        + 4 * len(study.seeds) * probe
        + batch
        + layers
        + _window(study, encoder, task, size)
    )
    decoder = _DECODER if task.kind == "mlm" else 0.0
    converted = weight_bytes(encoder) - mapped_bytes(encoder)
    # Linear maps in bfloat16 are copies, half as large; gradients take another, transposed.
    rounded = weight_bytes(encoder) / 2 if encoder.precision == "bfloat16" else 0.0
    process = _PROCESS + 2 * converted + rounded
    return {
        "average": process + averaging,
        "rank": process + rounded + decoder + ranking,
        "probe": process + decoder + probing,
    }


def _window(study: StudySpec, encoder: EncoderReference, task: TaskSpec, size: Size) -> float:
    """Features of a window in memory, where they are not stored and mapped."""
    stored = (
        feature_bytes(encoder, size, study.features) <= study.execution.features_budget_gb * 1e9
    )
    if stored and not task.probe.encoder_dropout:
        return 0.0
    rows = min(max(size.train, size.validation), WINDOW_ROWS)
    return min(4 * rows * size.tokens * (encoder.layers + 1) * encoder.width, WINDOW_BYTES)


def weight_bytes(encoder: EncoderReference) -> int:
    """The bytes of the weights on the disk."""
    return sum(path.stat().st_size for path in _weights(encoder))


def mapped_bytes(encoder: EncoderReference) -> int:
    """The bytes of weights that workers map: files whose first tensor is float32."""
    mapped = 0
    for path in _weights(encoder):
        with safe_open(path, "np") as file:
            first = next(iter(file.keys()))
            if file.get_slice(first).get_dtype() == "F32":
                mapped += path.stat().st_size
    return mapped


def _weights(encoder: EncoderReference) -> tuple[Path, ...]:
    """Its files; none before they are fetched, as in a check before the first run."""
    folder = Path(encoder.folder)
    return weight_files(folder, encoder.name).paths if has_weights(folder) else ()
