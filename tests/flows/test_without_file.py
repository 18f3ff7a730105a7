"""Studies without a file: of names, or of a model on texts; those that never finished."""

import json
import re
from contextlib import ExitStack
from pathlib import Path

import pytest
from transformers import BertConfig, BertForSequenceClassification

from papa.errors import DataError, PapaError, SpecError
from papa.flows.cli.lists import stored_studies
from papa.flows.cli.without_file import refuse_same_name, study_of_texts, study_without_file
from papa.models.reference import EMBEDDED
from papa.spec import StudySpec
from papa.spec.file import load_study
from papa.spec.task import EMBEDDING_METRICS
from papa.storage.store import Store
from papa.tasks.study_files import save_study
from tests.models.inputs import with_tokenizer
from tests.tasks.word_order import SHAPE

BERT = "google-bert/bert-base-uncased"
TEXTS = [f"Text number {number}." for number in range(44)]
VALUES = {"text": "a text", "text_pair": "another", "label": 1}
PAIRS = ("text", "text_pair", "label")
EMBEDDED_TEXT = dict.fromkeys(EMBEDDING_METRICS, "text")


def test_it_is_the_study_of_an_equal_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "study.yaml"
    path.write_text(f"{{name: bert-base-uncased-cola, encoders: [{BERT}], tasks: [cola]}}")
    assert study_without_file(None, [BERT], ["cola"], None, []) == load_study(path)
    (tmp_path / "mine").mkdir()
    monkeypatch.chdir(tmp_path)
    overrides = ["probe_seeds=[7]", "tasks.1.slots=64"]
    study = study_without_file(None, [BERT, "./mine"], ["cola", "rte"], 1000, overrides)
    assert study.name == "bert-base-uncased-mine-cola-rte-1000-rows"
    names = [encoder.name for encoder in study.encoders]
    assert names == [BERT, str(tmp_path / "mine")], "folders are of the working directory"
    for task in study.tasks:
        assert (task.train_rows, task.validation_rows, task.slots) == (1000, 1000, 64)
    assert study.probe_seeds == (7,)
    assert study_without_file(None, [BERT], ["cola"], None, ["name=mine"]).name == "mine"
    with pytest.raises(SpecError, match="--task"):
        study_without_file(path, [BERT], [], None, [])


def test_a_study_that_never_finished_is_listed_with_why(tmp_path: Path) -> None:
    store = Store(tmp_path)
    reviews = study_without_file(None, [EMBEDDED], ["reviews"], 20, [])
    store.make()
    assert stored_studies(store) == []
    path = save_study(store, reviews)
    assert load_study(path) == reviews, "it can be run again"
    path.with_name("broken.yaml").write_text("[")
    store.study_path(f"{reviews.name}.failed").write_text("the loss of seed 0 is nan\n")
    studies = {study.name: study for study in stored_studies(store)}
    failed = studies[reviews.name]
    assert (failed.encoders, failed.tasks) == (["all-MiniLM-L6-v2"], ["reviews"])
    assert (failed.state, failed.reason) == ("failed", "the loss of seed 0 is nan")
    broken = studies["broken"]
    assert (broken.encoders, broken.tasks, broken.state) == ([], [], "not finished")
    assert failed.report is broken.report is None


def study_of_lines(
    path: Path, lines: list[str], model: str = EMBEDDED, *, every_other: bool = False
) -> StudySpec:
    path.write_text("\n".join(lines))
    store = Store(path.parent / "store")
    return study_of_texts(
        (model,), path, every_other, None, ["probe_seeds=[0]"], store, ExitStack()
    )


def measured_texts(study: StudySpec) -> list[str]:
    path = Path(str(study.tasks[0].source.validation))
    return [json.loads(line)["text"] for line in path.read_text().splitlines()]


def test_measured_texts_are_a_sample_of_the_whole_file(tmp_path: Path) -> None:
    lines = [f"Text number {number}." for number in range(3000)]
    measured = measured_texts(study_of_lines(tmp_path / "texts.txt", lines))
    assert len(measured) == 500
    assert measured == [line for line in lines[::2] if line in set(measured)], "in their order"
    in_last_third = sum(line in set(measured) for line in lines[2000:])
    assert 120 < in_last_third < 220
    assert measured_texts(study_of_lines(tmp_path / "again.txt", lines)) == measured
    store = Store(tmp_path / "store")
    limited = study_of_texts(
        [EMBEDDED], tmp_path / "texts.txt", False, 100, ["name=few"], store, ExitStack()
    )
    assert {*measured_texts(limited)} - {*lines[:1000]}


@pytest.mark.parametrize(("limit", "named"), [(20, "--limit 20"), (43, None)])
def test_a_limit_below_the_least_texts_is_refused_by_its_name(
    tmp_path: Path, limit: int, named: str | None
) -> None:
    path = tmp_path / "texts.txt"
    path.write_text("\n".join(TEXTS))
    store = Store(tmp_path / "store")
    if named:
        with pytest.raises(DataError, match=named):
            study_of_texts([EMBEDDED], path, False, limit, [], store, ExitStack())
    else:
        study = study_of_texts([EMBEDDED], path, False, limit, [], store, ExitStack())
        assert len(measured_texts(study)) == 22


