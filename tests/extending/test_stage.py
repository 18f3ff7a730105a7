"""A stage is a function with ``@stage`` in a file of its own in papa/study/stages; its steps enter
the study in papa/study/steps.py.
"""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from papa.models.reference import EMBEDDED, EncoderReference, resolve_encoder
from papa.spec import EncoderSpec, ExecutionSpec
from papa.storage.artifacts import verified
from papa.storage.store import Store
from papa.study.run import Session, make
from papa.study.step import Context, stage
from papa.worker import Worker
from tests.finished import Told


@stage("vocabulary", version=1)
def vocabulary(run: Context, encoder: EncoderReference) -> None:
    """How many words an encoder knows."""
    with run.published() as folder:
        (folder / "words.json").write_text(json.dumps(len(run.encoder.word_embeddings)))


def test_a_step_runs_once_and_again_for_another_version(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    store, told = Store(tmp_path / "store"), Told()
    store.make()
    encoder = resolve_encoder(EncoderSpec(name=EMBEDDED))
    session = Session(store, Worker(), ExecutionSpec(), told)

    def step():
        return vocabulary("vocabulary · minilm", encoder)

    folders = set()
    for version in (1, 2):
        monkeypatch.setattr(vocabulary, "version", version)
        assert not step().is_complete(store)
        assert make(step(), session)
        found = step().reference(store)
        assert json.loads((verified(found) / "words.json").read_text()) == 30522
        assert step().is_complete(store)
        assert not make(step(), session)
        folders.add(found.path)
        assert len(told.ran) == version == len(folders), "it ran once"
