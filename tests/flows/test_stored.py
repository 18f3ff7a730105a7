"""The commands that read a store, on a study that has no file of its own."""

from __future__ import annotations

import json
import os
import shutil
from pathlib import Path
from typing import Any

import pandas
import pytest
from transformers import AutoModel

from flows.cli.without_file import study_without_file
from flows.kept import save_study
from papa.storage.store import Store
from tests.finished import finish_study
from tests.flows.conftest import COMMAND, artifacts, known, papa, said

pytestmark = pytest.mark.server

NAME, TASK = "all-MiniLM-L6-v2-reviews-100-rows", "reviews"
STAGES = ("tokenise", "average", "baseline", "probe", "aggregate")
AFTER_OTHERS = f"""
import sys
from tests.flows.conftest import said
for command in ("heads", "report"):
    print("code", said(command, *sys.argv[2:5]).code, "transformers" in sys.modules)
{COMMAND}"""
SETTINGS = [
    *("orders=[first_to_last]", "fractions=[1, 0.5]"),
    *("tasks.0.slots=32", "execution.workers=1"),
    *("tasks.0.probe.learning_rate=1e-3", "tasks.0.probe.batch_size=16", "tasks.0.probe.epochs=2"),
]


@pytest.fixture(scope="module")
def store(shallow: str, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The store in which the study is finished."""
    place = Store(tmp_path_factory.mktemp("stored") / "store")
    place.make()
    save_study(place, study_without_file(None, [shallow], [TASK], 100, SETTINGS))
    finish_study(known(str(place.root / "studies" / f"{NAME}.yaml")), place.root)
    return place.root


@pytest.fixture(scope="module")
def drop(store: Path) -> Any:
    """The row of the summary with half of the heads constant."""
    summary = pandas.read_csv(store / "studies" / NAME / "summary.csv").set_index("fraction")
    assert summary["beats_baseline"].all(), "or nothing could be told"
    return summary.loc[0.5]


def heads(store: Path, share: float, *options: str) -> str:
    limit = ("--max-drop", f"{100 * share}%")
    finished = said("heads", NAME, "--store", str(store), *limit, *options)
    assert finished.code == 0, finished.err
    return finished.out


def test_heads_says_what_the_summary_holds(store: Path, drop: Any) -> None:
    (answer,) = json.loads(heads(store, drop["drop_high"] + 1e-6, "--json"))["answers"]
    assert answer["constant_heads"] == 12
    assert answer["heads"] == [[0, head] for head in range(12)]
    (count,) = answer["counts"]
    assert (count["verdict"], count["fraction"]) == ("within", 0.5)
    drops = [count[name] for name in ("drop", "drop_low", "drop_high")]
    assert drops == pytest.approx([*drop[["relative_drop", "drop_low", "drop_high"]]])
    (answer,) = json.loads(heads(store, drop["drop_high"] - 1e-6, "--json"))["answers"]
    assert answer["constant_heads"] is None
    assert answer["counts"][0]["verdict"] == "undecided"
    assert "12 of 24: cannot tell: drop" in heads(store, drop["drop_high"] - 1e-6)


def test_to_read_a_store_starts_no_engine(store: Path, tmp_path: Path) -> None:
    one = ("--store", str(store), "--fraction", "0.5", "--order", "first_to_last")
    finished = papa("export", NAME, *one, "--to", str(tmp_path / "to"), program=AFTER_OTHERS)
    assert finished.code == 0, finished.err
    assert finished.out.count("code 0 False") == 2, "to read needs no encoder either"
    assert not finished.imported & {"ray", "prefect", "mlflow"}


def test_an_export_by_its_drop(store: Path, drop: Any, tmp_path: Path, hurried: None) -> None:
    before = artifacts(store, *STAGES)
    options = ("--store", str(store), "--order", "first_to_last")
    share, to = f"{100 * drop['drop_high'] + 1e-4}%", tmp_path / "within"
    done = said("export", NAME, *options, "--max-drop", share, "--to", str(to))
    assert done.code == 0, done.err
    assert artifacts(store, *STAGES) == before, "nothing had to be run"
    config = AutoModel.from_pretrained(to).config
    assert config.study["fraction"] == 0.5
    assert sum(map(len, config.heads)) == 12


def test_studies_are_listed(store: Path, tmp_path: Path) -> None:
    shutil.copytree(store, tmp_path / "copy")
    saved = tmp_path / "copy" / "studies" / f"{NAME}.yaml"
    saved.with_name("never.yaml").write_text(saved.read_text().replace(NAME, "never"))
    for path in (tmp_path / "copy").rglob("*"):
        os.utime(path, (0, 0))
    listed, copied = (
        {line.partition("\t")[0]: line.split("\t") for line in listing.out.splitlines()}
        for listing in (said("list", "--store", str(one)) for one in (store, tmp_path / "copy"))
    )
    assert listed["Study"] == ["Study", "Date", "Encoders", "Tasks", "State", "Report"]
    report = f"{store}/studies/{NAME}/report.html"
    assert listed[NAME][2:] == ["all-MiniLM-L6-v2", "reviews", "finished", report]
    assert copied[NAME][1] == listed[NAME][1], "a copy was finished when the study was"
    assert copied["never"][4] == "not finished"
