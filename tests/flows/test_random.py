"""A study with random head orders on an uneven task: a set of heads a seed, and what its reader is
told.
"""

from __future__ import annotations

import json
from pathlib import Path

import pandas
import pytest

from tests.finished import finish_study
from tests.flows.conftest import (
    SMALL,
    Finished,
    artifacts,
    known,
    papa,
    rows_in,
    task_on,
    write_study,
)

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
    train, validation = (
        [{"text": f"text number {row}", "label": "ab"[row % period]} for row in range(32)]
        for period in (2, 1)
    )
    source = rows_in(folder, "uneven", train, validation)
    task = task_on("uneven", source, slots=16)
    write_study(folder, STUDY | {"tasks": [task]})
    return folder


@pytest.fixture(scope="module")
def finished(place: Path, prefect: dict[str, str]) -> Finished:
    """What a run of it prints, with every step done before."""
    study, store = known(str(place / "study.yaml")), place / "store"
    finish_study(study, store)
    found = papa("run", study, "--store", str(store), more=prefect)
    assert found.code == 0, found.err
    return found


def test_each_seed_has_heads_of_its_own(finished: Finished, place: Path) -> None:
    store, folder = place / "store", place / "store" / "studies" / "small"
    files = (store / "artifacts" / "probe").glob("*/*/scores.json")
    scores = [json.loads(path.read_text()) for path in files]
    drawn = {
        one["scores"][0]["seed"]: one["constant_heads"] for one in scores if one["constant_heads"]
    }
    assert drawn.keys() == {0, 1}
    assert len(drawn[0]) == len(drawn[1]) == 68
    assert drawn[0] != drawn[1]
    assert len(artifacts(store, "probe")) == 3, "one for the original, whose seeds share it"
    results = pandas.read_parquet(folder / "results.parquet")
    assert sorted(results.loc[results["fraction"] == 0.0625, "seed"]) == [0, 1]
    assert pandas.read_csv(folder / "summary.csv")["seeds"].tolist() == [2, 2]
