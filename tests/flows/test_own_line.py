"""``papa run --model NAME --own TEXTS``: one file of texts becomes a study, or one sentence."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from flows.without_file import own_study
from papa.encoders.reference import EMBEDDED
from papa.errors import PapaError
from papa.spec import StudySpec
from papa.spec.task import EMBEDDING_METRICS
from papa.study.store import Store
from tests.flows.conftest import papa, words

TEXTS = [f"Text number {number}." for number in range(20)]


def study(
    tmp_path: Path, texts: object, models: tuple[str, ...] = (EMBEDDED,), others: bool = False
) -> StudySpec:
    path = tmp_path / "texts.txt"
    path.write_text("\n".join(texts) if isinstance(texts, list) else str(texts))
    return own_study(models, path, others, None, ["seeds=[0]"], Store(tmp_path / "store"))


def test_every_other_text_is_measured(tmp_path: Path) -> None:
    found = study(tmp_path, TEXTS)
    assert found.seeds == (0,)
    assert [task.metric for task in found.tasks] == list(EMBEDDING_METRICS)
    kept = {
        split: [json.loads(line)["text"] for line in path.read_text().splitlines()]
        for split in ("train", "validation")
        for path in [Path(str(getattr(found.tasks[0].source, split)))]
    }
    assert kept == {"train": TEXTS[1::2], "validation": TEXTS[::2]}


@pytest.mark.parametrize(
    ("texts", "models", "others", "sentence"),
    [
        (TEXTS, (), False, "takes one model and one file of texts"),
        (TEXTS, (EMBEDDED, EMBEDDED), False, "takes one model and one file of texts"),
        (TEXTS, (EMBEDDED,), True, "takes one model and one file of texts"),
        (TEXTS[:4], (EMBEDDED,), False, "holds 4 texts, expected 10 or more"),
        (TEXTS, ("/no/model",), False, "there is no encoder folder at /no/model"),
    ],
)
def test_what_cannot_be_asked_is_one_sentence(
    tmp_path: Path, texts: object, models: tuple[str, ...], others: bool, sentence: str
) -> None:
    with pytest.raises(PapaError) as caught:
        study(tmp_path, texts, models, others)
    assert sentence in str(caught.value)
    assert len(str(caught.value).splitlines()) == 1
    assert not (tmp_path / "store").exists()


@pytest.mark.server
def test_a_missing_file_is_said_before_anything_is_made(tmp_path: Path) -> None:
    store = tmp_path / "store"
    finished = papa("run", "--model", EMBEDDED, "--own", "/no/texts.txt", "--store", str(store))
    assert finished.code == 1
    (line,) = words(finished)
    assert "there is no file at /no/texts.txt" in line
    assert not store.exists()
