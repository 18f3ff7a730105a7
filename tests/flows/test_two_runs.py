"""Two runs at once on one store: nothing is damaged, and what one finished the other takes."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
from collections import Counter
from collections.abc import Mapping
from pathlib import Path

import pandas
import pytest

from flows.check import check_study
from papa.spec.file import load_study
from papa.storage.artifacts import verify
from papa.study.store import Store, claimed
from papa.study.unused import survey
from tests.flows.conftest import (
    TINY,
    Finished,
    finish,
    known,
    said,
    stages,
    start,
    until,
    write_study,
)
from tests.integration.s3 import S3Server

pytestmark = pytest.mark.server

STAGES = ("tokenise", "average", "rank", "probe", "aggregate")


@pytest.fixture
def study(shallow: str, tmp_path: Path) -> str:
    """16 shards: running sums are folded while both work on them."""
    execution = {"shard_rows": 2, "workers": 1}
    return known(write_study(tmp_path, TINY | {"encoders": [shallow], "execution": execution}))


@pytest.fixture
def machines(study: str, tmp_path: Path) -> tuple[Path, Path]:
    """The caches of two machines on which a study was looked at."""
    caches = tmp_path / "one", tmp_path / "other"
    for place in caches:
        shutil.copytree(Path(os.environ["PAPA_CACHE"]) / "remembered", place / "remembered")
    return caches


def run_both(
    study: str, store: str, one: Mapping[str, str], other: Mapping[str, str]
) -> tuple[Finished, Finished]:
    """Run a study twice at once, each process with some more environment."""
    command = ("run", study, "--store", store)
    with start(*command, more=one) as first, start(*command, more=other) as second:
        both = finish(first), finish(second)
    for finished in both:
        assert finished.code == 0, finished.err
    return both


def started(*runs: Finished) -> Counter[str]:
    """How often each step was started."""
    return Counter(
        name for run in runs for name in re.findall(r"^(.+?): started", run.err, re.MULTILINE)
    )


def everything_is_whole(store: Store) -> None:
    assert survey(store) == []
    for stage in STAGES:
        for document in store.metadata(stage):
            if stage != "tokenise":
                verify(store.folder(stage, document["key"]))


def results(root: Path) -> pandas.DataFrame:
    return pandas.read_parquet(root / "studies" / "small" / "results.parquet")


def test_on_one_machine_no_step_is_made_twice(
    study: str, tmp_path: Path, prefect: dict[str, str]
) -> None:
    store = Store(tmp_path / "store")
    store.make()
    first = check_study(load_study(Path(study)), store).steps.steps[0]
    command = ("run", study, "--store", store.address)
    with claimed(store, f"{first.stage}-{first.key}"):
        processes = [start(*command, more=prefect) for _ in range(2)]
        # Both meet at a step that another holds.
        meeting = f"{first.name}: waits for another run"
        before = [until(process.stderr, meeting) for process in processes]
    both = [ended(process, lines) for process, lines in zip(processes, before, strict=True)]
    counts = started(*both)
    assert len(counts) == len(stages(study, tmp_path / "store"))
    assert set(counts.values()) == {1}, counts
    everything_is_whole(store)
    assert len(results(store.root)) == 2


def ended(process: subprocess.Popen[str], before: str) -> Finished:
    """A process after its end, of whose error stream ``before`` was read."""
    with process:
        assert process.stdout is not None
        assert process.stderr is not None
        err, out = before + process.stderr.read(), process.stdout.read()
        finished = Finished(process.wait(), out, err)
    assert finished.code == 0, finished.err
    return finished


def test_on_two_machines_nothing_mixes(
    study: str,
    machines: tuple[Path, Path],
    s3: S3Server,
    s3_place: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    prefect: dict[str, str],
) -> None:
    """Two caches stand for two machines: they share nothing but the address."""
    run_both(
        study,
        s3_place,
        *({**s3.environment(), **prefect, "PAPA_CACHE": str(cache)} for cache in machines),
    )
    stores = []
    for cache in machines:
        monkeypatch.setenv("PAPA_CACHE", str(cache))
        stores.append(Store(s3_place))
    everything_is_whole(stores[0])
    one, other = (results(store.root) for store in stores)
    pandas.testing.assert_frame_equal(one, other)
    monkeypatch.setenv("PAPA_CACHE", str(tmp_path / "third"))
    told = said("plan", study, "--store", s3_place)
    steps = len(stages(study, tmp_path / "store"))
    assert f"{steps} of {steps} steps are cached; nothing would run" in told.out
