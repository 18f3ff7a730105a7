"""A study that ran once runs again when the hub is gone, and keeps the commits that it was
made of.
"""

from __future__ import annotations

from pathlib import Path

import pytest
import yaml

from tests.flows.conftest import SMALL, artifacts, finish, start, write_study
from tests.hub.datasets import publish_all, write_all
from tests.hub.encoders import write_encoder
from tests.hub.server import Hub

pytestmark = pytest.mark.server

ENCODER = "google/electra-base-discriminator"
STAGES = ("tokenise", "probe", "aggregate")


def test_a_study_runs_again_without_the_hub(
    hub: Hub, hub_environment: dict[str, str], tmp_path: Path
) -> None:
    write_all(tmp_path / "datasets")
    publish_all(hub, tmp_path / "datasets")
    write_encoder(ENCODER, tmp_path / "encoder")
    commit = hub.publish("models", ENCODER, tmp_path / "encoder")
    tasks = [{"name": name, "slots": 32, "probe": {"epochs": 1}} for name in ("cola", "ner")]
    changes = {
        "encoders": [ENCODER],
        "tasks": tasks,
        "fractions": [1],
        "seeds": [0],
        "execution": {"workers": 1},
    }
    path, store = write_study(tmp_path, SMALL | changes), tmp_path / "store"

    def run(**more: str) -> str:
        program = "from tests.finished import main; main()"
        environment = hub_environment | more
        with start(path, str(store), more=environment, program=program) as process:
            finished = finish(process)
        assert finished.code == 0, finished.err
        return (store / "studies" / "small" / "study.yaml").read_text()

    stored = run()
    before = artifacts(store, *STAGES)
    assert before
    study = yaml.safe_load(stored)
    assert study["encoders"][0]["revision"] == commit
    expected = {
        "cola": hub.repository("datasets", "nyu-mll/glue").branches["main"],
        "ner": hub.repository("datasets", "eriktks/conll2003").branches["refs/convert/parquet"],
    }
    assert {task["name"]: task["source"]["revision"] for task in study["tasks"]} == expected
    hub.stop()
    assert run() == stored
    assert run(HF_HUB_OFFLINE="1") == stored
    assert artifacts(store, *STAGES) == before
