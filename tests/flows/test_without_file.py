"""A study without a file: of encoders and tasks by name, or of a model as it is used, on one file
of texts; studies that never finished.
"""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from transformers import BertConfig, BertForSequenceClassification

from flows.cli.studies import stored_studies
from flows.cli.without_file import own_study, study_without_file
from flows.kept import failure_kept, save_study
from papa.encoders.reference import EMBEDDED
from papa.errors import ArtifactError, PapaError, SpecError
from papa.spec import StudySpec
from papa.spec.file import load_study
from papa.spec.task import EMBEDDING_METRICS
from papa.storage.store import MARKER, Store
from tests.encoders.lower import with_tokenizer
from tests.flows.conftest import refusal, said
from tests.study.test_own import SMALL

BERT = "google-bert/bert-base-uncased"


def test_it_is_the_study_that_a_file_would_describe(tmp_path: Path) -> None:
    path = tmp_path / "study.yaml"
    path.write_text(f"{{name: bert-base-uncased-cola, encoders: [{BERT}], tasks: [cola]}}")
    assert study_without_file(None, [BERT], ["cola"], None, []) == load_study(path)


def test_options_repeat_and_combine_with_overrides(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "mine").mkdir()
    monkeypatch.chdir(tmp_path)
    overrides = ["seeds=[7]", "tasks.1.slots=64"]
    study = study_without_file(None, [BERT, "./mine"], ["cola", "rte"], 1000, overrides)
    assert study.name == "bert-base-uncased-mine-cola-rte-1000-rows"
    names = [one.name for one in study.encoders]
    assert names == [BERT, str(tmp_path / "mine")], "folders are of the working directory"
    for task in study.tasks:
        assert (task.train_rows, task.validation_rows, task.slots) == (1000, 1000, 64)
    assert study.seeds == (7,)
    assert study_without_file(None, [BERT], ["cola"], None, ["name=mine"]).name == "mine"


@pytest.mark.parametrize(
    ("study", "encoders", "tasks", "sentence"),
    [
        (None, [], ["cola"], "a study is a file alone, .* or --encoder and --task"),
        (None, [BERT], [], "a study is a file alone"),
        (Path("x.yaml"), [BERT], ["cola"], "a study is a file alone"),
        (None, [BERT], ["colla"], r"the command line: task 'colla' is unknown \(did you mean"),
    ],
)
def test_what_does_not_fit_is_one_sentence(
    study: Path | None, encoders: list[str], tasks: list[str], sentence: str
) -> None:
    with pytest.raises(SpecError, match=sentence):
        study_without_file(study, encoders, tasks, None, [])


def test_a_study_that_never_finished_is_listed_with_why(tmp_path: Path) -> None:
    store, reviews = Store(tmp_path), study_without_file(None, [EMBEDDED], ["reviews"], 20, [])
    store.make()
    assert stored_studies(store) == []
    path = save_study(store, reviews)
    assert load_study(path) == reviews, "it can be run again"
    path.with_name("broken.yaml").write_text("[")
    with pytest.raises(SpecError), failure_kept(store, reviews.name):
        raise SpecError("the loss of seed 0 is nan")
    with pytest.raises(KeyboardInterrupt), failure_kept(store, reviews.name):
        raise KeyboardInterrupt
    rows = {row["Study"]: row for row in stored_studies(store)}
    names = ("Encoders", "Tasks", "State", "Report")
    failed = ["all-MiniLM-L6-v2", "reviews", "failed: the loss of seed 0 is nan", ""]
    assert [rows[reviews.name][name] for name in names] == failed
    assert [rows["broken"][name] for name in names] == ["", "", "not finished", ""]
    with failure_kept(store, reviews.name):
        pass
    assert {row["State"] for row in stored_studies(store)} == {"not finished"}


def test_what_is_no_store_of_this_version_is_one_sentence(tmp_path: Path) -> None:
    with pytest.raises(ArtifactError, match=r"is no store of PAPA .*: give with --store the one"):
        stored_studies(Store(tmp_path / "none"))
    (tmp_path / MARKER).write_text('{"format": 99}')
    with pytest.raises(ArtifactError, match="is a store of format 99, this PAPA knows format 2"):
        stored_studies(Store(tmp_path))


TEXTS = [f"Text number {number}." for number in range(44)]


def of_own(path: Path, *models: str, others: bool = False) -> StudySpec:
    store = Store(path.parent / "store")
    return own_study(models or (EMBEDDED,), path, others, None, ["seeds=[0]"], store)


def texts_in(folder: Path, texts: list[str], name: str = "texts.txt") -> Path:
    path = folder / name
    path.write_text("\n".join(texts))
    return path


