"""A stage is a file of its own in papa/study with a ``Step``, which enters the study in
papa/study/steps.py.
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any, ClassVar

import pytest

from flows.progress import StudyProgress
from papa.encoders.encoder import load_encoder
from papa.encoders.reference import EMBEDDED, EncoderReference, resolve_encoder
from papa.progress import Progress
from papa.spec import EncoderSpec, ExecutionSpec
from papa.storage.artifacts import published
from papa.study.here import ThisProcess, make
from papa.study.step import Session, Step
from papa.study.store import Store


@dataclass(frozen=True, eq=False)
class Vocabulary(Step):
    """How many words an encoder knows."""

    stage: ClassVar[str] = "vocabulary"
    version: ClassVar[int] = 1

    encoder: EncoderReference

    def spec(self) -> dict[str, Any]:
        return {}

    def outside(self) -> dict[str, str]:
        return {"encoder": self.encoder.digest}

    def run(self, session: Session, progress: Progress) -> None:
        progress(0, 1)
        words = len(load_encoder(self.encoder).word_embeddings)
        with published(self.folder(session.store), self.metadata({})) as scratch:
            (scratch / "words.json").write_text(json.dumps(words))


def test_a_step_runs_once_and_again_for_another_version(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    store, lines = Store(tmp_path / "store"), []
    store.make()
    encoder = resolve_encoder(EncoderSpec(name=EMBEDDED))
    progress = StudyProgress(1)
    progress.log = lines.append
    session = Session(store, ThisProcess(), ExecutionSpec(), progress)

    def vocabulary() -> Vocabulary:
        return Vocabulary("vocabulary · minilm", encoder)

    def cached() -> bool:
        return vocabulary().is_complete(store)

    assert not cached()
    assert make(vocabulary(), session)
    found = vocabulary().reference(store)
    assert json.loads((found.folder / "words.json").read_text()) == 30522
    assert cached()
    assert not make(vocabulary(), session)
    assert len(lines) == 1, "it ran once"

    monkeypatch.setattr(Vocabulary, "version", 2)
    assert not cached()
    assert make(vocabulary(), session)
    assert len(lines) == 2
    assert found.path != vocabulary().folder(store)
