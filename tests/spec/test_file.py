"""Studies from YAML: what is resolved, what is overridden, what is refused and how."""

import json
import re
from pathlib import Path

import pytest

from papa.errors import CheckError, Problem, SpecError
from papa.spec import StudySpec
from papa.spec.faults import StudyFileError
from papa.spec.file import load_study
from tests.spec.documents import TEXT_TASK

SMALLEST: dict[str, object] = {
    "name": "s",
    "encoders": ["embedded/all-MiniLM-L6-v2"],
    "tasks": ["reviews"],
}
AUTHORS = {"as_the_authors_ran": True}


def study(folder: Path, document: dict[str, object], *overrides: str) -> StudySpec:
    path = folder / "study.yaml"
    path.write_text(json.dumps(document))
    return load_study(path, overrides)


def test_what_a_study_leaves_out_is_the_papers(tmp_path: Path) -> None:
    loaded = study(tmp_path, SMALLEST)
    assert loaded.tasks[0].columns.label == "label"
    assert loaded.keep == (1, 0.5, 0.125, 0.0625, 0)
    assert loaded.orders == ("lambda",)
    assert [substitute.kind for substitute in loaded.substitutes] == ["average"]


def test_a_named_task_keeps_what_an_entry_does_not_change(tmp_path: Path) -> None:
    cola = {"name": "cola", "source": TEXT_TASK["source"], "probe": {"epochs": 1}}
    (task,) = study(tmp_path, SMALLEST | {"tasks": [cola]}).tasks
    assert (task.source.kind, task.metric) == ("files", "matthews")
    assert (task.probe.epochs, task.probe.batch_size) == (1, 16)


NATIVE = TEXT_TASK | {"head": "native"}


@pytest.mark.parametrize(
    ("changes", "overrides", "order"),
    [
        ({"tasks": [NATIVE, NATIVE | {"name": "other"}]}, [], "effect"),
        ({"tasks": [NATIVE, "reviews"]}, [], "lambda"),
        ({"tasks": [TEXT_TASK]}, ["tasks.0.head=native"], "effect"),
        ({"tasks": [NATIVE], "orders": ["lambda"]}, [], "lambda"),
        ({"tasks": [NATIVE]}, ["orders=[random]"], "random"),
    ],
    ids=["native heads", "also a probe", "native by an override", "named", "named by an override"],
)
def test_the_order_of_a_study_that_names_none(
    tmp_path: Path, changes: dict[str, object], overrides: list[str], order: str
) -> None:
    assert study(tmp_path, SMALLEST | changes, *overrides).orders == (order,)


def test_paths_are_of_the_files_folder(tmp_path: Path) -> None:
    (tmp_path / "model").mkdir()
    (tmp_path / "paper.csv").write_text("")
    changes = {"tasks": [TEXT_TASK], "encoders": ["./model"], "reference": "paper.csv"}
    loaded = study(tmp_path, SMALLEST | changes)
    assert loaded.tasks[0].source.train == tmp_path / "t.jsonl"
    assert loaded.encoders[0].name == str(tmp_path / "model")
    assert loaded.reference == tmp_path / "paper.csv"
    assert study(tmp_path, loaded.model_dump(mode="json")) == loaded


def test_an_override_wins_over_the_file(tmp_path: Path) -> None:
    overrides = ("probe_seeds=[1, 2]", "tasks.0.train_rows=10")
    loaded = study(tmp_path, SMALLEST | {"probe_seeds": [7]}, *overrides)
    assert (loaded.probe_seeds, loaded.tasks[0].train_rows) == ((1, 2), 10)


def test_substitutes_are_labelled_with_their_parameters(tmp_path: Path) -> None:
    kinds = ["local", {"kind": "local", "window": 5}, {"kind": "low_rank", "rank": 3}]
    loaded = study(tmp_path, SMALLEST | {"substitutes": kinds})
    labels = [substitute.label for substitute in loaded.substitutes]
    assert labels == ["local:2", "local:5", "low_rank:3:0"]


def test_one_switch_sets_all_of_the_authors(tmp_path: Path) -> None:
    document = SMALLEST | {"tasks": ["cola", "pos", "ner", TEXT_TASK]}
    plain = study(tmp_path, document)
    as_authors = study(tmp_path, document | AUTHORS)
    assert as_authors.layout.model_dump() == {"one_text_truncation": "half", "segment_ids": "stay"}
    assert (plain.ranking_seeds, as_authors.ranking_seeds) == ((0, 1, 2), (0,))
    metrics = ["matthews", "bare_entity_f1", "entity_f1", "accuracy"]
    spelled_out = [task.model_dump(mode="json") for task in plain.tasks]
    for task, metric in zip(spelled_out, metrics, strict=True):
        task["metric"] = metric
        task["probe"]["encoder_dropout"] = True
    assert study(tmp_path, document | {"tasks": spelled_out}).tasks == as_authors.tasks
    assert study(tmp_path, as_authors.model_dump(mode="json")) == as_authors