def test_every_other_text_is_measured(tmp_path: Path) -> None:
    found = of_own(texts_in(tmp_path, TEXTS, f"{'long' * 60}.txt"))
    assert found.name.startswith("all-MiniLM-L6-v2-longlong")
    assert found.name.endswith("-own")
    assert [task.metric for task in found.tasks] == list(EMBEDDING_METRICS)
    kept = {
        split: [json.loads(line)["text"] for line in path.read_text().splitlines()]
        for split in ("train", "validation")
        for path in [Path(str(getattr(found.tasks[0].source, split)))]
    }
    assert kept == {"train": TEXTS[1::2], "validation": TEXTS[::2]}
    Store(tmp_path / "store").make()


@pytest.mark.parametrize(
    ("texts", "models", "others", "sentence"),
    [
        (TEXTS, (EMBEDDED, EMBEDDED), False, "takes one model and one file of texts"),
        (TEXTS, (EMBEDDED,), True, "takes one model and one file of texts"),
        (TEXTS[:20], (EMBEDDED,), False, "holds 20 texts, expected 42 or more"),
        (TEXTS, ("/no/model",), False, "there is no encoder folder at /no/model"),
    ],
)
def test_what_cannot_be_asked_is_one_sentence(
    tmp_path: Path, texts: list[str], models: tuple[str, ...], others: bool, sentence: str
) -> None:
    with pytest.raises(PapaError, match=sentence) as caught:
        of_own(texts_in(tmp_path, texts), *models, others=others)
    assert len(str(caught.value).splitlines()) == 1
    assert not (tmp_path / "store").exists()


VALUES = {"text": "a text", "text_pair": "another", "label": 1}
PAIRS = ("text", "text_pair", "label")


def asked_of(folder: Path, classes: int | None, columns: tuple[str, ...]) -> StudySpec:
    """What is asked of a classifier, or of an encoder, on rows with these columns."""
    model, path = EMBEDDED, folder / "rows.jsonl"
    if classes is not None:
        shape = BertConfig(**{**SMALL, "num_labels": classes})
        model = str(with_tokenizer(BertForSequenceClassification(shape), folder / "model"))
    path.write_text(f"{json.dumps({name: VALUES[name] for name in columns})}\n" * 44)
    return of_own(path, model)


@pytest.mark.parametrize(
    ("classes", "columns", "asked"),
    [
        (2, PAIRS, {"accuracy": "pair", "agreement": "pair"}),
        (2, PAIRS[:2], {"agreement": "pair"}),
        (1, ("text", "label"), {"spearman": "text"}),
        (
            None,
            PAIRS,
            {"cosine_spearman": "similarity", **dict.fromkeys(EMBEDDING_METRICS, "text")},
        ),
    ],
)
def test_every_column_that_a_head_can_use_is_used(
    tmp_path: Path, classes: int | None, columns: tuple[str, ...], asked: dict[str, str]
) -> None:
    found = asked_of(tmp_path, classes, columns)
    assert {task.metric: task.kind for task in found.tasks} == asked
    pairs = [task for task in found.tasks if task.kind != "text"]
    assert all(task.columns.text_pair == "text_pair" for task in pairs)


@pytest.mark.parametrize(("classes", "columns"), [(1, ("text",)), (None, PAIRS[:2])])
def test_columns_that_no_head_can_use_are_refused(
    tmp_path: Path, classes: int | None, columns: tuple[str, ...]
) -> None:
    with pytest.raises(PapaError, match=r"what can be asked of rows with text.* is not known"):
        asked_of(tmp_path, classes, columns)


@pytest.mark.parametrize(
    ("row", "sentence"),
    [
        ('{"text": 5}', r"rows\.jsonl: column 'text' holds"),
        ('{"words": [1, 2]}', "words is not known"),
        ('{"text": "alone", "text_pair": null, "label": 0}', "row 1 has no 'text_pair'"),
    ],
)
def test_columns_that_hold_no_text_are_one_sentence(
    tmp_path: Path, row: str, sentence: str
) -> None:
    (tmp_path / "rows.jsonl").write_text(f"{row}\n" * 44)
    with pytest.raises(PapaError, match=sentence):
        of_own(tmp_path / "rows.jsonl")


def test_a_missing_file_is_said_before_anything_is_made(tmp_path: Path) -> None:
    store = tmp_path / "store"
    finished = said("run", "--model", EMBEDDED, "--own", "/no/texts.txt", "--store", str(store))
    assert "there is no file at /no/texts.txt" in refusal(finished)
    assert not store.exists()
