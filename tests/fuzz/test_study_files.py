"""Study files and ``--set`` that nobody would write on purpose: a study, or one sentence."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
import yaml
from hypothesis import example, given
from hypothesis import strategies as st

from papa.errors import SpecError
from papa.spec import StudySpec
from papa.spec.document import read_yaml
from papa.spec.file import load_study, override, resolve_study
from tests.fuzz.outcomes import one_sentence, result_or_sentence, times
from tests.fuzz.values import ODD_SCALARS, ODD_TEXT, ODD_VALUES, changed

PROBE = {"learning_rate": 1e-4, "batch_size": 16, "epochs": 4}
OWN_TASK = {
    "name": "own",
    "kind": "text",
    "source": {"kind": "files", "train": "train.jsonl", "validation": "~/validation.jsonl"},
    "columns": {"text": "sentence", "label": "label"},
    "labels": ["no", "yes"],
    "metric": "f1",
    "positive": "yes",
    "slots": 64,
    "probe": PROBE,
    "train_rows": 100,
}
STUDY: dict[str, Any] = {
    "name": "study",
    "encoders": ["google-bert/bert-base-uncased", {"name": "./folder", "revision": "main"}],
    "tasks": ["cola", {"name": "mrpc", "probe": {"epochs": 1}}, OWN_TASK],
    "constants": [
        "average",
        {"kind": "trained", "start": "average"},
        {"kind": "average", "corpus": "sst2"},
    ],
    "orders": ["lambda", "random"],
    "fractions": [1, 0.5, 0],
    "seeds": [0, 1, 2],
    "ranking": {"epochs": 2, "until_stable": True, "learning_rate": 0.001, "seeds": [1]},
    "layout": {"one_text_truncation": "half"},
    "precision": "float32",
    "execution": {
        "workers": 2,
        "batch_tokens": 512,
        "features_budget_gb": 1.5,
    },
    "as_the_authors_ran": True,
}
HERE = Path(__file__).parent


def resolved(document: Any) -> StudySpec:
    return resolve_study(document, folder=HERE, origin="study.yaml")


def check_is_right(study: StudySpec | None) -> None:
    """What was accepted says the same once it is written down and read again."""
    if study is not None:
        assert StudySpec.model_validate_json(study.model_dump_json()) == study


@times(8)
@given(changed(STUDY))
@example({**STUDY, "tasks": [{"name": {}}]})
@example({**STUDY, "tasks": [{"name": [[]], "kind": "text"}]})
@example({**STUDY, "encoders": ["~nosuchuser/encoder"]})
@example({**STUDY, "encoders": ["\0"]})
@example({**STUDY, "encoders": ["x" * 300]})
@example({**STUDY, "reference": "~nosuchuser"})
@example({**STUDY, "reference": "/" + "x/" * 3000})
@example({**STUDY, "execution": {"features_budget_gb": float("inf")}})
@example({**STUDY, "name": "x" * 100_000})
@example({**STUDY, "seeds": [16**6000]})
@example({**STUDY, "tasks": [{**OWN_TASK, "source": {**OWN_TASK["source"], "train": "\ud800"}}]})
@example({**STUDY, "tasks": [{**OWN_TASK, "source": {**OWN_TASK["source"], "train": 7}}]})
@example({**STUDY, "tasks": [{**OWN_TASK, "source": {"kind": "hub", "name": "x" * 300}}]})
@example({**STUDY, "a\nb\x1b[31m": 1})
@example({**STUDY, "tasks": [{**OWN_TASK, "labels": ["no", "\ud800"]}]})
@example({**STUDY, 7: 7, "tasks": [{"name": "mrpc", "probe": {None: 1}}]})
def test_changed_values(document: Any) -> None:
    if isinstance(document, dict):
        check_is_right(result_or_sentence(lambda: resolved(document)))


@pytest.mark.parametrize(
    ("change", "expected"),
    [
        (
            {"encoders": ["~nosuchuser/encoder"]},
            "the encoder is '~nosuchuser/encoder', which is no usable path",
        ),
        ({"encoders": ["a\0b"]}, "the encoder is 'a\\x00b', which is no usable path"),
        ({"encoders": ["x" * 300]}, "which is no usable path (File name too long)"),
        ({"encoders": [""]}, "'encoders.0.name' is '', expected text that is not empty"),
        ({"reference": "~nosuchuser"}, "'reference' is '~nosuchuser', which is no usable path"),
        ({"tasks": [{"name": {"a": 1}}]}, "a task's name is {'a': 1}, expected text such as cola"),
        (
            {"tasks": [{**OWN_TASK, "source": {"kind": "hub", "name": ""}}]},
            "'tasks.0.source.name' is '', expected text that is not empty",
        ),
        (
            {"tasks": [{**OWN_TASK, "source": {**OWN_TASK["source"], "train": 7}}]},
            "expected the path of a file",
        ),
        ({"name": "a" * 100_000}, "aaa…"),
        (
            {"tasks": [{**OWN_TASK, "labels": ["\ud800"]}]},
            "'tasks.0.labels.0' holds '\\ud800', half a character",
        ),
    ],
)
def test_what_was_raw_or_endless_is_one_sentence(change: dict[str, Any], expected: str) -> None:
    with pytest.raises(SpecError) as caught:
        resolved({**STUDY, **change})
    assert expected in one_sentence(caught.value)


def test_the_study_itself_is_read() -> None:
    assert [task.name for task in resolved(STUDY).tasks] == ["cola", "mrpc", "own"]


@times(4)
@given(
    st.one_of(
        changed(STUDY).map(lambda value: yaml.safe_dump(value, allow_unicode=True)),
        st.text(max_size=200),
    )
)
def test_files(tmp_path_factory: pytest.TempPathFactory, text: str) -> None:
    path = tmp_path_factory.getbasetemp() / "study.yaml"
    path.write_bytes(text.encode("utf-8", "surrogatepass"))
    check_is_right(result_or_sentence(lambda: load_study(path)))


@times(2)
@given(st.binary(max_size=200))
def test_files_of_any_bytes(tmp_path_factory: pytest.TempPathFactory, content: bytes) -> None:
    path = tmp_path_factory.getbasetemp() / "study.yaml"
    path.write_bytes(content)
    with pytest.raises(SpecError) as caught:
        load_study(path)
    assert one_sentence(caught.value).startswith(str(path))


YAML_PIECES = st.sampled_from(
    [
        "a: ", "- ", "&x ", "*x", "[", "]", "{", "}", ", ", "\n", "  ", "'", '"', "? ", ": ", "~",
        "!!int ", "!!float ", "!!bool ", "!!set ", "!!binary ", "!!timestamp ", "!!omap ",
        "!!pairs ", "2020-01-01", "1_000", "0o17", "0x1F", ".inf", "1:2:3", "yes", "name: b",
        "|\n", ">\n", "#", "%YAML 1.1\n", "---\n", "...\n", "\x85", "\ufeff", "\t", "=", "!x ",
        "<<: ",
    ]
)  # fmt: skip


@times(8)
@given(st.lists(YAML_PIECES, max_size=30).map("".join))
@example("a: !!set {b, c}\n")
@example("a: !!binary '='\n")
@example("a: !!timestamp x\n")
@example("a: !!int ''\n")
@example("a: !!bool x\n")  # fmt: skip
@example("~: ~")
def test_yaml_of_pieces(text: str) -> None:
    value = result_or_sentence(lambda: read_yaml(text, "study.yaml"))
    if isinstance(value, dict):
        check_is_right(result_or_sentence(lambda: resolved(value)))


PATHS = st.one_of(
    st.sampled_from(
        [
            "name", "encoders", "encoders.0", "encoders.0.name", "tasks.0.probe.epochs", "ranking",
            "name.a", "tasks.9", "tasks.-1", "tasks.0.x.y.z", "tasks.2.source.train",
            "constants.2.corpus.name", "..", ".", "\0", "tasks.٣", "tasks." + "9" * 5000,
            "tasks.0." + "a." * 500, "seeds.0.a",
        ]
    ),
    ODD_TEXT,
)  # fmt: skip


@times(8)
@given(
    st.lists(
        st.tuples(PATHS, ODD_VALUES.map(lambda value: json.dumps(value)) | ODD_TEXT),
        min_size=1,
        max_size=3,
    ),
)
def test_settings(settings: list[tuple[str, str]]) -> None:
    document = json.loads(json.dumps(STUDY))

    def read() -> StudySpec:
        for path, value in settings:
            override(document, f"{path}={value}")
        return resolved(document)

    check_is_right(result_or_sentence(read))


@times(4)
@given(
    st.sampled_from(["name", "encoders", "tasks", "constants", "reference", "as_the_authors_ran"]),
    ODD_SCALARS,
)
def test_a_value_where_another_belongs(key: str, value: Any) -> None:
    for wrapped in (
        value,
        [value],
        {"name": value},
        [{"name": value}],
        [{"kind": value}],
        [[value]],
    ):
        check_is_right(result_or_sentence(lambda found=wrapped: resolved({**STUDY, key: found})))
