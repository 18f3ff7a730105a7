"""A store in which something was damaged: a plan says so, and a run makes it again, to the same
results.
"""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable
from itertools import cycle
from pathlib import Path

import pandas
import pytest

from papa.storage.artifacts import METADATA, signed
from tests.finished import finish_study
from tests.flows.conftest import said, stages

pytestmark = pytest.mark.server

STAGES = ("tokenise", "average", "rank", "baseline", "probe", "aggregate")


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


def damage_all(store: Path, *damages: Callable[[Path], None]) -> None:
    """Damage a data file of every stage at once, in turn, and one of the results."""
    files = [data_of(newest(store, stage)) for stage in STAGES]
    for file, damage in zip(files, cycle(damages), strict=False):
        damage(file)
    damages[0](store / "studies" / "small" / "results.parquet")


def test_what_is_damaged_is_made_again(tiny: tuple[str, Path]) -> None:
    study, store = tiny
    before = scores(store)
    steps = len(stages(study, store))
    damage_all(store, empty, cut, Path.unlink)
    planned = said("plan", study, "--store", str(store))
    assert planned.code == 0, planned.err
    assert f"{steps - len(STAGES)} of {steps} steps are cached" in planned.out, "the other cell"
    assert len(finish_study(study, store).damages) == len(STAGES)
    pandas.testing.assert_frame_equal(scores(store), before)
    assert "nothing would run" in said("plan", study, "--store", str(store)).out


def test_what_is_damaged_within_is_made_again_by_what_reads_it(tiny: tuple[str, Path]) -> None:
    """A plan, and a run that reads nothing of it, do not look."""
    study, store = tiny
    before = scores(store)
    damage_all(store, flip)
    assert "nothing would run" in said("plan", study, "--store", str(store)).out
    for stage in ("probe", "aggregate"):
        shutil.rmtree(newest(store, stage))
    told = finish_study(study, store)
    damaged = {name.partition(" · ")[0] for name in told.damages}
    # A process that has read a text knows it.
    assert damaged | {"tokenise"} == {"tokenise", "average", "rank", "baseline"}
    pandas.testing.assert_frame_equal(scores(store), before)


def test_so_are_steps_whose_metadata_are_damaged(tiny: tuple[str, Path]) -> None:
    study, store = tiny
    before = scores(store)
    for stage, damage in zip(STAGES, cycle((flip, empty, foreign, Path.unlink)), strict=False):
        damage(newest(store, stage) / METADATA)
    told = finish_study(study, store)
    assert len(told.ran) == len(STAGES)
    assert len(told.damages) == len(STAGES) - 1, "one is gone"
    pandas.testing.assert_frame_equal(scores(store), before)


def test_results_are_restored_from_their_artifact(tiny: tuple[str, Path]) -> None:
    study, store = tiny
    folder = store / "studies" / "small"
    sound = {path.name: path.read_bytes() for path in folder.iterdir()}
    for name in ("summary.csv", "report.html", "study.yaml"):
        flip(folder / name)
    told = finish_study(study, store)
    assert not told.ran, "nothing is computed again"
    assert {path.name: path.read_bytes() for path in folder.iterdir()} == sound
    shutil.rmtree(folder)
    finish_study(study, store)
    assert {path.name: path.read_bytes() for path in folder.iterdir()} == sound
