"""Two runs at once on one store: nothing is damaged, and what one finished the other takes."""

from __future__ import annotations

import re
from collections import Counter
from pathlib import Path

import pandas
import pytest

from flows.check import check_study
from papa.spec.file import load_study
from papa.storage.artifacts import verify
from papa.storage.store import Store, claimed
from tests.flows.conftest import TINY, start, until, write_study

pytestmark = pytest.mark.server


def test_on_one_machine_no_step_is_made_twice(
    shallow: str, tmp_path: Path, prefect: dict[str, str]
) -> None:
    """16 shards, which both work on."""
    execution = {"shard_rows": 2, "workers": 1}
    study = write_study(tmp_path, TINY | {"encoders": [shallow], "execution": execution})
    store = Store(tmp_path / "store")
    store.make()
    steps = check_study(load_study(Path(study)), store).steps.steps
    command = ("run", study, "--store", store.address)
    with claimed(store, f"{steps[0].stage}-{steps[0].key}"):
        processes = [start(*command, more=prefect) for _ in range(2)]
        for process in processes:  # Both meet at a step that another holds.
            until(process.stderr, f"{steps[0].name}: waits for another run")
    counts = Counter[str]()
    for process in processes:
        _, err = process.communicate()
        assert process.returncode == 0, err
        counts.update(re.findall(r"^(.+?): started", err, re.MULTILINE))
    assert counts == Counter(step.name for step in steps)
    for stage in ("average", "rank", "probe", "aggregate"):
        for document in store.metadata(stage):
            verify(store.folder(stage, document["key"]))
    assert len(pandas.read_parquet(store.study("small") / "results.parquet")) == 2
