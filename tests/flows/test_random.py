"""A study with random head orders on an uneven task: a set of heads a seed, and what its reader is
told.
"""

from __future__ import annotations

import json
from pathlib import Path

import pandas
import pytest
from rich.console import Console

from flows.export import ExportRequest, export_cell
from papa.errors import SpecError
from papa.spec.file import load_study
from papa.study.store import Store
from tests.finished import finish_study
from tests.flows.conftest import SMALL, Finished, artifacts, papa, write_study

pytestmark = pytest.mark.server

STUDY = SMALL | {
    "orders": ["random"],
    "constants": ["zeros"],
    "fractions": [1, 0.0625],
    "seeds": [0, 1],
}


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with the study; every validation label is of one class."""
    folder = tmp_path_factory.mktemp("random")
    for split, period in (("train", 2), ("validation", 1)):
        rows = [{"text": f"text number {row}", "label": "ab"[row % period]} for row in range(32)]
        (folder / f"{split}.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    task = {
        "name": "uneven",
        "kind": "text",
        "source": {"kind": "files", "train": "train.jsonl", "validation": "validation.jsonl"},
        "columns": {"text": "text", "label": "label"},
        "metric": "accuracy",
        "slots": 16,
        "probe": {"learning_rate": 5e-4, "batch_size": 16, "epochs": 1},
    }
    write_study(folder, STUDY | {"tasks": [task]})
    return folder


@pytest.fixture(scope="module")
def finished(place: Path, prefect: dict[str, str]) -> Finished:
    """What a run of it prints, with every step done before."""
    finish_study(str(place / "study.yaml"), place / "store", tracked=True)
    found = papa("run", str(place / "study.yaml"), "--store", str(place / "store"), more=prefect)
    assert found.code == 0, found.err
    return found


def test_each_seed_has_heads_of_its_own(finished: Finished, place: Path) -> None:
    scores = [
        json.loads(path.read_text())
        for path in (place / "store" / "artifacts" / "probe").glob("*/scores.json")
    ]
    drawn = {
        one["scores"][0]["seed"]: one["constant_heads"] for one in scores if one["constant_heads"]
    }
    assert drawn.keys() == {0, 1}
    assert len(drawn[0]) == len(drawn[1]) == 68
    assert drawn[0] != drawn[1]
    assert len(artifacts(place / "store", "probe")) == 3, (
        "one for the original, whose seeds share it"
    )
    results = pandas.read_parquet(place / "store" / "studies" / "small" / "results.parquet")
    assert sorted(results.loc[results["fraction"] == 0.0625, "seed"]) == [0, 1]
    summary = pandas.read_csv(place / "store" / "studies" / "small" / "summary.csv").set_index(
        "fraction"
    )
    assert summary["seeds"].tolist() == [2, 2]


def test_the_reader_is_told_of_rounding_and_of_one_class(finished: Finished, place: Path) -> None:
    report = (place / "store" / "studies" / "small" / "report.md").read_text()
    one_class = "every validation label is 'a' (32 of them), so a score shows nothing"
    rounded = "1/16 (5.6 %)"
    assert one_class in finished.err
    assert one_class in report
    assert rounded in finished.out
    assert rounded in report


def test_a_set_of_heads_a_seed_is_no_one_encoder(finished: Finished, place: Path) -> None:
    request = ExportRequest(
        encoder=None, task=None, constants="zeros", order="random", fraction=0.0625
    )
    with pytest.raises(SpecError, match="other heads constant for each of the study's 2 seeds"):
        export_cell(
            load_study(place / "study.yaml"),
            Store(place / "store"),
            request,
            place / "export",
            Console(),
        )
    assert not (place / "export").exists()
