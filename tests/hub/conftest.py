"""A hub on loopback, and an environment that knows no other."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.hub.server import Hub


def environment_of(hub: Hub, folder: Path) -> dict[str, str]:
    """This environment, but with ``hub`` for the hub, caches of its own in ``folder`` and
    no token.
    """
    own = ("HF_", "PAPA_", "PREFECT_", "MLFLOW_", "RAY_")
    kept = {name: value for name, value in os.environ.items() if not name.startswith(own)}
    return kept | {
        "HF_ENDPOINT": hub.address,
        "HF_HOME": str(folder / "huggingface"),
        "PAPA_CACHE": str(folder / "cache"),
        "HF_HUB_DISABLE_TELEMETRY": "1",
        "OMP_NUM_THREADS": "1",
        "COLUMNS": "200",
    }


@pytest.fixture
def hub() -> Iterator[Hub]:
    """An empty hub that listens."""
    hub = Hub()
    hub.start()
    yield hub
    hub.stop()


@pytest.fixture
def hub_environment(hub: Hub, tmp_path: Path) -> dict[str, str]:
    """For processes that shall use the hub: see ``environment_of``."""
    return environment_of(hub, tmp_path)


@pytest.fixture
def on_hub(hub: Hub, hub_environment: dict[str, str], monkeypatch: pytest.MonkeyPatch) -> Hub:
    """The hub, for this process: the libraries read the environment once, at import, so their
    constants are set.
    """
    import datasets.config
    from huggingface_hub import constants

    for name in ("HF_ENDPOINT", "HF_HOME", "PAPA_CACHE"):
        monkeypatch.setenv(name, hub_environment[name])
    home = Path(hub_environment["HF_HOME"])
    for name in ("HF_TOKEN", "HF_HUB_OFFLINE"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setattr(constants, "ENDPOINT", hub.address)
    template = f"{hub.address}/{{repo_id}}/resolve/{{revision}}/{{filename}}"
    monkeypatch.setattr(constants, "HUGGINGFACE_CO_URL_TEMPLATE", template)
    monkeypatch.setattr(constants, "HF_HUB_CACHE", str(home / "hub"))
    monkeypatch.setattr(constants, "HF_TOKEN_PATH", str(home / "token"))
    monkeypatch.setattr(datasets.config, "HF_ENDPOINT", hub.address)
    monkeypatch.setattr(datasets.config, "HF_DATASETS_CACHE", home / "datasets")
    return hub
