"""``papa run --model NAME --own TEXTS``: one file of texts becomes a study, or one sentence."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from transformers import BertConfig, BertForSequenceClassification

from flows.without_file import own_study
from papa.encoders.reference import EMBEDDED
from papa.errors import PapaError
from papa.spec import StudySpec
from papa.spec.task import EMBEDDING_METRICS
from papa.study.store import Store
from tests.flows.conftest import papa, refusal
from tests.study.test_own import SMALL, saved

TEXTS = [f"Text number {number}." for number in range(44)]


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
        (TEXTS[:20], (EMBEDDED,), False, "holds 20 texts, expected 42 or more"),
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


def classifier(folder: Path, classes: int) -> str:
    shape = {**SMALL, "num_labels": classes}
    return str(saved(BertForSequenceClassification(BertConfig(**shape)), folder))


def table(folder: Path, *columns: str) -> Path:
    values = {"text": "a text", "text_pair": "another", "label": 1}
    path = folder / "rows.jsonl"
    row = json.dumps({name: values[name] for name in columns})
    path.write_text(f"{row}\n" * 44)
    return path


@pytest.mark.parametrize(
    ("classes", "columns", "asked"),
    [
        (2, ("text", "text_pair", "label"), {"accuracy": "pair", "agreement": "pair"}),
        (2, ("text", "text_pair"), {"agreement": "pair"}),
        (1, ("text", "label"), {"spearman": "text"}),
        (
            None,
            ("text", "text_pair", "label"),
            {"cosine_spearman": "similarity", **dict.fromkeys(EMBEDDING_METRICS, "text")},
        ),
    ],
)
def test_every_column_that_a_head_can_use_is_used(
    tmp_path: Path, classes: int | None, columns: tuple[str, ...], asked: dict[str, str]
) -> None:
    model = EMBEDDED if classes is None else classifier(tmp_path / "model", classes)
    rows = table(tmp_path, *columns)
    found = own_study((model,), rows, False, None, [], Store(tmp_path / "store"))
    assert {task.metric: task.kind for task in found.tasks} == asked
    pairs = [task for task in found.tasks if task.kind != "text"]
    assert all(task.columns.text_pair == "text_pair" for task in pairs)


def test_pairs_that_lack_a_text_are_left_out(tmp_path: Path) -> None:
    rows = table(tmp_path, "text", "text_pair", "label")
    rows.write_text(rows.read_text() + '{"text": "alone", "text_pair": null, "label": 0}\n')
    found = own_study((EMBEDDED,), rows, False, None, ["seeds=[0]"], Store(tmp_path / "store"))
    kept = Path(str(found.tasks[0].source.train)).read_text()
    kept += Path(str(found.tasks[0].source.validation)).read_text()
    assert (kept.count("another"), kept.count("alone")) == (44, 0)


@pytest.mark.parametrize(("classes", "columns"), [(1, ["text"]), (None, ["text", "text_pair"])])
def test_columns_that_no_head_can_use_are_refused(
    tmp_path: Path, classes: int | None, columns: list[str]
) -> None:
    model = EMBEDDED if classes is None else classifier(tmp_path / "model", classes)
    rows = table(tmp_path, *columns)
    with pytest.raises(PapaError, match=r"what can be asked of rows with text.* is not known"):
        own_study((model,), rows, False, None, [], Store(tmp_path / "store"))


@pytest.mark.server
def test_a_missing_file_is_said_before_anything_is_made(tmp_path: Path) -> None:
    store = tmp_path / "store"
    finished = papa("run", "--model", EMBEDDED, "--own", "/no/texts.txt", "--store", str(store))
    line = refusal(finished)
    assert "there is no file at /no/texts.txt" in line
    assert not store.exists()
