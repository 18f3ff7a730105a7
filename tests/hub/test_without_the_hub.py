"""A study that ran once runs again when the hub is gone, and keeps the commits that it was
made of.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest
import yaml
from huggingface_hub import constants

from tests.finished import finish_study
from tests.flows.conftest import SMALL, artifacts, write_study
from tests.hub.conftest import forget
from tests.hub.server import Hub

pytestmark = pytest.mark.server

ENCODER = "google/electra-base-discriminator"
STAGES = ("tokenise", "probe", "aggregate")


def test_a_study_runs_again_without_the_hub(
    public: Hub,
    encoder_folder: Callable[..., Path],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    commit = public.publish("models", ENCODER, encoder_folder(ENCODER))
    tasks = [{"name": name, "slots": 32, "probe": {"epochs": 1}} for name in ("cola", "ner")]
    changes = {
        "encoders": [ENCODER],
        "tasks": tasks,
        "fractions": [1],
        "seeds": [0],
        "execution": {"workers": 1},
    }
    path, store = write_study(tmp_path, SMALL | changes), tmp_path / "store"

    def run() -> str:
        forget()
        finish_study(path, store)
        return (store / "studies" / "small" / "study.yaml").read_text()

    stored = run()
    before = artifacts(store, *STAGES)
    assert before
    study = yaml.safe_load(stored)
    assert study["encoders"][0]["revision"] == commit
    expected = {
        "cola": public.repository("datasets", "nyu-mll/glue").branches["main"],
        "ner": public.repository("datasets", "eriktks/conll2003").branches["refs/convert/parquet"],
    }
    assert {task["name"]: task["source"]["revision"] for task in study["tasks"]} == expected
    public.stop()
    assert run() == stored
    monkeypatch.setattr(constants, "HF_HUB_OFFLINE", True)
    assert run() == stored
    assert artifacts(store, *STAGES) == before
