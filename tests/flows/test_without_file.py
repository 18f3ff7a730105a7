"""A study without a file: of encoders and tasks by name, or of a model as it is used, on one file
of texts.
"""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from rich.console import Console
from transformers import BertConfig, BertForSequenceClassification

from flows.cli.studies import failure_kept, save_study, saved_study, show_studies, stored_studies
from flows.cli.without_file import own_study, study_without_file
from papa.encoders.reference import EMBEDDED
from papa.errors import ArtifactError, PapaError, SpecError
from papa.spec import StudySpec
from papa.spec.file import load_study
from papa.spec.task import EMBEDDING_METRICS
from papa.study.store import MARKER, Store
from tests.encoders.lower import with_tokenizer
from tests.flows.conftest import refusal, said
from tests.study.test_own import SMALL

BERT = "google-bert/bert-base-uncased"


def test_it_is_the_study_that_a_file_would_describe(tmp_path: Path) -> None:
    path = tmp_path / "study.yaml"
    path.write_text(f"{{name: bert-base-uncased-cola, encoders: [{BERT}], tasks: [cola]}}")
    assert study_without_file(None, [BERT], ["cola"], None, []) == load_study(path)


def test_options_repeat_and_combine_with_overrides() -> None:
    study = study_without_file(
        None, [BERT, EMBEDDED], ["cola", "rte"], 1000, ["seeds=[7]", "tasks.1.slots=64"]
    )
    assert study.name == "bert-base-uncased-all-MiniLM-L6-v2-cola-rte-1000-rows"
    assert [one.name for one in study.encoders] == [BERT, EMBEDDED]
    assert [(task.train_rows, task.validation_rows, task.slots) for task in study.tasks] == [
        (1000, 1000, 64),
        (1000, 1000, 64),
    ]
    assert study.seeds == (7,)
    assert study_without_file(None, [BERT], ["cola"], None, ["name=mine"]).name == "mine"


def test_folders_are_relative_to_the_working_directory(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "mine").mkdir()
    monkeypatch.chdir(tmp_path)
    assert study_without_file(None, ["./mine"], ["cola"], None, []).encoders[0].name == str(
        tmp_path / "mine"
    )


@pytest.mark.parametrize(
    ("study", "encoders", "tasks", "sentence"),
    [
        (
            None,
            [],
            ["cola"],
            "--encoder is missing: give a study's file, or encoders and tasks",
        ),
        (None, [BERT], [], "--task is missing"),
        (None, [], [], "--encoder is missing"),
        (Path("x.yaml"), [BERT], ["cola"], "give x.yaml alone"),
        (
            None,
            [BERT],
            ["colla"],
            r"the command line: task 'colla' is unknown \(did you mean",
        ),
    ],
)
def test_what_does_not_fit_is_one_sentence(
    study: Path | None, encoders: list[str], tasks: list[str], sentence: str
) -> None:
    with pytest.raises(SpecError, match=sentence):
        study_without_file(study, encoders, tasks, None, [])


@pytest.fixture
def reviews() -> StudySpec:
    settings = ["ranking.epochs=1", "execution.workers=2"]
    return study_without_file(None, [EMBEDDED], ["reviews"], 20, settings)


@pytest.fixture
def store(tmp_path: Path) -> Store:
    made = Store(tmp_path / "store")
    made.make()
    return made


def test_a_study_that_never_finished_can_be_run_again_and_is_listed_as_such(
    reviews: StudySpec, store: Store
) -> None:
    assert stored_studies(store) == []
    path = save_study(store, reviews)
    assert path == saved_study(store, reviews.name)
    assert load_study(path) == reviews
    (found,) = stored_studies(store)
    assert (found.name, found.encoders, found.tasks) == (reviews.name, (EMBEDDED,), ("reviews",))
    assert (found.state, found.report) == ("not finished", None)
    saved_study(store, "broken").write_text("[")
    encoders = {one.name: one.encoders for one in stored_studies(store)}
    assert encoders == {reviews.name: (EMBEDDED,), "broken": ()}


def test_a_study_that_failed_is_listed_with_its_reason(reviews: StudySpec, store: Store) -> None:
    printed = Console(record=True, width=200, force_terminal=True)
    path, name = save_study(store, reviews), reviews.name
    with pytest.raises(SpecError), failure_kept(store, name):
        raise SpecError("the loss of seed 0 is nan")
    show_studies(store, printed)
    told = f"{name}: failed: the loss of seed 0 is nan: run 'papa run {path}' to go on"
    assert told in printed.export_text()
    with pytest.raises(KeyboardInterrupt), failure_kept(store, name):
        raise KeyboardInterrupt
    assert stored_studies(store)[0].failure
    with failure_kept(store, name):
        pass
    show_studies(store, printed)
    shown = printed.export_text()
    assert ": failed:" not in shown
    assert "and not finished: run 'papa run" in shown


