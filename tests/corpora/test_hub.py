"""Datasets laid out as on the hub, and a hub that cannot be reached."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest
from datasets import ClassLabel, Dataset, DatasetDict, Features, Value

from papa.corpora import fingerprint, read_source
from papa.corpora.hub import commit_of
from papa.errors import DataError
from papa.spec import HubSource, TaskSpec


@pytest.fixture
def dataset(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A local folder of Parquet files with class names, as the hub serves them."""
    import datasets.config

    monkeypatch.setattr(datasets.config, "HF_DATASETS_CACHE", tmp_path / "cache")
    features = Features({"sentence": Value("string"), "label": ClassLabel(names=["bad", "good"])})
    rows = {"sentence": ["one", "two", "three"], "label": [1, 0, 1]}
    splits = {name: Dataset.from_dict(rows, features=features) for name in ("train", "validation_mismatched")}
    folder = tmp_path / "dataset"
    for name, split in DatasetDict(splits).items():
        split.to_parquet(folder / "data" / f"{name}-00000-of-00001.parquet")
    configs = "".join(
        f"  - split: {name}\n    path: data/{name}-*.parquet\n" for name in ("train", "validation_mismatched")
    )
    (folder / "README.md").write_text(f"---\nconfigs:\n- config_name: tiny\n  data_files:\n{configs}---\n")
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
    source = HubSource(kind="hub", name=str(dataset), config="tiny", validation="validation_mismatched")
    table = read_source(task(source), "validation")
    assert table.rows.to_pydict() == {"sentence": ["one", "two", "three"], "label": [1, 0, 1]}
    assert table.class_names == {"label": ("bad", "good")}
    assert "validation_mismatched" in table.origin


def test_an_unknown_split_is_named(dataset: Path) -> None:
    source = HubSource(kind="hub", name=str(dataset), config="tiny", validation="dev")
    with pytest.raises(DataError, match=r"split 'dev', cannot be loaded .*check source\.name, config"):
        read_source(task(source), "validation")


def test_the_fingerprint_follows_the_files(dataset: Path) -> None:
    source = HubSource(kind="hub", name=str(dataset), config="tiny")
    before = fingerprint(source)
    assert fingerprint(source) == before
    assert fingerprint(source.model_copy(update={"validation": "dev"})) != before
    (dataset / "README.md").write_text("changed")
    commit_of.cache_clear()
    assert fingerprint(source) != before


def test_a_commit_is_its_own_fingerprint() -> None:
    commit = "0123456789abcdef0123456789abcdef01234567"
    assert commit_of(HubSource(kind="hub", name="no/such", revision=commit)) == commit


@pytest.mark.server
def test_an_unreachable_hub_is_one_sentence(tmp_path: Path) -> None:
    """In a process of its own, where the hub is switched off before its library is imported."""
    program = (
        "from papa.corpora.hub import read_hub\nfrom papa.errors import DataError\n"
        "from papa.spec import HubSource\n"
        "try:\n    read_hub(HubSource(kind='hub', name='nyu-mll/glue', config='cola'), 'train')\n"
        "except DataError as error:\n    print(error)\n"
    )
    environment = {**os.environ, "HF_HUB_OFFLINE": "1", "HF_HOME": str(tmp_path)}
    done = subprocess.run([sys.executable, "-c", program], env=environment, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    assert done.stdout.startswith("dataset 'nyu-mll/glue/cola', split 'train', cannot be loaded (ConnectionError")
    assert "check the network, or give local files" in done.stdout
    assert done.stdout.count("\n") == 1