def test_what_a_study_says_itself_wins_over_the_authors(tmp_path: Path) -> None:
    entry = {"name": "pos", "metric": "token_f1", "probe": {"encoder_dropout": False}}
    changes = {"layout": {"segment_ids": "follow"}, "tasks": [entry, "cola"]}
    as_authors = study(tmp_path, SMALLEST | AUTHORS | changes)
    assert as_authors.layout.one_text_truncation == "half"
    assert as_authors.layout.segment_ids == "follow"
    assert [task.metric for task in as_authors.tasks] == ["token_f1", "matthews"]
    assert [task.probe.encoder_dropout for task in as_authors.tasks] == [False, True]


DECODER = TEXT_TASK | {
    "kind": "causal",
    "columns": {"text": "a"},
    "metric": "agreement",
    "head": "native",
}
NO_RATE = {"batch_size": 1, "epochs": 1}


def of_task(*tasks: dict[str, object], **settings: object) -> dict[str, object]:
    return {"tasks": [*tasks], **settings}


REFUSED: list[tuple[dict[str, object] | str, str]] = [
    (of_task(DECODER | {"columns": TEXT_TASK["columns"]}), "label"),
    (of_task(DECODER | {"head": "probe"}), "head: native"),
    (of_task(DECODER | {"metric": "f1"}), "'f1'"),
    (of_task(TEXT_TASK | {"metric": "cosine"}), "head: probe"),
    ({"hue": 1}, "'hue'"),
    ({"workers": 2}, "'workers'"),
    (of_task(TEXT_TASK | {"colum": {}}), "'tasks.0.colum'"),
    ({"as_the_authors_ran": "yes"}, "'as_the_authors_ran'"),
    (of_task(TEXT_TASK | {"probe": NO_RATE}), "'tasks.0.probe.learning_rate'"),
    ({"tasks": ["colla"]}, "'colla' is unknown (did you mean 'cola'?)"),
    ({"substitutes": ["avarage"]}, "'avarage' (did you mean 'average'?"),
    (of_task(TEXT_TASK | {"source": {"train": "a"}}), "'tasks.0.source'"),
    (of_task(TEXT_TASK | {"source": {"kind": "file"}}), "'file' (did you mean 'files'?)"),
    ({"precision": "float16"}, "'float16'"),
    ({"name": "my study!"}, "'name': use letters, digits, '.', '-' and '_'"),
    (of_task(TEXT_TASK | {"metric": "acc"}), "'acc' (did you mean 'accuracy'?)"),
    ({"keep": [1.5]}, "'keep.0'"),
    ({"probe_seeds": []}, "'probe_seeds'"),
    ({"ranking_seeds": [1, 1]}, "'ranking_seeds': 1"),
    (of_task(TEXT_TASK, TEXT_TASK), "'mine'"),
    ({"substitutes": [{"kind": "local", "rank": 3}]}, "rank"),
    ({"reference": "nowhere.csv"}, "'reference'"),
    ({"seed": 1}, "'seed' (did you mean 'probe_seeds'?)"),
    ({"orders": ["scores:nowhere.tsv"]}, "'orders.0'"),
    (of_task(TEXT_TASK | {"source": {"train": "a", "validation": "b"}}), "kind: files"),
    ("tasks.mine.slots=8", "'mine'"),
    ("probe_seeds", "--set probe_seeds"),
    ("tasks.4.slots=8", "'4'"),
    ("probe_seeds.0.x=1", "--set probe_seeds.0.x=1"),
    ("execution.worker=1", "'execution.worker' (did you mean 'workers'?)"),
]
"""A change of a study that is sound, or an override of it, and what is named."""


@pytest.mark.parametrize(("change", "expected"), REFUSED)
def test_what_is_wrong_is_named_in_one_sentence(
    tmp_path: Path, change: dict[str, object] | str, expected: str
) -> None:
    changes, overrides = ({}, [change]) if isinstance(change, str) else (change, [])
    with pytest.raises(SpecError, match=re.escape(expected)) as raised:
        study(tmp_path, SMALLEST | {"probe_seeds": [7]} | changes, *overrides)
    assert str(raised.value).startswith((str(tmp_path / "study.yaml"), "--set "))
    assert "\n" not in str(raised.value)


@pytest.mark.parametrize("task", [TEXT_TASK, DECODER, NATIVE])
def test_what_refused_ones_differ_from_is_sound(tmp_path: Path, task: dict[str, object]) -> None:
    assert study(tmp_path, SMALLEST | {"tasks": [task]}).tasks[0].slots == 16


def test_everything_that_is_wrong_is_told_together(tmp_path: Path) -> None:
    change = {
        "encoders": ["embedded/all-MiniLM-L6-v2", 7],
        "tasks": [{"name": "reviews", "slots": 33, "sluts": 32}],
        "execution": 3,
    }
    with pytest.raises(CheckError) as raised:
        study(tmp_path, SMALLEST | change)
    keys = re.findall(r"study\.yaml: [^']*'([\w.]+)'", str(raised.value))
    assert {*keys} == {"encoders.1", "tasks.0.sluts", "tasks.0.slots", "execution"}