def test_long_names_are_truncated_and_stay_distinct() -> None:
    encoders = [f"somebody/{'encoder' * 8}-{number}" for number in range(5)]
    tasks = ["cola", "rte", "sst2", "mrpc"]
    study, without_last_task, without_last_encoder = (
        study_without_file(None, encoders, tasks, None, []),
        study_without_file(None, encoders, tasks[:-1], None, []),
        study_without_file(None, encoders[:-1], tasks, None, []),
    )
    names = {study.name, without_last_task.name, without_last_encoder.name}
    assert len(names) == 3
    assert study_without_file(None, encoders, tasks, None, []).name == study.name


def test_a_name_of_other_texts_is_refused(tmp_path: Path) -> None:
    store = Store(tmp_path / "store")
    first = study_of_lines(tmp_path / "texts.txt", TEXTS)
    save_study(store, first)
    assert study_of_lines(tmp_path / "texts.txt", TEXTS) == first, "the same texts go on"
    other_file = tmp_path / "other" / "texts.txt"
    other_file.parent.mkdir()
    other_file.write_text("\n".join(reversed(TEXTS)))
    with pytest.raises(SpecError, match=re.escape(first.name)):
        study_of_texts([EMBEDDED], other_file, False, None, ["probe_seeds=[0]"], store, ExitStack())
    renamed = study_of_texts(
        [EMBEDDED], other_file, False, None, ["name=other"], store, ExitStack()
    )
    assert measured_texts(renamed) == TEXTS[::-1][::2]
    assert measured_texts(first) == TEXTS[::2]


def test_another_encoders_name_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    store = Store(tmp_path / "store")
    for folder in ("a", "b"):
        (tmp_path / folder / "bert").mkdir(parents=True)
    paths = ("a/bert", "b/bert")
    first, second = (study_without_file(None, [path], ["cola"], 9, []) for path in paths)
    assert first.name == second.name
    save_study(store, first)
    refuse_same_name(first, store, {})
    with pytest.raises(SpecError, match="bert-cola-9-rows"):
        refuse_same_name(second, store, {})


ALONE = '{"text": "alone", "text_pair": null, "label": 0}'
REFUSED: list[tuple[list[str], str, bool, str]] = [
    (TEXTS, EMBEDDED, True, "--model"),
    (TEXTS[:20], EMBEDDED, False, "20 texts"),
    (TEXTS, "/no/model", False, "/no/model"),
    (['{"text": 5}'] * 44, EMBEDDED, False, "'text'"),
    (['{"words": [1, 2]}'] * 44, EMBEDDED, False, "words"),
    ([ALONE] * 44, EMBEDDED, False, "'text_pair'"),
]


@pytest.mark.parametrize(("lines", "model", "every_other", "expected"), REFUSED)
def test_texts_that_cannot_be_measured_are_refused(
    tmp_path: Path, lines: list[str], model: str, every_other: bool, expected: str
) -> None:
    name = "rows.jsonl" if lines[0].startswith("{") else "texts.txt"
    with pytest.raises(PapaError, match=expected):
        study_of_lines(tmp_path / name, lines, model, every_other=every_other)
    assert not (tmp_path / "store").exists()


@pytest.mark.parametrize(
    ("classes", "columns", "expected"),
    [
        (2, PAIRS, {"accuracy": "pair", "agreement": "pair"}),
        (2, PAIRS[:2], {"agreement": "pair"}),
        (1, ("text", "label"), {"spearman": "text"}),
        (1, ("text",), None),
        (None, PAIRS, {"cosine_spearman": "similarity", **EMBEDDED_TEXT}),
        (None, PAIRS[:2], None),
    ],
)
def test_every_column_that_a_head_can_use_is_used(
    tmp_path: Path, classes: int | None, columns: tuple[str, ...], expected: dict[str, str] | None
) -> None:
    """Of a classifier, or of an encoder; what no head can use is refused."""
    model = EMBEDDED
    lines = [json.dumps({name: VALUES[name] for name in columns})] * 44
    if classes is not None:
        shape = BertConfig.from_dict(SHAPE | {"num_labels": classes})
        model = str(with_tokenizer(BertForSequenceClassification(shape), tmp_path / "model"))
    if expected is None:
        with pytest.raises(PapaError, match="text"):
            study_of_lines(tmp_path / "rows.jsonl", lines, model)
        return
    study = study_of_lines(tmp_path / "rows.jsonl", lines, model)
    assert {task.metric: task.kind for task in study.tasks} == expected
    pairs = [task for task in study.tasks if task.kind != "text"]
    assert all(task.columns.text_pair == "text_pair" for task in pairs)
