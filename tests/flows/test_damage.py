"""A store in which something was damaged: a plan says so, and a run makes it again, to the same
results.
"""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable
from pathlib import Path

import pandas
import pytest

from papa.storage.metadata import METADATA, signed
from tests.flows.conftest import SMALL, papa, write_study

pytestmark = pytest.mark.server

TINY = SMALL | {"orders": ["lambda"], "fractions": [1, 0.5], "seeds": [0]}
STAGES = ("tokenise", "average", "rank", "baseline", "probe", "aggregate", "track")


@pytest.fixture(scope="module")
def finished(tmp_path_factory: pytest.TempPathFactory, prefect: dict[str, str]) -> tuple[str, Path]:
    """The path of a study that has run, and its store."""
    folder = tmp_path_factory.mktemp("finished")
    study, store = write_study(folder, TINY), folder / "store"
    run = papa("run", study, "--store", str(store), more=prefect)
    assert run.code == 0, run.err
    return study, store


def flip(file: Path) -> None:
    content = bytearray(file.read_bytes())
    content[len(content) // 2] ^= 1
    file.write_bytes(content)


def empty(file: Path) -> None:
    file.write_bytes(b"")


def cut(file: Path) -> None:
    file.write_bytes(file.read_bytes()[:-1])


def foreign(file: Path) -> None:
    """Metadata that are sound, and another step's."""
    document = json.loads(file.read_text())
    file.write_text(json.dumps(signed({**document, "key": "0" * 64})))


def newest(store: Path, stage: str) -> Path:
    """The finished artifact of a stage."""
    return max((store / "artifacts" / stage).iterdir(), key=lambda place: place.stat().st_mtime_ns)


def data_of(place: Path) -> Path:
    """The largest of an artifact's data files."""
    return max(
        (path for path in place.rglob("*") if path.is_file() and path.name != METADATA), key=size
    )


def size(path: Path) -> int:
    return path.stat().st_size


def scores(store: Path) -> pandas.DataFrame:
    return pandas.read_parquet(store / "studies" / "small" / "results.parquet").drop(
        columns="seconds"
    )


@pytest.mark.parametrize("damage", [flip, empty, cut, Path.unlink])
def test_what_is_damaged_is_made_again(
    finished: tuple[str, Path], prefect: dict[str, str], damage: Callable[[Path], None]
) -> None:
    """A data file of every stage at once, and the copies of the results."""
    study, store = finished
    before = scores(store)
    places = [newest(store, stage) for stage in STAGES]
    for place in places:
        damage(data_of(place))
    damage(store / "studies" / "small" / "results.parquet")
    planned = papa("plan", study, "--store", str(store))
    assert planned.code == 0, planned.err
    assert "1 of 8 steps are cached" in planned.out, "the other cell"
    run = papa("run", study, "--store", str(store), more=prefect)
    assert run.code == 0, run.err
    assert run.err.count(": made again: ") == len(STAGES)
    for place in places:
        assert f"{place}/{data_of(place).name} is " in run.err
    pandas.testing.assert_frame_equal(scores(store), before)
    assert "nothing would run" in papa("plan", study, "--store", str(store)).out


@pytest.mark.parametrize("damage", [flip, empty, foreign, Path.unlink])
def test_so_are_steps_whose_metadata_are_damaged(
    finished: tuple[str, Path], prefect: dict[str, str], damage: Callable[[Path], None]
) -> None:
    study, store = finished
    before = scores(store)
    for stage in STAGES:
        damage(newest(store, stage) / METADATA)
    run = papa("run", study, "--store", str(store), more=prefect)
    assert run.code == 0, run.err
    if damage is not Path.unlink:
        assert run.err.count(": made again: ") == len(STAGES)
    pandas.testing.assert_frame_equal(scores(store), before)


def test_results_are_restored_from_their_artifact(
    finished: tuple[str, Path], prefect: dict[str, str]
) -> None:
    study, store = finished
    folder = store / "studies" / "small"
    sound = {path.name: path.read_bytes() for path in folder.iterdir()}
    kept = newest(store, "probe").stat().st_mtime_ns
    for name in ("summary.csv", "report.md", "study.yaml"):
        flip(folder / name)
    run = papa("run", study, "--store", str(store), more=prefect)
    assert run.code == 0, run.err
    assert {path.name: path.read_bytes() for path in folder.iterdir()} == sound
    assert newest(store, "probe").stat().st_mtime_ns == kept, "nothing else ran"
    shutil.rmtree(folder)
    assert papa("run", study, "--store", str(store), more=prefect).code == 0
    assert {path.name: path.read_bytes() for path in folder.iterdir()} == sound
