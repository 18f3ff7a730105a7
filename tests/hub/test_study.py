"""A study on a private encoder of the hub leaves no secret and no pickle, and goes on offline."""

import re
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

import pytest
import yaml
from huggingface_hub import constants

from tests.finished import finish_study
from tests.flows.conftest import TINY, Finished, artifacts, papa, write_study
from tests.hub.conftest import Folder, environment_of, used_here
from tests.hub.server import TOKEN, Hub

pytestmark = pytest.mark.server

NAME = "microsoft/deberta-v3-base"
PLANTED = {
    "AWS_SECRET_ACCESS_KEY": "planted/key/of/s3",
    "MLFLOW_TRACKING_PASSWORD": "planted-password-of-mlflow",
    "MLFLOW_TRACKING_USERNAME": "planted-user-of-mlflow",
    "PREFECT_API_KEY": "planted-key-of-prefect",
    "RAY_AUTH_TOKEN": "planted-token-of-ray" + 40 * "0",
}
PICKLES = re.compile(rb"\x80[\x02-\x05]|PK\x03\x04.{0,200}data\.pkl", re.DOTALL)
"""How a pickle of protocol 2 and later begins, and a file of torch.save."""
STAGES = ("tokenise", "average", "train_lambda", "probe", "aggregate", "publish")


@dataclass(frozen=True)
class Place:
    """A study of a private, pickled encoder that ran once; its hub is gone since."""

    folder: Path
    hub: Hub
    commit: str
    first: Finished
    environment: Mapping[str, str]

    @property
    def store(self) -> Path:
        return self.folder / "store"

    def files(self, *below: str) -> list[Path]:
        roots = [self.folder / name for name in below or ("",)]
        return [path for root in roots for path in root.rglob("*") if path.is_file()]


@pytest.fixture(scope="module")
def study(tmp_path_factory: pytest.TempPathFactory, encoder_folder: Folder) -> Place:
    folder = tmp_path_factory.mktemp("study")
    hub = Hub()
    hub.start()
    commit = hub.publish("models", NAME, encoder_folder(NAME), access="private")
    environment = environment_of(hub, folder)
    study = write_study(folder, TINY | {"encoders": [{"name": NAME, "revision": "main"}]})
    run_environment = {**environment, "HF_TOKEN": TOKEN, **PLANTED}
    first = papa("run", study, "--store", str(folder / "store"), extra_environment=run_environment)
    assert first.code == 0, first.err
    hub.stop()
    return Place(folder, hub, commit, first, environment)


def test_the_token_is_nowhere(study: Place) -> None:
    requests = study.hub.requests
    assert TOKEN in {request.token for request in requests if not request.to_storage}
    assert {request.token for request in requests if request.to_storage} == {None}
    secrets = [TOKEN, *PLANTED.values()]
    files = study.files()
    assert not [secret for secret in secrets if secret in study.first.out + study.first.err]
    assert {"mlflow.db", "prefect.db", "study.yaml", "report.html"} <= {path.name for path in files}
    for path in files:
        content = path.read_bytes()
        assert not [secret for secret in secrets if secret.encode() in content], path


def test_nothing_is_pickled(study: Place) -> None:
    """In the store, MLflow's folder and Prefect's home; the control is the hub's own file."""
    weights = next(path for path in study.files() if path.name == "pytorch_model.bin")
    assert PICKLES.match(weights.read_bytes()[:300])
    files = study.files("store", "prefect", "data")
    kinds = {path.relative_to(study.folder).parts[1] for path in files}
    assert {"papa", "artifacts", "prefect.db"} <= kinds
    for path in files:
        assert not PICKLES.match(path.read_bytes()[:300]), path
        assert path.suffix not in (".pkl", ".pickle", ".pt", ".pth", ".bin", ".joblib", ".npy")
    assert not (study.folder / "prefect" / "storage").exists()
    roots = study.store, study.folder / "data"
    inside = (path for root in roots for path in root.rglob("*") if not path.is_symlink())
    stored_paths = [*roots, *inside]
    assert len(stored_paths) > 50
    assert not [str(path) for path in stored_paths if path.stat().st_mode & 0o077]


def test_what_is_stored_names_the_commit(study: Place) -> None:
    stored = study.store / "studies" / "small"
    written = yaml.safe_load((stored / "study.yaml").read_text())
    assert written["encoders"] == [{"name": NAME, "revision": study.commit}]
    assert study.commit in (stored / "report.html").read_text()


def test_more_of_it_is_computed_offline(study: Place) -> None:
    before = artifacts(study.store, *STAGES)
    with used_here(study.hub, study.environment) as here:
        here.setattr(constants, "HF_HUB_OFFLINE", True)
        finish_study(str(study.folder / "study.yaml"), study.store, "keep=[1, 0.5, 0]")
    after = artifacts(study.store, *STAGES)
    assert before.items() < after.items()
    assert sum(name.startswith("probe/") for name in after.keys() - before.keys()) == 1
