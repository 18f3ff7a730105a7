"""Studies from YAML: what is resolved, what is overridden, what is refused and how."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest
from pydantic import ValidationError

from papa.errors import SpecError
from papa.spec import StudySpec
from papa.spec.document import write_yaml
from papa.spec.file import load_study

SMALLEST: dict[str, Any] = {
    "name": "s",
    "encoders": ["embedded/all-MiniLM-L6-v2"],
    "tasks": ["reviews"],
}
OWN = {
    "name": "mine",
    "kind": "text",
    "source": {"kind": "files", "train": "t.jsonl", "validation": "v.jsonl"},
    "columns": {"text": "a", "label": "b"},
    "metric": "accuracy",
    "slots": 16,
    "probe": {"learning_rate": 0.001, "batch_size": 2, "epochs": 1},
}


def study(folder: Path, document: dict[str, Any], *overrides: str) -> StudySpec:
    path = folder / "study.yaml"
    path.write_text(write_yaml(document))
    return load_study(path, overrides)


def test_names_become_full_tasks_and_defaults_are_the_papers(tmp_path: Path) -> None:
    found = study(tmp_path, SMALLEST)
    assert found.tasks[0].columns.label == "label"
    assert found.fractions == (1, 0.5, 0.125, 0.0625, 0)
    assert found.orders == ("lambda",)
    assert [constants.kind for constants in found.constants] == ["average"]


def test_a_task_of_ones_own_and_paths_relative_to_the_study(tmp_path: Path) -> None:
    (tmp_path / "model").mkdir()
    (tmp_path / "paper.csv").write_text("")
    found = study(
        tmp_path, SMALLEST | {"tasks": [OWN], "encoders": ["./model"], "reference": "paper.csv"}
    )
    assert found.tasks[0].source.train == tmp_path / "t.jsonl"
    assert found.encoders[0].name == str(tmp_path / "model")
    assert found.reference == tmp_path / "paper.csv"


def test_a_known_task_with_another_source_keeps_the_rest(tmp_path: Path) -> None:
    entry = {"name": "cola", "source": OWN["source"], "probe": {"epochs": 1}}
    task = study(tmp_path, SMALLEST | {"tasks": [entry]}).tasks[0]
    assert task.source.kind == "files"
    assert (task.metric, task.probe.epochs, task.probe.batch_size) == ("matthews", 1, 16)


def test_set_wins_over_the_file(tmp_path: Path) -> None:
    found = study(
        tmp_path,
        SMALLEST | {"seeds": [7]},
        "seeds=[1, 2]",
        "tasks.0.train_rows=10",
        "execution.workers=3",
        "constants=[toeplitz]",
    )
    assert found.seeds == (1, 2)
    assert found.tasks[0].train_rows == 10
    assert found.execution.workers == 3
    assert found.constants[0].kind == "toeplitz"


def test_one_switch_sets_all_of_the_authors(tmp_path: Path) -> None:
    document = SMALLEST | {
        "tasks": ["cola", "pos", "ner", OWN],
        "constants": [{"kind": "average", "corpus": "sst2"}],
    }
    plain, found = (
        study(tmp_path, document),
        study(tmp_path, document | {"as_the_authors_ran": True}),
    )
    assert (found.layout.one_text_truncation, found.layout.segment_ids) == ("half", "stay")
    assert all(task.probe.encoder_dropout for task in found.tasks)
    assert (plain.ranking.seeds, found.ranking.seeds) == ((0, 1, 2), (0,))
    assert [task.metric for task in found.tasks] == [
        "matthews",
        "bare_entity_f1",
        "entity_f1",
        "accuracy",
    ]
    # Nothing else differs, and the resolved study is a study file of its own.
    spelled_out = {
        "layout": {"one_text_truncation": "half", "segment_ids": "stay"},
        "tasks": [
            {**task.model_dump(mode="json"), "metric": same.metric}
            for task, same in zip(plain.tasks, found.tasks, strict=True)
        ],
    }
    for task in spelled_out["tasks"]:
        task["probe"]["encoder_dropout"] = True
    again = study(tmp_path, found.model_dump(mode="json"))
    assert again == found
    assert study(tmp_path, document | spelled_out).tasks == found.tasks
    assert study(tmp_path, document | {"as_the_authors_ran": False}) == plain


def test_one_ranking_seed_of_an_older_study_is_a_list_of_one(tmp_path: Path) -> None:
    assert study(tmp_path, SMALLEST | {"ranking": {"seed": 3}}).ranking.seeds == (3,)
    assert study(
        tmp_path, SMALLEST | {"ranking": {"seed": 3}, "as_the_authors_ran": True}
    ).ranking.seeds == (3,)
    assert study(
        tmp_path, SMALLEST | {"ranking": {"seeds": [1, 2]}, "as_the_authors_ran": True}
    ).ranking.seeds == (
        1,
        2,
    )


def test_what_a_study_says_itself_wins_over_the_authors_switch(tmp_path: Path) -> None:
    entry = {"name": "pos", "metric": "token_f1", "probe": {"encoder_dropout": False}}
    document = SMALLEST | {
        "as_the_authors_ran": True,
        "layout": {"segment_ids": "follow"},
        "tasks": [entry, "cola"],
    }
    found = study(tmp_path, document)
    assert (found.layout.one_text_truncation, found.layout.segment_ids) == ("half", "follow")
    assert [task.metric for task in found.tasks] == ["token_f1", "matthews"]
    assert [task.probe.encoder_dropout for task in found.tasks] == [False, True]
    overridden = study(tmp_path, SMALLEST, "as_the_authors_ran=true", "layout.segment_ids=follow")
    assert (overridden.layout.one_text_truncation, overridden.layout.segment_ids) == (
        "half",
        "follow",
    )


def test_a_specification_is_frozen(tmp_path: Path) -> None:
    with pytest.raises(ValidationError, match="frozen"):
        study(tmp_path, SMALLEST).name = "other"  # type: ignore[misc]


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"hue": 1}, "unknown key 'hue': correct it; 'papa init' explains the keys"),
        (
            {"enocders": []},
            r"unknown key 'enocders' \(did you mean 'encoders'\?\)",
        ),
        (
            {"as_the_author_ran": 1},
            r"unknown key 'as_the_author_ran' \(did you mean 'as_the_authors_ran'\?\)",
        ),
        (
            {"tasks": [OWN | {"probe": {"batch_size": 1, "epochs": 1}}]},
            "'tasks.0.probe.learning_rate': Field required",
        ),
        (
            {"tasks": ["colla"]},
            r"task 'colla' is unknown \(did you mean 'cola'\?\): .* 'papa init' writes an example",
        ),
        (
            {"constants": ["avarage"]},
            r"'constants.0.kind': Input .* 'average', .*'avarage' \(did you mean 'average'\?",
        ),
        ({"orders": ["lamda"]}, r"'orders.0': .*found 'lamda' \(did you mean 'lambda'\?\)"),
        ({"constants": [{}]}, "'constants.0.kind': Field required"),
        (
            {"tasks": [OWN | {"source": {"train": "t"}}]},
            "'tasks.0.source': Unable to extract tag using discriminator 'kind'",
        ),
        (
            {"tasks": [OWN | {"source": {"kind": "file"}}]},
            r"'tasks.0.source': .*'hub', .*found 'file' \(did you mean 'files'\?\)",
        ),
        (
            {"precision": "bfloat61"},
            r"'precision': .*'bfloat61' \(did you mean 'bfloat16'\?",
        ),
        (
            {"precision": "float16"},
            r"'precision': Input should be 'float32', 'bfloat16' or 'auto', found 'float16'",
        ),
        (
            {"features": {"dtype": "float16"}},
            r"'features.dtype': Input should be 'float32' or 'bfloat16', found 'float16'",
        ),
        ({"name": "my study!"}, r"'name': String should match pattern .*, found 'my study!'"),
        ({"as_the_authors_ran": "yes"}, "'as_the_authors_ran' is 'yes': use true or false"),
        ({"as_the_authors_ran": True, "layout": None}, "'layout'"),
        (
            {"tasks": [OWN | {"probe": OWN["probe"] | {"max_grad_norm": -1}}]},
            "'tasks.0.probe.max_grad_norm'",
        ),
        ({"ranking": {"epochs": 0}}, "'ranking.epochs'"),
        (
            {"ranking": {"seed": 1, "seeds": [1]}},
            r"unknown key 'ranking.seed' \(did you mean 'seeds'\?\)",
        ),
        ({"ranking": {"seeds": [1, 1]}}, "'ranking.seeds': 1 is listed twice"),
        ({"ranking": {"seeds": []}}, "'ranking.seeds'"),
        ({"ranking": {"until_stable": "soon"}}, "'ranking.until_stable'"),
        ({"tasks": [OWN | {"colum": {}}]}, "unknown key 'tasks.0.colum'"),
        ({"tasks": ["nope"]}, "task 'nope' is unknown: use one of cola"),
        ({"tasks": [OWN, OWN]}, "'mine' is listed twice"),
        ({"tasks": [OWN | {"columns": {"text": "a"}}]}, "needs columns.label"),
        (
            {"tasks": [OWN | {"metric": "entity_f1"}]},
            "is scored by accuracy, matthews, f1, spearman, not 'entity_f1'",
        ),
        (
            {"tasks": [OWN | {"slots": 15}]},
            "'tasks.0.slots': Input .* a multiple of 2, found 15",
        ),
        ({"fractions": [1.5]}, "'fractions.0': Input should be less than or equal to 1, found 1.5"),
        (
            {"orders": ["sideways"]},
            "'orders.0': Input .* 'lambda', .*found 'sideways'",
        ),
        (
            {"constants": ["uniform"]},
            "'constants.0.kind': Input .* 'average', .*found 'uniform'",
        ),
        (
            {"constants": [{"kind": "zeros", "corpus": "reviews"}]},
            "corpus belongs to kind 'average'",
        ),
        ({"constants": [{"kind": "zeros", "rows": 10}]}, "rows belongs to kind 'average'"),
        (
            {"constants": [{"kind": "average", "rows": 0}]},
            "'constants.0.rows': Input .* than 0, found 0",
        ),
        ({"seeds": []}, "'seeds': Tuple should have at least 1 item"),
        (
            {"reference": "nowhere.csv"},
            "'reference': Path does not point to a file, found '/.*nowhere.csv'",
        ),
        ({"encoders": []}, "'encoders': Tuple should have at least 1 item"),
    ],
)
def test_what_is_wrong_is_named_in_one_sentence(
    tmp_path: Path, change: dict[str, Any], message: str
) -> None:
    with pytest.raises(SpecError, match=message) as raised:
        study(tmp_path, SMALLEST | change)
    assert str(raised.value).startswith(str(tmp_path / "study.yaml"))
    assert "\n" not in str(raised.value)


@pytest.mark.parametrize(
    ("override", "message"),
    [
        ("seeds", "--set seeds: expected KEY=VALUE, such as execution.workers=2"),
        (
            "tasks.4.slots=8",
            "--set tasks.4.slots=8: '4' is not an index of a list of 1: use 0 (reviews)",
        ),
        ("seeds=[1", "--set seeds=[1: the value is not YAML"),
        ("seeds.0.x=1", "--set seeds.0.x=1: 'seeds.0' is 7, not a mapping"),
        ("name.x=1", "study.yaml: 'name': Input should be a valid string"),
        (
            "execution.worker=1",
            "unknown key 'execution.worker' (did you mean 'workers'?)",
        ),
        ("tasks.reviews.slots=8", "'reviews' is not an index of a list of 1: use 0 (reviews)"),
        ("encoder.0=x", "unknown key 'encoder' (did you mean 'encoders'?)"),
        (
            "seed.x=1",
            "study.yaml: unknown key 'seed' (did you mean 'seeds'?)",
        ),
    ],
)
def test_overrides_that_fit_nothing_are_refused(
    tmp_path: Path, override: str, message: str
) -> None:
    with pytest.raises(SpecError, match=re.escape(message)):
        study(tmp_path, SMALLEST | {"seeds": [7]}, override)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("a: [", "is not YAML"),
        ("- 1", r"found \[1\]"),
        ("", "found None"),
        (
            "name: s\ntasks: [cola]",
            "'encoders': Field required",
        ),
        ("name: s\nencoders: [e]", "'tasks': Field required"),
    ],
)
def test_malformed_studies_are_refused(tmp_path: Path, text: str, message: str) -> None:
    path = tmp_path / "study.yaml"
    path.write_text(text)
    with pytest.raises(SpecError, match=message):
        load_study(path)


def test_a_missing_study_is_refused(tmp_path: Path) -> None:
    (tmp_path / "demo.yaml").touch()
    with pytest.raises(
        SpecError, match=r"there is no study at .*other.yaml: give the path of a YAML file"
    ):
        load_study(tmp_path / "other.yaml")
    with pytest.raises(
        SpecError, match=r"there is no study at .*deom\.yaml \(did you mean 'demo'\?\)"
    ):
        load_study(tmp_path / "deom.yaml")


@pytest.mark.parametrize("name", ["a.yaml", "a.YAML", "a.yaml.yaml", "a.failed", "a.train.jsonl"])
def test_a_name_that_another_study_has_its_file_under(tmp_path: Path, name: str) -> None:
    ending = f".{name.lower().rpartition('.')[2]}"
    with pytest.raises(
        SpecError, match=f"'name': a store keeps a file of the study without {ending} under it:"
    ):
        study(tmp_path, SMALLEST | {"name": name})
    assert study(tmp_path, SMALLEST | {"name": "a.yml"}).name == "a.yml"
