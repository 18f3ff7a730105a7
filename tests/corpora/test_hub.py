"""Datasets laid out as on the hub, and a hub that cannot be reached."""

from __future__ import annotations

from pathlib import Path

import pytest
from datasets import ClassLabel, Dataset, DatasetDict, Features, Value

from papa.corpora import fingerprint, read_source
from papa.corpora.repository import commit_of
from papa.errors import DataError
from papa.spec import HubSource, TaskSpec


@pytest.fixture
def dataset(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A local folder of Parquet files with class names, as the hub serves them."""
    import datasets.config

    monkeypatch.setattr(datasets.config, "HF_DATASETS_CACHE", tmp_path / "cache")
    features = Features({"sentence": Value("string"), "label": ClassLabel(names=["bad", "good"])})
    rows = {"sentence": ["one", "two", "three"], "label": [1, 0, 1]}
    splits = {
        name: Dataset.from_dict(rows, features=features)
        for name in ("train", "validation_mismatched")
    }
    folder = tmp_path / "dataset"
    for name, split in DatasetDict(splits).items():
        split.to_parquet(folder / "data" / f"{name}-00000-of-00001.parquet")
    configs = "".join(
        f"  - split: {name}\n    path: data/{name}-*.parquet\n"
        for name in ("train", "validation_mismatched")
    )
    (folder / "README.md").write_text(
        f"---\nconfigs:\n- config_name: tiny\n  data_files:\n{configs}---\n"
    )
    return folder


def task(source: HubSource) -> TaskSpec:
    return TaskSpec.model_validate(
        {
            "name": "task",
            "kind": "text",
            "source": source.model_dump(),
            "columns": {"text": "sentence", "label": "label"},
            "metric": "accuracy",
            "slots": 16,
            "probe": {"learning_rate": 1e-4, "batch_size": 8, "epochs": 1},
        }
    )


def test_configuration_split_and_class_names_are_read(dataset: Path) -> None:
    source = HubSource(
        kind="hub", name=str(dataset), config="tiny", validation="validation_mismatched"
    )
    table = read_source(task(source), "validation")
    assert table.rows.to_pydict() == {"sentence": ["one", "two", "three"], "label": [1, 0, 1]}
    assert table.class_names == {"label": ("bad", "good")}
    assert "validation_mismatched" in table.origin


def test_an_unknown_split_is_named(dataset: Path) -> None:
    source = HubSource(kind="hub", name=str(dataset), config="tiny", validation="dev")
    with pytest.raises(DataError, match=r"no split 'dev' \(found: .*\): set source\.train and"):
        read_source(task(source), "validation")


def test_the_fingerprint_follows_the_files(dataset: Path) -> None:
    source = HubSource(kind="hub", name=str(dataset), config="tiny")
    before = fingerprint(source)
    assert fingerprint(source) == before
    assert fingerprint(source.model_copy(update={"validation": "dev"})) != before
    (dataset / "README.md").write_text("changed")
    assert fingerprint(source) != before


def test_a_commit_is_its_own_fingerprint() -> None:
    commit = "0123456789abcdef0123456789abcdef01234567"
    assert commit_of(HubSource(kind="hub", name="no/such", revision=commit)) == commit
