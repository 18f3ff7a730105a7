"""What is damaged in a store: a plan says so, and a run makes it again, to the same bits."""

import json
import shutil
from collections.abc import Callable
from itertools import cycle
from pathlib import Path

import pandas
import pytest

from papa.storage.artifacts import METADATA, signed
from tests.finished import finish_study
from tests.flows.conftest import invoke
from tests.tasks.tracked import steps_of

pytestmark = pytest.mark.server

STAGES = ("tokenise", "average", "train_lambda", "baseline", "probe", "aggregate")


def cut(file: Path) -> None:
    file.write_bytes(file.read_bytes()[:-2])


def empty(file: Path) -> None:
    file.write_bytes(b"")


def flip(file: Path) -> None:
    content = bytearray(file.read_bytes())
    content[len(content) // 2] ^= 1
    file.write_bytes(content)


def foreign(file: Path) -> None:
    document = json.loads(file.read_text())
    file.write_text(json.dumps(signed({**document, "key": "0" * 64})))


def newest(store: Path, stage: str) -> Path:
    artifacts = (store / "artifacts" / stage).iterdir()
    return max(artifacts, key=lambda artifact: artifact.stat().st_mtime_ns)


def damage_all(store: Path, *damages: Callable[[Path], None]) -> None:
    """Damage the largest data file of every stage at once, in turn, and one of the results."""
    for stage, damage in zip(STAGES, cycle(damages), strict=False):
        data = [path for path in newest(store, stage).rglob("*") if path.name != METADATA]
        damage(max(filter(Path.is_file, data), key=lambda path: path.stat().st_size))
    damages[0](store / "studies" / "small" / "results.parquet")


def scores(store: Path) -> pandas.DataFrame:
    results = pandas.read_parquet(store / "studies" / "small" / "results.parquet")
    return results.drop(columns="seconds")


def test_a_damaged_artifact_is_computed_again(tiny: tuple[str, Path], tmp_path: Path) -> None:
    """Within files, which a plan does not see; in their sizes; and in metadata."""
    study = tiny[0]
    store = shutil.copytree(tiny[1], tmp_path / "store")
    before = scores(store)
    steps = len(steps_of(study)[1].steps)
    damage_all(store, flip)
    assert "nothing would run" in invoke("plan", study, "--store", str(store)).out
    for stage in ("probe", "aggregate"):
        shutil.rmtree(newest(store, stage))
    damaged = {name.partition(" · ")[0] for name in finish_study(study, store).damages}
    # A process that has read a text knows it.
    assert damaged | {"tokenise"} == {"tokenise", "average", "train_lambda", "baseline"}
    pandas.testing.assert_frame_equal(scores(store), before)

    damage_all(store, cut, empty, Path.unlink)
    planned = invoke("plan", study, "--store", str(store)).out
    assert f"{steps - len(STAGES)} of {steps} steps are cached" in planned, "the other cell"
    assert len(finish_study(study, store).damages) == len(STAGES)
    for stage, damage in zip(STAGES, cycle((flip, empty, foreign, Path.unlink)), strict=False):
        damage(newest(store, stage) / METADATA)
    reporter = finish_study(study, store)
    assert len(reporter.ran) == len(STAGES)
    assert len(reporter.damages) == len(STAGES) - 1, "one is gone"
    pandas.testing.assert_frame_equal(scores(store), before)


def test_results_are_restored_from_their_artifact(tiny: tuple[str, Path], tmp_path: Path) -> None:
    study = tiny[0]
    store = shutil.copytree(tiny[1], tmp_path / "store")
    folder = store / "studies" / "small"
    sound = {path.name: path.read_bytes() for path in folder.iterdir()}
    for name in ("summary.csv", "report.html", "study.yaml"):
        flip(folder / name)
    assert not finish_study(study, store).ran, "nothing is computed again"
    assert {path.name: path.read_bytes() for path in folder.iterdir()} == sound
    shutil.rmtree(folder)
    finish_study(study, store)
    assert {path.name: path.read_bytes() for path in folder.iterdir()} == sound
