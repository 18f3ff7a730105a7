"""Figure 2a of the paper, from its study file: three encoders and six tasks by their hub names."""

from __future__ import annotations

from pathlib import Path

import pandas
import pytest

from tests.flows.conftest import papa
from tests.hub.conftest import Folder
from tests.hub.datasets import publish_all
from tests.hub.server import Hub

STUDY = Path(__file__).resolve().parents[2] / "studies" / "paper" / "figure2a.yaml"
ENCODERS = ("google-bert/bert-base-uncased", "FacebookAI/roberta-base", "microsoft/deberta-base")
TASKS = {"cola", "mrpc", "sst2", "mnli", "ner", "pos"}


@pytest.mark.server
@pytest.mark.slow
def test_figure_2a_ends_with_all_cells(
    hub: Hub,
    hub_environment: dict[str, str],
    written: Path,
    encoder_folder: Folder,
    tmp_path: Path,
    prefect: dict[str, str],
) -> None:
    """Tiny stand-ins for the encoders and the data sets, in the files and branches of the public
    ones.
    """
    for name in ENCODERS:
        hub.publish("models", name, encoder_folder(name))
    publish_all(hub, written)
    store = str(tmp_path / "store")
    finished = papa("run", str(STUDY), "--store", store, more=hub_environment | prefect)
    assert finished.code == 0, finished.err
    folder = tmp_path / "store" / "studies" / "paper-figure2a"
    results = pandas.read_parquet(folder / "results.parquet")
    assert len(results) == 3 * 6 * 5 * 3
    assert set(results["encoder"]) == {Path(name).name for name in ENCODERS}
    assert set(results["task"]) == TASKS
    assert results.groupby(["encoder", "task", "fraction"])["seed"].nunique().eq(3).all()
    assert results["score"].notna().all()
    report = (folder / "report.html").read_text()
    assert "Beside the paper" in report
    assert (folder / "drops.png").is_file() or "left out" in report