def test_a_task_has_a_line_for_each_of_its_misfits(tmp_path: Path) -> None:
    task = TEXT_TASK | {"validation_slots": 32, "metric": "cosine", "positive": "a"}
    with pytest.raises(CheckError) as raised:
        study(tmp_path, SMALLEST | {"tasks": [task]})
    keys = ("validation_slots", "metric", "positive")
    for key, reason in zip(keys, raised.value.reasons, strict=True):
        assert "'tasks.0'" in reason
        assert key in reason


def test_the_rest_of_a_study_with_faults_keeps_its_positions(tmp_path: Path) -> None:
    """Entries with a fault are left out, of unknown keys these alone."""
    change = {
        "name": "my study!",
        "tasks": [
            "revews",
            TEXT_TASK | {"slots": 3},
            TEXT_TASK | {"name": "other", "slot": 16},
        ],
        "keap": [1],
    }
    with pytest.raises(StudyFileError) as raised:
        study(tmp_path, SMALLEST | change)
    keys = re.findall(r"study\.yaml: [^']*'([\w.]+)'", str(raised.value))
    assert {*keys} == {"name", "tasks.0", "tasks.1.slots", "tasks.2.slot", "keap"}
    part = raised.value.checkable
    assert part is not None
    assert [task.name for task in part.study.tasks] == ["other"]
    problem = part.in_file(Problem("tasks.0 (other)", SpecError("")))
    assert problem.where == "tasks.2 (other)"


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("- 1", ""),
        ("", ""),
        ("a: &a [x]\nb: *a", "alias"),
        ("name: a\ntasks: []\nname: b\n", "'name'"),
        ("[" * 50_000, ""),
        ("a: 2020-13-45", ""),
        ("a: " + "9" * 5_000, ""),
        ("a: !!python/object/apply:os.system [true]", ""),
        ("a: \0", ""),
        ("a: [", ""),
    ],
    ids=lambda value: value[:20],
)
def test_a_file_that_is_no_study_is_refused(tmp_path: Path, text: str, expected: str) -> None:
    path = tmp_path / "demo.yaml"
    path.write_text(text)
    with pytest.raises(SpecError, match=rf"^{re.escape(str(path))} .*{expected}") as refused:
        load_study(path)
    assert len(str(refused.value)) < 500


def test_a_file_of_almost_the_same_name_is_suggested(tmp_path: Path) -> None:
    (tmp_path / "demo.yaml").touch()
    with pytest.raises(SpecError, match=r"deom\.yaml .*'demo.yaml'"):
        load_study(tmp_path / "deom.yaml")


RENAMED: list[tuple[dict[str, object], str, str]] = [
    ({"constants": ["zeros"]}, "constants", "substitutes"),
    ({"fractions": [1, 0]}, "fractions", "keep"),
    ({"seeds": [0, 1]}, "seeds", "probe_seeds"),
    ({"ranking": {"seeds": [0]}}, "ranking.seeds", "ranking_seeds"),
    ({"tasks": [{"name": "cola", "own_probe": "a:b"}]}, "own_probe", "custom_probe"),
]


@pytest.mark.parametrize(("keys", "earlier", "today"), RENAMED)
def test_an_earlier_name_is_told_todays(
    tmp_path: Path, keys: dict[str, object], earlier: str, today: str
) -> None:
    with pytest.raises(SpecError) as error:
        study(tmp_path, SMALLEST | keys)
    assert f"{earlier}'" in str(error.value)
    assert f"'{today}'" in str(error.value)


def test_an_earlier_name_of_another_section_is_only_unknown(tmp_path: Path) -> None:
    task = TEXT_TASK | {"probe": NO_RATE | {"learning_rate": 1, "seeds": [0]}}
    with pytest.raises(SpecError, match=r"'tasks\.0\.probe\.seeds'") as error:
        study(tmp_path, SMALLEST | {"tasks": [task]})
    assert "probe_seeds" not in str(error.value)


@pytest.mark.parametrize(
    ("change", "key", "words_of_python"),
    [
        (of_task(TEXT_TASK | {"probe": NO_RATE}), "tasks.0.probe.learning_rate", "Field"),
        ({"reference": 5}, "reference", "pathlib"),
    ],
)
def test_a_fault_is_said_without_words_of_python(
    tmp_path: Path, change: dict[str, object], key: str, words_of_python: str
) -> None:
    with pytest.raises(SpecError, match=f"'{key}'") as error:
        study(tmp_path, SMALLEST | change)
    assert words_of_python not in str(error.value)


def test_an_index_beyond_a_list_is_refused_with_its_length(tmp_path: Path) -> None:
    with pytest.raises(SpecError, match=r"'7'.* 1\b"):
        study(tmp_path, SMALLEST, "tasks.7.slots=64")
