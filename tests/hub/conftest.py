"""A hub on loopback, an environment that knows no other, and what is published there."""

import os
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from functools import cache
from pathlib import Path

import datasets.config
import pytest
from huggingface_hub import constants

from papa.errors import EncoderError, PapaError
from papa.models.reference import EncoderReference, resolve_encoder
from papa.spec import EncoderSpec
from papa.text import sources
from tests.hub.datasets import publish_all, write_all
from tests.hub.encoders import write_encoder
from tests.hub.server import Hub

Folder = Callable[..., Path]


def environment_of(hub: Hub, folder: Path) -> dict[str, str]:
    """This environment, but with ``hub`` for the hub, own caches in ``folder`` and no token."""
    prefixes = ("HF_", "PAPA_", "PREFECT_", "MLFLOW_", "RAY_")
    inherited = {name: value for name, value in os.environ.items() if not name.startswith(prefixes)}
    return inherited | {
        "HF_ENDPOINT": hub.address,
        "HF_HOME": str(folder / "huggingface"),
        "PAPA_CACHE": str(folder / "cache"),
        "PREFECT_HOME": str(folder / "prefect"),
        "XDG_DATA_HOME": str(folder / "data"),
        "HF_HUB_DISABLE_TELEMETRY": "1",
        "OMP_NUM_THREADS": "1",
        "COLUMNS": "200",
    }


def resolved(name: str | Path, revision: str | None = None) -> EncoderReference:
    return resolve_encoder(EncoderSpec(name=str(name), revision=revision))


def refused(
    name: str | Path, error: type[PapaError] = EncoderError, revision: str | None = None
) -> str:
    with pytest.raises(error) as caught:
        resolved(name, revision)
    message = str(caught.value)
    assert str(name) in message
    assert "\n" not in message
    assert "hf_" not in message
    return message


def forget() -> None:
    sources.commit_of.cache_clear()
    sources._splits.cache_clear()


@pytest.fixture(scope="session")
def written(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("public")
    write_all(folder)
    return folder


@pytest.fixture(scope="session")
def encoder_folder(tmp_path_factory: pytest.TempPathFactory) -> Folder:
    encoders = tmp_path_factory.mktemp("encoders")

    @cache
    def folder(name: str, seed: int = 0) -> Path:
        write_encoder(name, encoders / f"{name}-{seed}", seed)
        return encoders / f"{name}-{seed}"

    return folder


@pytest.fixture
def hub() -> Iterator[Hub]:
    hub = Hub()
    hub.start()
    yield hub
    hub.stop()


@pytest.fixture
def hub_environment(hub: Hub, tmp_path: Path) -> dict[str, str]:
    return environment_of(hub, tmp_path)


@contextmanager
def used_here(hub: Hub, environment: Mapping[str, str]) -> Iterator[pytest.MonkeyPatch]:
    """In the block this process uses the hub: constants that libraries read at import are set."""
    home = Path(environment["HF_HOME"])
    template = f"{hub.address}/{{repo_id}}/resolve/{{revision}}/{{filename}}"
    with pytest.MonkeyPatch.context() as monkeypatch:
        for name in ("HF_ENDPOINT", "HF_HOME", "PAPA_CACHE"):
            monkeypatch.setenv(name, environment[name])
        for name in ("HF_TOKEN", "HF_HUB_OFFLINE"):
            monkeypatch.delenv(name, raising=False)
        for library, name, value in (
            (constants, "ENDPOINT", hub.address),
            (constants, "HUGGINGFACE_CO_URL_TEMPLATE", template),
            (constants, "HF_HUB_CACHE", str(home / "hub")),
            (constants, "HF_TOKEN_PATH", str(home / "token")),
            (datasets.config, "HF_ENDPOINT", hub.address),
            (datasets.config, "HF_DATASETS_CACHE", home / "datasets"),
        ):
            monkeypatch.setattr(library, name, value)
        forget()
        yield monkeypatch
    forget()


@pytest.fixture
def on_hub(hub: Hub, hub_environment: dict[str, str]) -> Iterator[Hub]:
    with used_here(hub, hub_environment):
        yield hub


@pytest.fixture
def public(on_hub: Hub, written: Path) -> Hub:
    publish_all(on_hub, written)
    return on_hub
