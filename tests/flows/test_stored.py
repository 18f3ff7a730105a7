"""The commands that read a store, on a study that has no file of its own."""

from __future__ import annotations

import hashlib
import json
import os
import shutil
from pathlib import Path
from typing import Any

import pandas
import pytest
from transformers import AutoModel

from flows.studies import save_study
from flows.without_file import study_without_file
from papa.scores.summary import read_table
from papa.spec.file import load_study
from papa.storage.metadata import METADATA, describe, metadata_bytes
from papa.study.manifest import MANIFEST
from papa.study.store import Store
from tests.finished import finish_study
from tests.flows.conftest import COMMAND, artifacts, known, papa, refusal, said

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


def percent(share: float) -> str:
    return f"{100 * share}%"


def heads(store: Path, share: float, *options: str) -> str:
    finished = said("heads", NAME, "--store", str(store), "--max-drop", percent(share), *options)
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
    to = tmp_path / "within"
    done = said(
        "export", NAME, *options, "--max-drop", percent(drop["drop_high"] + 1e-6), "--to", str(to)
    )
    assert done.code == 0, done.err
    assert artifacts(store, *STAGES) == before, "nothing had to be run"
    config = AutoModel.from_pretrained(to).config
    assert config.study["fraction"] == 0.5
    assert sum(map(len, config.heads)) == 12


def test_a_report_is_built_again(store: Path) -> None:
    results = store / "studies" / NAME
    before = {path.name: path.read_bytes() for path in results.iterdir()}
    (results / "report.html").write_text("damaged")
    computed = artifacts(store, "probe", "average", "baseline")
    finished = said("report", NAME, "--store", str(store))
    assert finished.code == 0, finished.err
    assert f"report   {results}/report.html" in finished.out
    assert {path.name for path in results.iterdir()} == before.keys()
    for name in ("report.html", "summary.csv", "study.yaml"):
        assert (results / name).read_bytes() == before[name], name
    assert artifacts(store, "probe", "average", "baseline") == computed


def test_what_an_earlier_version_finished_is_shown_kept_and_made_anew(
    store: Path, shallow: str, tmp_path: Path, prefect: dict[str, str]
) -> None:
    """Its steps have other keys, and its tables call the encoder's label model. What ran without a
    file is kept as one.
    """
    old = tmp_path / "store"
    shutil.copytree(store, old)
    for artifact in list((old / "artifacts").glob("*/*")):
        artifact.rename(artifact.with_name(hashlib.sha256(artifact.name.encode()).hexdigest()))
    results = old / "studies" / NAME
    summary = read_table(results / "summary.csv")
    (results / MANIFEST).unlink()
    earlier = {"stage": "aggregate", "stage_version": 4, "spec": {"study": {"name": NAME}}}
    (results / METADATA).write_bytes(metadata_bytes(describe(results, earlier)))
    before = artifacts(old, *STAGES)

    for command in ("report", "heads", "compare"):
        line = refusal(said(command, NAME, "--store", str(old)))
        assert f"the results in {results} are of an older version of PAPA" in line
        assert "run the study again with 'papa run'" in line

    file = old / "studies" / f"{NAME}.yaml"
    file.unlink()
    options = ("--encoder", shallow, "--task", TASK, "--limit", "100", "--store", str(old))
    again = papa("run", *options, *(f"--set={one}" for one in SETTINGS), more=prefect)
    assert again.code == 0, again.err
    pandas.testing.assert_frame_equal(read_table(results / "summary.csv"), summary)
    assert artifacts(old, *STAGES).items() > before.items(), "what was there is kept"
    study = load_study(file)
    assert (study.name, study.orders, study.fractions) == (NAME, ("first_to_last",), (1.0, 0.5))
    assert "nothing would run" in said("plan", str(file), "--store", str(old)).out


def test_studies_are_listed(store: Path, tmp_path: Path) -> None:
    shutil.copytree(store, tmp_path / "copy")
    saved = tmp_path / "copy" / "studies" / f"{NAME}.yaml"
    saved.with_name("never.yaml").write_text(
        saved.read_text().replace(f"name: {NAME}", "name: never")
    )
    saved.write_text(saved.read_text().replace("- 0.5", "- 0.25"))
    for path in (tmp_path / "copy").rglob("*"):
        os.utime(path, (0, 0))
    listed, copied = (
        {
            line.split("\t")[0]: line.split("\t")
            for line in said("list", "--store", str(place)).out.splitlines()
        }
        for place in (store, tmp_path / "copy")
    )
    assert listed["Study"] == ["Study", "Date", "Encoders", "Tasks", "State", "Report"]
    report = f"studies/{NAME}/report.html"
    assert listed[NAME][2:] == ["all-MiniLM-L6-v2", "reviews", "finished", f"{store}/{report}"]
    assert copied[NAME][4:] == [
        "finished; changed since, and not finished again",
        f"{tmp_path}/copy/{report}",
    ]
    assert copied[NAME][1] == listed[NAME][1], "a copy was finished when the study was"
    assert copied["never"][4] == "not finished"


def test_a_name_that_the_store_does_not_have_is_one_sentence(store: Path) -> None:
    finished = said("heads", "demo", "--store", str(store))
    line = refusal(finished)
    assert f"there is no finished study 'demo' in {store}: it has " in line
    assert NAME in line
