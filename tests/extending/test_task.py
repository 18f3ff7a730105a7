"""A task known by name is one entry of papa/text/registry.yaml; one of one's own is one class
that scores what a model puts out; a probe of one's own trains on features.
"""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from papa.errors import SpecError
from papa.models.reference import EMBEDDED, load_tokenizer, resolve_encoder
from papa.scores.answers import best_constant_answer
from papa.spec import EncoderSpec, LayoutSpec
from papa.spec import file as spec_file
from papa.spec.file import resolve_study
from papa.text.corpus import load_corpus, tokenise_corpus

ENTRY = """
jokes:
  kind: text
  source: {kind: hub, name: somebody/jokes}
  columns: {text: line, label: funny}
  labels: [flat, funny]
  metric: accuracy
  slots: 16
  probe: {learning_rate: 1.0e-4, batch_size: 8, epochs: 4}
"""
ROWS = [
    ("Why did the slot cross the layout?", 1),
    ("The encoder is frozen.", 0),
    ("Heads, they are constant.", 1),
]


def test_an_entry_of_the_registry_is_a_task(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    data = tmp_path / "jokes.jsonl"
    lines = (json.dumps({"line": text, "funny": label}) for text, label in ROWS)
    data.write_text("\n".join(lines))
    source = {"kind": "files", "train": data.name, "validation": data.name}
    study = {"name": "study", "encoders": [EMBEDDED]}
    study |= {"tasks": [{"name": "jokes", "source": source}]}
    with pytest.raises(
        SpecError, match=r"task 'jokes' is unknown: use one of cola, mlm, .* or describe it in full"
    ):
        resolve_study(study, folder=tmp_path, origin="test")

    registry = tmp_path / "registry.yaml"
    registry.write_text(spec_file.REGISTRY.read_text() + ENTRY)
    monkeypatch.setattr(spec_file, "REGISTRY", registry)
    (task,) = resolve_study(study, folder=tmp_path, origin="test").tasks
    encoder = resolve_encoder(EncoderSpec(name=EMBEDDED))
    folder = tokenise_corpus(
        task, LayoutSpec(), load_tokenizer(encoder), tmp_path / "corpus", shard_rows=8
    )
    answer = best_constant_answer(load_corpus(folder), task, vocabulary=0)
    assert (answer.answer, answer.score) == ("funny", pytest.approx(2 / 3))