def test_what_is_no_store_of_this_version_is_one_sentence(tmp_path: Path) -> None:
    with pytest.raises(ArtifactError, match=r"is no store of PAPA .*: give with --store the one"):
        stored_studies(Store(tmp_path / "none"))
    (tmp_path / MARKER).write_text('{"format": 99}')
    with pytest.raises(ArtifactError, match="is a store of format 99, this PAPA knows format 1"):
        stored_studies(Store(tmp_path))


TEXTS = [f"Text number {number}." for number in range(44)]


def study(
    tmp_path: Path, texts: list[str], models: tuple[str, ...] = (EMBEDDED,), others: bool = False
) -> StudySpec:
    path = tmp_path / "texts.txt"
    path.write_text("\n".join(texts))
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


ALONE = "takes one model and one file of texts"


@pytest.mark.parametrize(
    ("texts", "models", "others", "sentence"),
    [
        (TEXTS, (), False, ALONE),
        (TEXTS, (EMBEDDED, EMBEDDED), False, ALONE),
        (TEXTS, (EMBEDDED,), True, ALONE),
        (TEXTS[:20], (EMBEDDED,), False, "holds 20 texts, expected 42 or more"),
        (TEXTS, ("/no/model",), False, "there is no encoder folder at /no/model"),
    ],
)
def test_what_cannot_be_asked_is_one_sentence(
    tmp_path: Path, texts: list[str], models: tuple[str, ...], others: bool, sentence: str
) -> None:
    with pytest.raises(PapaError) as caught:
        study(tmp_path, texts, models, others)
    assert sentence in str(caught.value)
    assert len(str(caught.value).splitlines()) == 1
    assert not (tmp_path / "store").exists()


@pytest.mark.parametrize("row", [{"text": 5}, {"text": ["a"]}, {"words": "a"}, {"words": [1, 2]}])
def test_columns_that_hold_no_text_are_one_sentence(tmp_path: Path, row: dict[str, object]) -> None:
    path = tmp_path / "rows.jsonl"
    path.write_text(f"{json.dumps(row)}\n" * 44)
    with pytest.raises(PapaError, match=r"rows\.jsonl: column 'text' holds|words is not known"):
        own_study((EMBEDDED,), path, False, None, [], Store(tmp_path / "store"))


def test_a_long_name_of_a_file_of_texts_is_cut(tmp_path: Path) -> None:
    path = tmp_path / f"{'long' * 60}.txt"
    path.write_text("\n".join(TEXTS))
    found = own_study((EMBEDDED,), path, False, None, [], Store(tmp_path / "store"))
    assert found.name.startswith("all-MiniLM-L6-v2-longlong")
    assert found.name.endswith("-own")


def classifier(folder: Path, classes: int) -> str:
    shape = {**SMALL, "num_labels": classes}
    return str(with_tokenizer(BertForSequenceClassification(BertConfig(**shape)), folder))


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


def test_a_pair_that_lacks_a_text_is_named(tmp_path: Path) -> None:
    rows = table(tmp_path, "text", "text_pair", "label")
    rows.write_text(rows.read_text() + '{"text": "alone", "text_pair": null, "label": 0}\n')
    with pytest.raises(PapaError, match="row 45 has no 'text_pair'"):
        own_study((EMBEDDED,), rows, False, None, [], Store(tmp_path / "store"))


@pytest.mark.parametrize(("classes", "columns"), [(1, ["text"]), (None, ["text", "text_pair"])])
def test_columns_that_no_head_can_use_are_refused(
    tmp_path: Path, classes: int | None, columns: list[str]
) -> None:
    model = EMBEDDED if classes is None else classifier(tmp_path / "model", classes)
    rows = table(tmp_path, *columns)
    with pytest.raises(PapaError, match=r"what can be asked of rows with text.* is not known"):
        own_study((model,), rows, False, None, [], Store(tmp_path / "store"))


def test_a_missing_file_is_said_before_anything_is_made(tmp_path: Path) -> None:
    store = tmp_path / "store"
    finished = said("run", "--model", EMBEDDED, "--own", "/no/texts.txt", "--store", str(store))
    assert "there is no file at /no/texts.txt" in refusal(finished)
    assert not store.exists()
