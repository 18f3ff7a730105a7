"""A study on an encoder of the hub that is private and pickled: run, and run again without
the hub.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path

import pytest
import yaml
from huggingface_hub import constants

from tests.finished import finish_study
from tests.flows.conftest import (
    TINY,
    Finished,
    artifacts,
    hurried,  # noqa: F401
    papa,
    said,
    write_study,
)
from tests.hub.conftest import environment_of, used_here
from tests.hub.server import TOKEN, Hub

pytestmark = pytest.mark.server

NAME = "microsoft/deberta-v3-base"
STUDY = TINY | {"encoders": [{"name": NAME, "revision": "main"}]}
PLANTED = {
    "AWS_SECRET_ACCESS_KEY": "planted/key/of/s3",
    "MLFLOW_TRACKING_PASSWORD": "planted-password-of-mlflow",
    "MLFLOW_TRACKING_USERNAME": "planted-user-of-mlflow",
    "PREFECT_API_KEY": "planted-key-of-prefect",
    "RAY_AUTH_TOKEN": "planted-token-of-ray" + 40 * "0",
}
PICKLES = re.compile(rb"\x80[\x02-\x05]|PK\x03\x04.{0,200}data\.pkl", re.DOTALL)
"""How a pickle of protocol 2 and later begins, and a file of torch.save."""
STAGES = ("tokenise", "average", "rank", "probe", "aggregate", "publish")


@dataclass(frozen=True)
class Place:
    """A study that ran once.

    Attributes:
        hub: it is gone since.
        commit: of the encoder.
        first: what the run left.
        environment: that it ran in.
    """

    folder: Path
    hub: Hub
    commit: str
    first: Finished
    environment: Mapping[str, str]

    @property
    def study(self) -> str:
        return str(self.folder / "study.yaml")

    @property
    def store(self) -> Path:
        return self.folder / "store"


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory, encoder_folder: Callable[..., Path]) -> Place:
    folder = tmp_path_factory.mktemp("study")
    hub = Hub()
    hub.start()
    commit = hub.publish("models", NAME, encoder_folder(NAME), access="private")
    environment = environment_of(hub, folder)
    command = ("run", write_study(folder, STUDY), "--store", str(folder / "store"))
    first = papa(*command, more={**environment, "HF_TOKEN": TOKEN, **PLANTED})
    assert first.code == 0, first.err
    hub.stop()
    return Place(folder, hub, commit, first, environment)


def test_the_token_is_nowhere(place: Place) -> None:
    assert TOKEN in {request.token for request in place.hub.requests if not request.to_storage}
    assert {request.token for request in place.hub.requests if request.to_storage} == {None}
    secrets = [TOKEN, *PLANTED.values()]
    assert not [secret for secret in secrets if secret in place.first.out + place.first.err]
    files = [path for path in place.folder.rglob("*") if path.is_file()]
    assert {"mlflow.db", "prefect.db", "study.yaml", "report.html"} <= {path.name for path in files}
    for path in files:
        content = path.read_bytes()
        assert not [secret for secret in secrets if secret.encode() in content], path


def test_nothing_is_pickled(place: Place) -> None:
    """In the store, MLflow's artifacts and Prefect's home; the control is the hub's own file."""
    weights = next(path for path in place.folder.rglob("pytorch_model.bin"))
    assert PICKLES.match(weights.read_bytes()[:300])
    prefect = place.folder / "prefect"
    files = [path for root in (place.store, prefect) for path in root.rglob("*") if path.is_file()]
    assert {"mlartifacts", "artifacts", "prefect.db"} <= {
        path.relative_to(place.folder).parts[1] for path in files
    }
    for path in files:
        assert not PICKLES.match(path.read_bytes()[:300]), path
        assert path.suffix not in (".pkl", ".pickle", ".pt", ".pth", ".bin", ".joblib", ".npy"), (
            path
        )
    assert not (prefect / "storage").exists()


def test_a_store_is_its_owners_alone(place: Place) -> None:
    assert place.store.stat().st_mode & 0o777 == 0o700
    modes = {
        path: path.lstat().st_mode & 0o777
        for path in place.store.rglob("*")
        if not path.is_symlink()
    }
    assert len(modes) > 50
    assert not {str(path): oct(mode) for path, mode in modes.items() if mode & 0o077}


def test_what_is_stored_names_the_commit(place: Place) -> None:
    written = yaml.safe_load((place.store / "studies" / "small" / "study.yaml").read_text())
    assert written["encoders"] == [{"name": NAME, "revision": place.commit}]
    assert place.commit in (place.store / "studies" / "small" / "report.html").read_text()


def test_more_of_it_is_computed_offline(place: Place) -> None:
    before = artifacts(place.store, *STAGES)
    with used_here(place.hub, place.environment) as here:
        here.setattr(constants, "HF_HUB_OFFLINE", True)
        finish_study(place.study, place.store, "fractions=[1, 0.5, 0]")
    after = artifacts(place.store, *STAGES)
    assert before.items() < after.items()
    assert sum(name.startswith("probe/") for name in after.keys() - before.keys()) == 1


def test_what_no_export_takes_is_said(place: Place) -> None:
    to = place.folder / "exported"
    options = ("--store", str(place.store), "--fraction", "0.5", "--to", str(to))
    with used_here(place.hub, place.environment) as here:
        here.setattr(constants, "HF_HUB_OFFLINE", True)
        done = said("export", "small", *options)
    assert done.code == 1
    assert "'deberta-v2' cannot be exported" in done.err
    assert not to.exists()
